"""Where a real Karmada for the tests comes from: a folder that has it, or built once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hack.gobuild import CannotBuild
from hack.karmada_assets import built_karmada, found_karmada, karmada_module, karmada_programs
from tests.kubernetes.test_assets import go, surroundings

NAMES = sorted(program.name for program in karmada_programs())
BUILDS = 'while [ "$1" != -o ]; do shift; done; echo x >> "$HOME/builds"; echo "$3" > "$2"'


def test_its_programs_are_built_once_beside_a_folder_that_has_only_kubernetes(
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


def test_a_folder_that_has_them_all_is_taken(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).touch()
    environment = surroundings(tmp_path, KUBEBUILDER_ASSETS=str(tmp_path))
    assert found_karmada(environment) == tmp_path


def test_its_manifests_are_where_go_keeps_the_module(tmp_path: Path) -> None:
    answer = json.dumps({"Dir": "/somewhere/karmada@v1"})
    go(tmp_path, f"echo '{answer}'")
    assert karmada_module(surroundings(tmp_path)) == Path("/somewhere/karmada@v1")


def test_without_go_or_a_module_proxy_it_is_said_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(CannotBuild, match="there is no go"):
        karmada_module(surroundings(tmp_path))
    go(tmp_path, "echo no module proxy >&2; exit 1")
    with pytest.raises(CannotBuild, match="karmada failed: no module proxy"):
        karmada_module(surroundings(tmp_path))
