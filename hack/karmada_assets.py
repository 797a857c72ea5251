"""Karmada for the tests: its programs, built once, and its manifests from the Go module.

Only the version is committed, in ``hack/kube-assets/karmada``. The folder in KUBEBUILDER_ASSETS is
used if it contains all programs of Karmada; usually it contains only those of Kubernetes.
"""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path

from hack.gobuild import CannotBuild, Program, built, cache_of, link
from hack.kube_assets import SOURCE, pinned_version

MODULE = "github.com/karmada-io/karmada"
_DOWNLOAD_S = 600


def karmada_programs() -> tuple[Program, ...]:
    version = pinned_version("karmada", MODULE)
    return tuple(
        Program(f"karmada-{part}", SOURCE / "karmada", f"{MODULE}/cmd/{part}", version)
        for part in ("controller-manager", "scheduler", "webhook")
    )


def found_karmada(environment: Mapping[str, str]) -> Path | None:
    """Return the folder with all programs, or None if a program is missing."""
    named = environment.get("KUBEBUILDER_ASSETS", "")
    folders = [Path(named)] if named else []
    for folder in (*folders, _folder(environment)):
        if all((folder / program.name).exists() for program in karmada_programs()):
            return folder
    return None


def built_karmada(environment: Mapping[str, str]) -> Path:
    found = found_karmada(environment)
    if found is not None:
        return found
    folder = _folder(environment)
    folder.mkdir(parents=True, exist_ok=True)
    for program in karmada_programs():
        link(built(program, environment), folder / program.name)
    return folder


def karmada_module(environment: Mapping[str, str]) -> Path:
    """Return the folder of the Karmada sources, which contain manifests for the tests."""
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        raise CannotBuild("cannot fetch the manifests of Karmada: go is not installed")
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        cwd=SOURCE / "karmada",
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=_DOWNLOAD_S,
        check=False,
    )
    if done.returncode != 0:
        raise CannotBuild(f"fetching {MODULE} failed: {done.stderr.strip()[-500:]}")
    return Path(json.loads(done.stdout)["Dir"])


def _folder(environment: Mapping[str, str]) -> Path:
    return cache_of(environment) / f"karmada-assets-{karmada_programs()[0].version}"
