"""The plugin host finds, lists and runs plugins."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import datumctl
from datum_compute import __version__

HOST = Path(datumctl.__file__)


def program(path: Path, script: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o700)


def run(
    *arguments: str, path: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(HOST), *arguments],
        capture_output=True,
        text=True,
        env={"PATH": path},
        cwd=cwd,
    )


def test_a_plugin_on_path_gets_the_arguments_and_its_exit_code_is_returned(tmp_path: Path) -> None:
    program(tmp_path / "datumctl-hello", 'echo "$0 $*"; exit 7')
    done = run("hello", "a b", "--help", path=str(tmp_path))
    assert (done.returncode, done.stdout) == (7, f"{tmp_path}/datumctl-hello a b --help\n")


def test_the_first_directory_wins(tmp_path: Path) -> None:
    for name in ("one", "two"):
        program(tmp_path / name / "datumctl-hello", f"echo {name}")
    path = os.pathsep.join(str(tmp_path / name) for name in ("gone", "one", "two"))
    assert run("hello", path=path).stdout == "one\n"


def test_a_plugin_beside_the_host_needs_no_path(tmp_path: Path) -> None:
    host = tmp_path / "bin" / "datumctl"
    program(tmp_path / "bin" / "datumctl-hello", "echo beside")
    host.write_text(HOST.read_text())
    (tmp_path / "link").symlink_to(host)
    for called in (host, tmp_path / "link"):
        done = subprocess.run(
            [sys.executable, str(called), "hello"], capture_output=True, text=True, env={}
        )
        assert done.stdout == "beside\n"


def test_help_lists_the_plugins_found(tmp_path: Path) -> None:
    program(tmp_path / "datumctl-hello", "")
    (tmp_path / "datumctl-notes.txt").write_text("not a program")
    for arguments in ([], ["--help"]):
        done = run(*arguments, path=str(tmp_path))
        assert done.returncode == 0
        assert "  hello\n" in done.stdout
        assert "notes" not in done.stdout


def test_an_unknown_plugin_is_reported_with_the_program_name(tmp_path: Path) -> None:
    program(tmp_path / "datumctl-hello", "")
    done = run("helo", path=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "datumctl-helo" in done.stderr
    assert "hello" in done.stderr


def test_plugins_are_not_run_from_the_working_directory(tmp_path: Path) -> None:
    program(tmp_path / "datumctl-evil", "echo evil")
    for path in (".", "", f":{os.pathsep}"):
        assert run("evil", path=path, cwd=tmp_path).returncode == 2
    assert run("../" + tmp_path.name + "/datumctl-evil", path="/usr/bin").returncode == 2


def test_a_plugin_that_cannot_be_executed_is_an_error_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "datumctl-broken").write_text("#!/nowhere/interpreter\n")
    (tmp_path / "datumctl-broken").chmod(0o700)
    done = run("broken", path=str(tmp_path))
    assert done.returncode == 1
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_the_host_program_imports_few_modules() -> None:
    script = (
        "import sys; before = set(sys.modules); import datumctl;"
        "print(len(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert int(done.stdout) <= 2  # itself and __future__


def test_version_works_as_command_and_as_flag(tmp_path: Path) -> None:
    for word in ("--version", "version"):
        done = run(word, path=str(tmp_path))
        assert (done.returncode, done.stdout) == (0, f"datumctl {__version__}\n")


def test_a_plugin_named_version_replaces_the_command_but_not_the_flag(tmp_path: Path) -> None:
    program(tmp_path / "datumctl-version", "echo plugin")
    assert run("version", path=str(tmp_path)).stdout == "plugin\n"
    assert run("--version", path=str(tmp_path)).stdout == f"datumctl {__version__}\n"
