"""``hack.find_kubectl``: the one in ``KUBECTL``, on ``PATH`` or in the cache, or a new build."""

from __future__ import annotations

from pathlib import Path

import pytest

from hack.find_kubectl import NoKubectl, cached_program, find_kubectl, pinned_version, version_of


def write_kubectl(folder: Path, version: str) -> Path:
    """Write a program that prints this version."""
    folder.mkdir(parents=True, exist_ok=True)
    output = f'{{"clientVersion": {{"gitVersion": "{version}"}}}}'
    return write_program(folder / "kubectl", f"echo '{output}'")


def write_program(path: Path, script: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


def environment_with(tmp_path: Path, *path: Path, **more: str) -> dict[str, str]:
    return {"HOME": str(tmp_path), "PATH": ":".join(map(str, path)), **more}


@pytest.mark.parametrize(
    ("printed", "version"),
    [("v1.32.4-dispatcher", (1, 32)), ("v1.36.0+k3s", (1, 36)), ("master", None)],
)
def test_a_version_is_parsed_with_any_suffix(
    tmp_path: Path, printed: str, version: tuple[int, int] | None
) -> None:
    assert version_of(str(write_kubectl(tmp_path, printed))) == version


def test_the_kubectl_of_the_environment_variable_is_preferred(tmp_path: Path) -> None:
    named = write_kubectl(tmp_path / "named", "v1.33.0")
    write_kubectl(tmp_path / "bin", "v1.35.0")
    environment = environment_with(tmp_path, tmp_path / "bin", KUBECTL=str(named))
    assert find_kubectl(environment) == str(named)


def test_a_kubectl_of_the_environment_variable_that_is_too_old_is_an_error(tmp_path: Path) -> None:
    named = write_kubectl(tmp_path / "named", "v1.20.5")
    write_kubectl(tmp_path / "bin", "v1.35.0")
    with pytest.raises(NoKubectl, match=r"version 1\.20; 1\.32 or newer"):
        find_kubectl(environment_with(tmp_path, tmp_path / "bin", KUBECTL=str(named)))


def test_old_and_broken_programs_on_the_path_are_skipped(tmp_path: Path) -> None:
    write_kubectl(tmp_path / "old", "v1.20.5")
    write_program(tmp_path / "broken" / "kubectl", "exit 3")
    good = write_kubectl(tmp_path / "good", "v1.32.0")
    folders = [tmp_path / name for name in ("none", "old", "broken", "good")]
    assert find_kubectl(environment_with(tmp_path, *folders)) == str(good)


def test_a_cached_build_is_used_if_the_path_has_no_kubectl(tmp_path: Path) -> None:
    environment = environment_with(tmp_path, XDG_CACHE_HOME=str(tmp_path / "cache"))
    built = write_kubectl(cached_program(environment).parent, pinned_version())
    assert str(built).startswith(str(tmp_path / "cache" / "datum-compute"))
    assert find_kubectl(environment) == str(built)


def test_kubectl_is_built_once_and_atomically(tmp_path: Path) -> None:
    go = tmp_path / "bin" / "go"
    script = 'echo x >> "$HOME/builds"; while [ "$1" != -o ]; do shift; done; echo made > "$2"'
    write_program(go, script)
    environment = environment_with(tmp_path, go.parent)
    for _ in range(2):
        built = Path(find_kubectl(environment))
        assert built.read_text() == "made\n"
    assert (tmp_path / "builds").read_text() == "x\n"
    assert sorted(entry.name for entry in built.parent.iterdir()) == ["kubectl", "lock"]


def test_a_failed_build_leaves_no_file_and_reports_the_cause(tmp_path: Path) -> None:
    write_program(tmp_path / "bin" / "go", "echo no module proxy >&2; exit 1")
    environment = environment_with(tmp_path, tmp_path / "bin")
    with pytest.raises(NoKubectl, match="no module proxy"):
        find_kubectl(environment)
    assert not cached_program(environment).exists()


def test_without_kubectl_and_go_the_error_names_go(tmp_path: Path) -> None:
    with pytest.raises(NoKubectl, match="cannot build kubectl: go is not installed"):
        find_kubectl(environment_with(tmp_path, tmp_path))
