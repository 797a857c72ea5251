"""The programs of a real Karmada: taken from a folder, or built once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hack.gobuild import CannotBuild
from hack.karmada_assets import built_karmada, found_karmada, karmada_module, karmada_programs
from tests.kubernetes.test_assets import go, surroundings

NAMES = sorted(program.name for program in karmada_programs())
BUILDS = 'while [ "$1" != -o ]; do shift; done; echo x >> "$HOME/builds"; echo "$3" > "$2"'


def test_karmada_is_built_once_if_the_named_folder_has_only_kubernetes(
    tmp_path: Path,
) -> None:
    go(tmp_path, BUILDS)
    (tmp_path / "named").mkdir()
    environment = surroundings(tmp_path, KUBEBUILDER_ASSETS=str(tmp_path / "named"))
    assert found_karmada(environment) is None
    folder = built_karmada(environment)
    assert sorted(entry.name for entry in folder.iterdir()) == NAMES
    package = "github.com/karmada-io/karmada/cmd/scheduler"
    assert (folder / "karmada-scheduler").read_text() == f"{package}\n"
    assert found_karmada(environment) == built_karmada(environment) == folder
    assert (tmp_path / "builds").read_text() == "x\n" * len(NAMES)
    assert list((tmp_path / "named").iterdir()) == []


def test_a_folder_with_all_programs_is_used(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).touch()
    environment = surroundings(tmp_path, KUBEBUILDER_ASSETS=str(tmp_path))
    assert found_karmada(environment) == tmp_path


def test_the_manifests_are_in_the_module_cache_of_go(tmp_path: Path) -> None:
    answer = json.dumps({"Dir": "/somewhere/karmada@v1"})
    go(tmp_path, f"echo '{answer}'")
    assert karmada_module(surroundings(tmp_path)) == Path("/somewhere/karmada@v1")


def test_a_missing_go_or_module_proxy_is_reported(tmp_path: Path) -> None:
    with pytest.raises(CannotBuild, match="go is not installed"):
        karmada_module(surroundings(tmp_path))
    go(tmp_path, "echo no module proxy >&2; exit 1")
    with pytest.raises(CannotBuild, match="karmada failed: no module proxy"):
        karmada_module(surroundings(tmp_path))
