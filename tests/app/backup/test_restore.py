"""A restore that is killed at any time leaves either the old or the new state."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from datum_compute.app.backup.archive import Archive, Part
from datum_compute.app.backup.backup import read_planes
from datum_compute.app.backup.restore import VERSION_JUMP, finish_restore, holding, restore
from datum_compute.store.journal import JournalError, LoadedPlane
from datum_compute.store.sqlite import write_database
from tests.app.backup.test_backup import archive_of

STAMP = "20261115T000000Z"
_TOUCHES = frozenset(
    {"os.rename", "os.remove", "os.rmdir", "os.mkdir", "open", "sqlite3.connect", "os.chmod"}
)
_left = -1  # file operations until a forked child is killed; -1: no limit


def _exit_after_last_operation(event: str, _arguments: tuple[object, ...]) -> None:
    global _left
    if _left >= 0 and event in _TOUCHES:
        if _left == 0:
            os._exit(9)  # like kill -9: no cleanup
        _left -= 1


sys.addaudithook(_exit_after_last_operation)


def killed_after(touches: int, work: Callable[[], object]) -> bool:
    """Run the work in a child process that is killed after this number of file operations."""
    global _left
    child = os.fork()
    if child == 0:
        _left = touches
        work()
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def with_cell(archive: Archive, name: str) -> Archive:
    cell = Part(name, {f"cell/{name}": LoadedPlane(4, {})}, {"cell.key": b"of the cell"})
    return replace(archive, parts=(*archive.parts, cell))


def create_state(state: Path, archive: Archive) -> None:
    """Create the state directory of a stopped platform."""
    state.mkdir(mode=0o700)
    for part in archive.parts:
        folder = state / "cells" / part.name if part.name else state
        folder.mkdir(parents=True, exist_ok=True)
        write_database(folder / "store.db", part.planes)
        for name, content in part.files.items():
            (folder / name).write_bytes(content)
    (state / "kubeconfig").write_text("old")
    (state / "machines-cell-dfw.json").write_text("{}")
    (state / "mine.txt").write_text("of another program")


def ahead(part: Part) -> dict[str, LoadedPlane]:
    return {n: replace(p, version=p.version + VERSION_JUMP) for n, p in part.planes.items()}


def planes_in(folder: Path) -> dict[str, LoadedPlane]:
    return asyncio.run(read_planes(folder / "store.db"))


def holds(folder: Path, part: Part, planes: dict[str, LoadedPlane]) -> bool:
    kept = {name: (folder / name).read_bytes() for name in part.files if (folder / name).exists()}
    return kept == part.files and planes_in(folder) == planes


def finish(state: Path) -> None:
    with holding(state):
        finish_restore(state)


def test_the_old_state_is_set_aside(tmp_path: Path) -> None:
    old, new = archive_of("web"), archive_of("web", "api", token="new")
    state = tmp_path / "state"
    create_state(state, old)
    with holding(state):
        aside = restore(state, new, STAMP)
    assert aside == state / f"before-restore-{STAMP}"
    assert holds(state, new.parts[0], ahead(new.parts[0]))
    assert holds(aside, old.parts[0], dict(old.parts[0].planes))
    assert (aside / "kubeconfig").read_text() == "old"
    assert not (state / "kubeconfig").exists(), "the next start writes it"
    assert (state / "mine.txt").read_text() == "of another program"
    assert (state / "machines-cell-dfw.json").exists(), "running machines are not restored"


def test_restored_files_are_private(tmp_path: Path) -> None:
    state = tmp_path / "state"
    create_state(state, archive_of("web"))
    with holding(state):
        aside = restore(state, with_cell(archive_of("api"), "dfw"), STAMP)
    assert aside is not None
    for folder in (state, state / "cells" / "dfw", aside):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    for file in (state / "tokens.json", state / "store.db", state / "cells/dfw/cell.key"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_nothing_is_set_aside_in_an_empty_directory(tmp_path: Path) -> None:
    state, new = tmp_path / "state", archive_of("web")
    state.mkdir()
    with holding(state):
        assert restore(state, new, STAMP) is None
    assert holds(state, new.parts[0], ahead(new.parts[0]))
    assert not list(state.glob(".restore*"))


def test_a_second_restore_keeps_the_state_that_the_first_set_aside(tmp_path: Path) -> None:
    state = tmp_path / "state"
    create_state(state, archive_of("first"))
    with holding(state):
        one = restore(state, archive_of("second"), STAMP)
        two = restore(state, archive_of("third"), STAMP)
    assert one is not None
    assert one != two
    assert planes_in(one) == archive_of("first").parts[0].planes


def test_a_cell_that_joined_after_the_backup_is_set_aside(tmp_path: Path) -> None:
    state = tmp_path / "state"
    create_state(state, with_cell(with_cell(archive_of("web"), "dfw"), "lhr"))
    with holding(state):
        aside = restore(state, with_cell(archive_of("web"), "dfw"), STAMP)
    assert aside is not None
    assert [path.name for path in (state / "cells").iterdir()] == ["dfw"]
    assert (aside / "cells" / "lhr" / "cell.key").exists()


def test_a_directory_in_use_is_not_changed(tmp_path: Path) -> None:
    state = tmp_path / "state"
    create_state(state, with_cell(archive_of("web"), "dfw"))
    with holding(state), pytest.raises(JournalError, match="in use by another"), holding(state):
        pass
    with (
        holding(state / "cells" / "dfw"),
        holding(state),
        pytest.raises(JournalError, match="in use"),
    ):
        restore(state, archive_of("api"), STAMP)


@pytest.mark.crash
def test_a_restore_killed_at_any_operation_leaves_the_old_or_the_new_state(tmp_path: Path) -> None:
    old = with_cell(archive_of("web"), "dfw")
    new = with_cell(archive_of("web", "api", token="new"), "dfw")
    outcomes = []
    for touches in range(1000):
        state = tmp_path / str(touches)
        create_state(state, old)
        with holding(state):
            killed = killed_after(touches, lambda: restore(state, new, STAMP))  # noqa: B023
        # The process that finishes the restore may be killed as well.
        killed_after(touches % 13, lambda: finish(state))  # noqa: B023
        finish(state)
        outcomes.append(_outcome(state, old, new))
        if not killed:
            break
    assert (outcomes[0], outcomes[-1]) == ("old", "new")
    assert outcomes == sorted(outcomes, reverse=True), (
        "after one operation it is always the new state"
    )
    assert outcomes.count("new") > 10, "many kills happen after that operation"


def _outcome(state: Path, old: Archive, new: Archive) -> str:
    assert not list(state.glob(".restore*"))
    assert (state / "mine.txt").exists()
    aside, cell = state / f"before-restore-{STAMP}", state / "cells" / "dfw"
    for archive, name in ((old, "old"), (new, "new")):
        center, of_cell = archive.parts
        planes = ahead if name == "new" else lambda p: dict(p.planes)
        if holds(state, center, planes(center)) and holds(cell, of_cell, planes(of_cell)):
            if name == "new":
                assert holds(aside, old.parts[0], dict(old.parts[0].planes))
            return name
    raise AssertionError("neither the old state nor the new one")
