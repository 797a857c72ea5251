"""The programs of real API servers: taken from a named folder, or built once."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.gobuild import CannotBuild, path_of
from hack.kube_assets import built_assets, found_assets, programs

NAMES = sorted(program.name for program in programs())


def surroundings(tmp_path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": str(tmp_path / "bin"), **more}


def go(tmp_path: Path, script: str) -> None:
    path = tmp_path / "bin" / "go"
    path.parent.mkdir()
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_each_program_is_built_once_into_one_folder(tmp_path: Path) -> None:
    go(tmp_path, 'while [ "$1" != -o ]; do shift; done; echo x >> "$HOME/builds"; echo "$3" > "$2"')
    environment = surroundings(tmp_path)
    assert found_assets(environment) is None
    folder = built_assets(environment)
    assert sorted(entry.name for entry in folder.iterdir()) == NAMES
    assert (folder / "kube-apiserver").read_text() == "k8s.io/kubernetes/cmd/kube-apiserver\n"
    assert found_assets(environment) == built_assets(environment) == folder
    assert (tmp_path / "builds").read_text() == "x\n" * len(NAMES)


def test_a_named_folder_is_used_unchanged(tmp_path: Path) -> None:
    for name in NAMES:
        (tmp_path / name).touch()
    environment = surroundings(tmp_path, KUBEBUILDER_ASSETS=str(tmp_path))
    assert found_assets(environment) == built_assets(environment) == tmp_path


def test_a_named_folder_without_all_programs_is_refused(tmp_path: Path) -> None:
    environment = surroundings(tmp_path, KUBEBUILDER_ASSETS=str(tmp_path))
    with pytest.raises(CannotBuild, match="does not contain all of etcd, kube-apiserver"):
        built_assets(environment)
    assert list(tmp_path.iterdir()) == []


def test_programs_built_before_a_failure_are_not_built_again(tmp_path: Path) -> None:
    go(
        tmp_path,
        'while [ "$1" != -o ]; do shift; done; case "$3" in *etcd*) echo made > "$2";; '
        "*) echo no module proxy >&2; exit 1;; esac",
    )
    environment = surroundings(tmp_path)
    with pytest.raises(CannotBuild, match="building kube-apiserver failed: no module proxy"):
        built_assets(environment)
    assert found_assets(environment) is None
    there = [program.name for program in programs() if path_of(program, environment).exists()]
    assert there == ["etcd"]
