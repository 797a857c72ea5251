"""``local backup`` and ``local restore`` of a stopped platform, and their errors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from datum_compute.app.backup.archive import read_archive, write_archive
from datum_compute.app.backup.restore import holding
from tests.app.backup.test_backup import archive_of
from tests.app.backup.test_restore import create_state, planes_in
from tests.cli.runner import CliRunner


@pytest.fixture
def cli(tmp_path: Path) -> CliRunner:
    return CliRunner(tmp_path)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    create_state(tmp_path / "state", archive_of("web"))
    return tmp_path / "state"


def test_a_platform_that_is_down_is_backed_up_and_restored(cli: CliRunner, state: Path) -> None:
    assert cli.run("local", "backup", "a.backup", f"--state-dir={state}") == 0, cli.err
    assert "while stopped: 1 objects of 2 planes" in cli.out
    assert read_archive(cli.home / "a.backup").parts == archive_of("web").parts
    other = cli.home / "other"
    assert cli.run("local", "restore", "a.backup", f"--state-dir={other}") == 0, cli.err
    assert (
        planes_in(other)["project/default"].objects == planes_in(state)["project/default"].objects
    )
    assert "secret" not in cli.out + cli.err


def test_a_platform_is_not_replaced_without_confirmation(cli: CliRunner, state: Path) -> None:
    write_archive(cli.home / "a.backup", archive_of("api"))
    before = planes_in(state)
    assert cli.run("local", "restore", "a.backup", f"--state-dir={state}") == 2
    assert "-y" in cli.err
    assert planes_in(state) == before
    assert cli.run("local", "restore", "a.backup", f"--state-dir={state}", "-y") == 0
    assert planes_in(state) != before
    assert "before-restore-" in cli.err


def test_a_backup_is_not_replaced_without_confirmation(cli: CliRunner, state: Path) -> None:
    (cli.home / "a.backup").write_text("mine")
    assert cli.run("local", "backup", "a.backup", f"--state-dir={state}") == 2
    assert (cli.home / "a.backup").read_text() == "mine"
    assert cli.run("local", "backup", "a.backup", f"--state-dir={state}", "-y") == 0


def test_a_backup_without_a_platform_is_an_error(cli: CliRunner) -> None:
    assert cli.run("local", "backup", "a.backup", f"--state-dir={cli.home}/none") == 3
    assert not (cli.home / "a.backup").exists()


def test_restoring_a_missing_or_invalid_file_changes_nothing(cli: CliRunner, state: Path) -> None:
    before = planes_in(state)
    (cli.home / "text").write_text("text")
    assert cli.run("local", "restore", "none", f"--state-dir={state}", "-y") == 3
    assert cli.run("local", "restore", "text", f"--state-dir={state}", "-y") == 2
    assert "not a backup" in cli.err
    assert planes_in(state) == before


def test_a_damaged_file_is_reported_before_a_restore_replaces_anything(
    cli: CliRunner, state: Path
) -> None:
    before, whole = planes_in(state), archive_of("api")
    (part,) = whole.parts
    damaged = replace(part, files={**part.files, "server.crt": b"cut sh"})
    write_archive(cli.home / "a.backup", replace(whole, parts=(damaged,)))
    assert cli.run("local", "restore", "a.backup", f"--state-dir={state}", "-y") == 2
    assert "server.crt is damaged: it does not contain a valid certificate" in cli.err
    assert planes_in(state) == before
    (state / "server.crt").write_bytes(b"cut sh")
    assert cli.run("local", "backup", "b.backup", f"--state-dir={state}") == 1
    assert "server.crt is damaged" in cli.err
    assert not (cli.home / "b.backup").exists()


@pytest.mark.parametrize("verb", ["backup", "restore"])
def test_a_missing_file_argument_is_reported(cli: CliRunner, state: Path, verb: str) -> None:
    assert cli.run("local", verb, "", f"--state-dir={state}") == 2
    assert "FILE is empty" in cli.err


def test_a_directory_in_use_is_neither_backed_up_offline_nor_restored(
    cli: CliRunner, state: Path
) -> None:
    write_archive(cli.home / "a.backup", archive_of("api"))
    with holding(state):
        assert cli.run("local", "backup", "b.backup", f"--state-dir={state}") == 1
        assert "in use by another process" in cli.err
        assert cli.run("local", "restore", "a.backup", f"--state-dir={state}", "-y") == 1
        assert "in use by another process" in cli.err
    assert not (cli.home / "b.backup").exists()


def test_reset_removes_directories_left_by_restores(cli: CliRunner, state: Path) -> None:
    write_archive(cli.home / "a.backup", archive_of("api"))
    assert cli.run("local", "restore", "a.backup", f"--state-dir={state}", "-y") == 0
    assert cli.run("local", "reset", f"--state-dir={state}", "-y") == 0
    assert not list(state.glob("before-restore-*"))
