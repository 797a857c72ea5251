"""Kubernetes API servers for the tests; ``hack/build_assets.py`` builds the missing programs.

If KUBEBUILDER_ASSETS is set, it is the folder with the programs. Otherwise each program is built
once from a wrapper module in ``hack/kube-assets``, and linked into a cache folder that is named
after the versions. The build takes about 20 minutes on two cores. To add a program, add a line to
``programs``, and ``tool`` and ``require`` lines to the go.mod of its wrapper module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from hack.gobuild import CannotBuild, Program, built, cache_of, link

SOURCE = Path(__file__).resolve().parent / "kube-assets"
_STAMPED = "k8s.io/component-base/version"


def programs() -> tuple[Program, ...]:
    etcd = pinned_version("etcd", "go.etcd.io/etcd/server/v3")
    kubernetes = pinned_version("kubernetes", "k8s.io/kubernetes")
    major, minor = kubernetes.removeprefix("v").split(".")[:2]
    # Without these flags, servers report version v0.0.0, which some clients reject.
    stamps = {"gitVersion": kubernetes, "gitMajor": major, "gitMinor": minor}
    linked = " ".join(f"-X {_STAMPED}.{name}={value}" for name, value in stamps.items())
    return (
        Program("etcd", SOURCE / "etcd", "go.etcd.io/etcd/server/v3", etcd),
        *(
            Program(
                name, SOURCE / "kubernetes", f"k8s.io/kubernetes/cmd/{name}", kubernetes, linked
            )
            for name in ("kube-apiserver", "kube-controller-manager")
        ),
    )


def pinned_version(module: str, required: str) -> str:
    text = (SOURCE / module / "go.mod").read_text()
    found = re.search(rf"^(?:require)?\s*{re.escape(required)} (v\S+)", text, re.MULTILINE)
    assert found is not None, f"hack/kube-assets/{module}/go.mod pins {required}"
    return found[1]


def found_assets(environment: Mapping[str, str]) -> Path | None:
    """Return the folder with all programs, or None if a program is missing."""
    named = environment.get("KUBEBUILDER_ASSETS", "")
    folder = Path(named) if named else _folder(environment)
    return folder if all((folder / program.name).exists() for program in programs()) else None


def built_assets(environment: Mapping[str, str]) -> Path:
    found = found_assets(environment)
    if found is not None:
        return found
    if named := environment.get("KUBEBUILDER_ASSETS", ""):
        wanted = ", ".join(program.name for program in programs())
        raise CannotBuild(f"KUBEBUILDER_ASSETS is {named}, which does not contain all of {wanted}")
    folder = _folder(environment)
    folder.mkdir(parents=True, exist_ok=True)
    for program in programs():
        link(built(program, environment), folder / program.name)
    return folder


def _folder(environment: Mapping[str, str]) -> Path:
    versions = dict.fromkeys(program.version for program in programs())
    return cache_of(environment) / f"kube-assets-{'-'.join(versions)}"
