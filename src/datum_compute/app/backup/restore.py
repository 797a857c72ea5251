"""A backup in the place of what a state directory holds; a crash leaves the one or the other.

1. The new state is built beside the old one, in ``.restore-preparing``. A crash leaves the old.
2. That folder is renamed to ``.restore-ready``. From this moment the new state counts.
3. What was there is moved aside, into ``before-restore-TIME``, and the folder renamed to
   ``.restore-placing``.
4. Its files are moved into place, and the empty folder removed.

Whoever opens the directory next carries on from the step that was reached (``finish_restore``): the
server does at its start, and every restore. Only renames are left by then, which need no room.

Versions jump ahead in a restored store. Otherwise somebody who saw the lost time could go on with a
version of it and miss what came in its place; so everybody is told to list again.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from datum_compute.app.backup.archive import Archive, Part
from datum_compute.app.state_credentials import CELLS_DIRECTORY
from datum_compute.app.state_directory import private_directory, replaced_files, write_private
from datum_compute.store.sqlite import lock_file, write_database

VERSION_JUMP = 1_000_000_000
ASIDE = "before-restore-"
_PREPARING, _READY, _PLACING = ".restore-preparing", ".restore-ready", ".restore-placing"
_NAME_OF_ASIDE = "aside"


@contextmanager
def holding(state: Path) -> Iterator[None]:
    """Nobody else uses the directory meanwhile; raises JournalError if somebody does."""
    with ExitStack() as held:
        held.callback(os.close, lock_file(state / "store.lock"))
        yield


def restore(state: Path, archive: Archive, stamp: str) -> Path | None:
    """Put the backup in place, and answer where that of before is now; None if there was none.

    The caller holds the directory. Raises OSError or JournalError; unless the new state counts
    already, nothing has changed then.
    """
    finish_restore(state)
    folder = state / _PREPARING
    try:
        _prepare(folder, archive, _unused_name(state, stamp))
        os.rename(folder, state / _READY)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    _sync(state)
    return finish_restore(state)


def finish_restore(state: Path) -> Path | None:
    """Carry on with a restore that was interrupted; without one nothing happens.

    The caller holds the directory; those of cells below it are held here.
    """
    shutil.rmtree(state / _PREPARING, ignore_errors=True)
    if not (state / _READY).exists() and not (state / _PLACING).exists():
        return None
    with ExitStack() as held:
        for cell in _cells(state):
            held.enter_context(holding(cell))
        if (state / _READY).exists():
            _set_aside(state)
            os.rename(state / _READY, state / _PLACING)
            _sync(state)
        aside = _aside(state, _PLACING)
        _place(state)
    return aside if aside is not None and aside.exists() else None


def is_interrupted(state: Path) -> bool:
    return (state / _READY).exists() or (state / _PLACING).exists()


def _prepare(folder: Path, archive: Archive, aside: str) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    private_directory(folder)
    for part in archive.parts:
        _build(_folder_of(folder, part.name), part)
    write_private(folder / _NAME_OF_ASIDE, aside.encode())


def _build(folder: Path, part: Part) -> None:
    private_directory(folder)
    ahead = {
        name: replace(plane, version=plane.version + VERSION_JUMP)
        for name, plane in part.planes.items()
    }
    write_database(folder / "store.db", ahead)
    for name, content in part.files.items():
        write_private(folder / name, content)
    _sync(folder.parent)


def _set_aside(state: Path) -> None:
    """Every file of the old state that is still there; no new one is in place before all are."""
    aside = _aside(state, _READY)
    assert aside is not None, "a folder that is ready is whole"
    for folder in (state, *_cells(state)):
        target = aside / folder.relative_to(state)
        for file in replaced_files(folder):
            private_directory(aside)
            private_directory(target)
            os.rename(file, target / file.name)
    for cell in _cells(state):
        if not _folder_of(state / _READY, cell.name).exists():
            # It joined later. Without its credentials it would only be in the way.
            _empty_into(cell, aside / cell.relative_to(state))


def _aside(state: Path, folder: str) -> Path | None:
    """Where the old state goes; not known any more when all is in place and only the folder is
    left to remove."""
    with suppress(FileNotFoundError):
        return state / (state / folder / _NAME_OF_ASIDE).read_text()
    return None


def _empty_into(cell: Path, target: Path) -> None:
    for left in sorted(cell.iterdir()):
        if left.name != "store.lock":
            private_directory(target)
            os.rename(left, target / left.name)
    (cell / "store.lock").unlink(missing_ok=True)
    cell.rmdir()


def _place(state: Path) -> None:
    """Move what is still to be moved; the name of the old state's folder goes with the folder."""
    placing = state / _PLACING
    for folder in (placing, *_cells(placing)):
        target = private_directory(state / folder.relative_to(placing))
        for file in sorted(folder.iterdir()):
            if file.is_file() and file.name != _NAME_OF_ASIDE:
                os.replace(file, target / file.name)
        _sync(target)
    shutil.rmtree(placing)
    _sync(state)


def _folder_of(root: Path, part: str) -> Path:
    return root / CELLS_DIRECTORY / part if part else root


def _cells(root: Path) -> list[Path]:
    return sorted(path for path in (root / CELLS_DIRECTORY).glob("*") if path.is_dir())


def _unused_name(state: Path, stamp: str) -> str:
    names = (f"{ASIDE}{stamp}{more}" for more in ("", *(f"-{n}" for n in range(2, 1000))))
    return next(name for name in names if not (state / name).exists())


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
