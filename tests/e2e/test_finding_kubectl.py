"""Which kubectl the tests use: one that is named, found, built before, or built now."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.find_kubectl import NoKubectl, cached_program, find_kubectl, pinned_version, version_of


def kubectl_of(folder: Path, version: str) -> Path:
    """A program that says it is that version of kubectl."""
    folder.mkdir(parents=True, exist_ok=True)
    told = f'{{"clientVersion": {{"gitVersion": "{version}"}}}}'
    return program(folder / "kubectl", f"echo '{told}'")


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def surroundings(tmp_path: Path, *path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": ":".join(map(str, path)), **more}


@pytest.mark.parametrize(
    ("told", "version"),
    [("v1.32.4-dispatcher", (1, 32)), ("v1.36.0+k3s", (1, 36)), ("master", None)],
)
def test_a_version_is_read_with_whatever_follows_it(
    tmp_path: Path, told: str, version: tuple[int, int] | None
) -> None:
    assert version_of(str(kubectl_of(tmp_path, told))) == version


def test_the_one_that_is_named_comes_first(tmp_path: Path) -> None:
    named = kubectl_of(tmp_path / "named", "v1.33.0")
    kubectl_of(tmp_path / "bin", "v1.35.0")
    environment = surroundings(tmp_path, tmp_path / "bin", KUBECTL=str(named))
    assert find_kubectl(environment) == str(named)


def test_one_that_is_named_and_too_old_is_refused_and_not_replaced(tmp_path: Path) -> None:
    named = kubectl_of(tmp_path / "named", "v1.20.5")
    kubectl_of(tmp_path / "bin", "v1.35.0")
    with pytest.raises(NoKubectl, match=r"which is 1\.20; 1\.32 or newer"):
        find_kubectl(surroundings(tmp_path, tmp_path / "bin", KUBECTL=str(named)))


def test_old_and_broken_ones_on_the_path_are_passed_over(tmp_path: Path) -> None:
    kubectl_of(tmp_path / "old", "v1.20.5")
    program(tmp_path / "broken" / "kubectl", "exit 3")
    good = kubectl_of(tmp_path / "good", "v1.32.0")
    folders = [tmp_path / name for name in ("none", "old", "broken", "good")]
    assert find_kubectl(surroundings(tmp_path, *folders)) == str(good)


def test_one_that_was_built_before_serves_where_the_path_has_none(tmp_path: Path) -> None:
    environment = surroundings(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    built = kubectl_of(cached_program(environment).parent, pinned_version())
    assert str(built).startswith(str(tmp_path / "cache" / "datum-compute"))
    assert find_kubectl(environment) == str(built)


def test_it_is_built_once_and_whole(tmp_path: Path) -> None:
    go = tmp_path / "bin" / "go"
    script = 'echo x >> "$HOME/builds"; while [ "$1" != -o ]; do shift; done; echo made > "$2"'
    program(go, script)
    environment = surroundings(tmp_path, go.parent)
    for _ in range(2):
        built = Path(find_kubectl(environment))
        assert built.read_text() == "made\n"
    assert (tmp_path / "builds").read_text() == "x\n"
    assert sorted(entry.name for entry in built.parent.iterdir()) == ["kubectl", "lock"]


def test_a_build_that_fails_leaves_nothing_and_says_why(tmp_path: Path) -> None:
    program(tmp_path / "bin" / "go", "echo no module proxy >&2; exit 1")
    environment = surroundings(tmp_path, tmp_path / "bin")
    with pytest.raises(NoKubectl, match="no module proxy"):
        find_kubectl(environment)
    assert not cached_program(environment).exists()


def test_without_kubectl_and_go_the_reason_is_told(tmp_path: Path) -> None:
    with pytest.raises(NoKubectl, match="no go to build kubectl with"):
        find_kubectl(surroundings(tmp_path, tmp_path))
