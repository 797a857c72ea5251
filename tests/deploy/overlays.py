"""The kustomize overlays and components of deploy/, built by kubectl."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.find_kubectl import NoKubectl, kubectl

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
OVERLAYS = ("management-plane", "cell", "single-cluster", "dev")
Manifest = dict[str, Any]


@cache
def build_text(folder: str) -> str:
    return run_kustomize(DEPLOY / "kustomize" / folder)


def run_kustomize(folder: Path) -> str:
    try:
        program = kubectl()
    except NoKubectl as error:
        pytest.skip(str(error))
    done = subprocess.run(
        [program, "kustomize", str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def build_manifests(overlay: str) -> tuple[Manifest, ...]:
    return parse_manifests(build_text(f"overlays/{overlay}"))


def parse_manifests(text: str) -> tuple[Manifest, ...]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(yaml.load_all(text, loader))


def manifests_of_kind(overlay: str, kind: str) -> list[Manifest]:
    return [manifest for manifest in build_manifests(overlay) if manifest["kind"] == kind]


def deployment(overlay: str) -> Manifest:
    (found,) = manifests_of_kind(overlay, "Deployment")
    return found


def manager_container(overlay: str) -> Manifest:
    (container,) = deployment(overlay)["spec"]["template"]["spec"]["containers"]
    found: Manifest = container
    return found
