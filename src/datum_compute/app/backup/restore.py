"""Replace the content of a state directory with a backup. A crash leaves the old or the new state.

1. Build the new state beside the old one, in ``.restore-preparing``. A crash leaves the old state.
2. Rename that directory to ``.restore-ready``. From now on the new state is valid.
3. Move the old files to ``before-restore-TIME``, and rename the directory to ``.restore-placing``.
4. Move the new files into place, and remove the empty directory.

``finish_restore`` continues an interrupted restore after step 2. The server calls it at startup,
and every restore calls it first. The remaining steps only rename files, so they need no disk space.

A restored store continues with much higher versions. A client that saw a version after the backup
could otherwise resume its watch at that version and miss changes. The gap makes it list again.
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
from datum_compute.app.state_directory import (
    ensure_private_directory,
    list_replaced_files,
    write_private,
)
from datum_compute.store.sqlite import lock_file, write_database

VERSION_JUMP = 1_000_000_000
ASIDE = "before-restore-"
_PREPARING, _READY, _PLACING = ".restore-preparing", ".restore-ready", ".restore-placing"
_NAME_OF_ASIDE = "aside"


@contextmanager
def holding(state: Path) -> Iterator[None]:
    """Lock the directory. Raise JournalError if another process holds the lock."""
    with ExitStack() as held:
        held.callback(os.close, lock_file(state / "store.lock"))
        yield


def restore(state: Path, archive: Archive, stamp: str) -> Path | None:
    """Restore the backup. Return the directory of the old state, or None if there was none.

    The caller holds the lock of the directory. Raise OSError or JournalError on failure. The old
    state is then unchanged, unless the restore had already reached step 2.
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
    """Complete an interrupted restore. Return the directory of the old state, if there is one.

    The caller holds the lock of the directory. This function locks the directories of its cells.
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
    ensure_private_directory(folder)
    for part in archive.parts:
        _build(_folder_of(folder, part.name), part)
    write_private(folder / _NAME_OF_ASIDE, aside.encode())


def _build(folder: Path, part: Part) -> None:
    ensure_private_directory(folder)
    ahead = {
        name: replace(plane, version=plane.version + VERSION_JUMP)
        for name, plane in part.planes.items()
    }
    write_database(folder / "store.db", ahead)
    for name, content in part.files.items():
        write_private(folder / name, content)
    _sync(folder.parent)


def _set_aside(state: Path) -> None:
    """Move all files of the old state away, before any new file is moved into place."""
    aside = _aside(state, _READY)
    assert aside is not None, "the ready directory is complete"
    for folder in (state, *_cells(state)):
        target = aside / folder.relative_to(state)
        for file in list_replaced_files(folder):
            ensure_private_directory(aside)
            ensure_private_directory(target)
            os.rename(file, target / file.name)
    for cell in _cells(state):
        if not _folder_of(state / _READY, cell.name).exists():
            # The cell joined after the backup, so the restored hub has no Cluster for the cell.
            _empty_into(cell, aside / cell.relative_to(state))


def _aside(state: Path, folder: str) -> Path | None:
    """Return the directory for the old state.

    Return None if the restore has moved all files and only has to remove its own directory.
    """
    with suppress(FileNotFoundError):
        return state / (state / folder / _NAME_OF_ASIDE).read_text()
    return None


def _empty_into(cell: Path, target: Path) -> None:
    for left in sorted(cell.iterdir()):
        if left.name != "store.lock":
            ensure_private_directory(target)
            os.rename(left, target / left.name)
    (cell / "store.lock").unlink(missing_ok=True)
    cell.rmdir()


def _place(state: Path) -> None:
    """Move the remaining new files into place and remove the restore directory."""
    placing = state / _PLACING
    for folder in (placing, *_cells(placing)):
        target = ensure_private_directory(state / folder.relative_to(placing))
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
