"""Files of the state directory: private, and either the old or the new content after a crash."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_ROOM_MIN = 64 * 1024


class StateError(Exception):
    """A file of the state directory cannot be used; the message says which and what to do."""


def private_directory(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """Replace the file at once; it is on disk, readable by its owner only, when this returns."""
    _replace(path, content, is_lasting=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_passing(path: Path, content: bytes) -> None:
    """As ``write_private``, without waiting for the disk: the end of this process does no harm to
    it, that of the machine may take it back, or leave an empty file."""
    _replace(path, content, is_lasting=False)


def _replace(path: Path, content: bytes, *, is_lasting: bool) -> None:
    draft = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if is_lasting:
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def write_over(path: Path, content: bytes) -> None:
    """As ``write_private``; on a full disk the file is written where it lies, which needs no room.
    Only for what readers can tell from half of it: a crash may leave that."""
    try:
        write_private(path, content)
    except OSError as error:
        if error.errno not in _NO_ROOM or not path.exists():
            raise
        handle = os.open(path, os.O_WRONLY)
        with os.fdopen(handle, "wb") as file:
            file.write(content.ljust(path.stat().st_size))


def disk_trouble(directory: Path) -> str:
    """What keeps anything from being written to a directory, in words; empty if nothing does."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return trouble_of(directory, os.statvfs(there))


def trouble_of(directory: Path, disk: os.statvfs_result) -> str:
    if disk.f_flag & os.ST_RDONLY:
        return f"the disk that holds {directory} is read-only"
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < _ROOM_MIN:  # some file systems do not say how large they are
        return f"the disk that holds {directory} is full ({free} bytes free)"
    return ""
