"""Files of the state directory: private, and either the old or the new content after a crash."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from datum_compute.api.meta.codec import DecodeError, decode_as, encode
from datum_compute.api.planes import PlaneName, cell_plane, member_name

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


def write_without_sync(path: Path, content: bytes) -> None:
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


def overwrite_private(path: Path, content: bytes) -> None:
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


def describe_disk_problem(directory: Path) -> str:
    """What keeps anything from being written to a directory, in words; empty if nothing does."""
    there = next(path for path in (directory, *directory.parents) if path.exists())
    return describe_problem(directory, os.statvfs(there))


def describe_problem(directory: Path, disk: os.statvfs_result) -> str:
    if disk.f_flag & os.ST_RDONLY:
        return f"the disk that holds {directory} is read-only"
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < _ROOM_MIN:  # some file systems do not say how large they are
        return f"the disk that holds {directory} is full ({free} bytes free)"
    return ""


# --- What the last run of a state directory chose, so that the next one need not be told
# Port and cells are hints: what cannot be read of them is as good as nothing. The driver is not:
# with another one, what runs would be nobody's. A file is written only when it changes.


DRIVERS = ("containers", "simulated")


def remembered_port(state: Path) -> int:
    """The port it listened on; 0 if nobody knows."""
    try:
        port = decode_as((state / "port.json").read_bytes(), dict[str, int]).get("port", 0)
    except (OSError, DecodeError):
        return 0
    return port if 0 < port < 65536 else 0


def remember_port(state: Path, port: int) -> None:
    if remembered_port(state) != port:
        write_private(state / "port.json", encode({"port": port}))


def remembered_driver(state: Path) -> tuple[str, str]:
    """What ran its instances, and the socket of its engine; empty if there was no run yet."""
    path = state / "driver.json"
    try:
        found = decode_as(path.read_bytes(), dict[str, str])
        if found.get("driver") not in DRIVERS:
            raise DecodeError(f"it names none of {', '.join(DRIVERS)}")
    except FileNotFoundError:
        return "", ""
    except (OSError, DecodeError) as error:
        raise StateError(
            f"{path} is damaged ({error}). It says what runs the instances: say it with --driver "
            "containers or --driver simulated, as it was"
        ) from error
    return found["driver"], found.get("engine", "")


def remember_driver(state: Path, driver: str, engine: str) -> None:
    path, content = state / "driver.json", encode({"driver": driver, "engine": engine})
    if not path.is_file() or path.read_bytes() != content:
        write_private(path, content)


def remembered_cells(state: Path) -> tuple[PlaneName, ...]:
    """The cells it had; none if nobody knows."""
    try:
        names = decode_as((state / "cells.json").read_bytes(), dict[str, list[str]])
        return tuple(cell_plane(name) for name in dict.fromkeys(names.get("cells", [])))
    except (OSError, DecodeError, ValueError):
        return ()


def remember_cells(state: Path, cells: Sequence[PlaneName]) -> None:
    if remembered_cells(state) != tuple(cells):
        names = [member_name(cell) for cell in cells]
        write_private(state / "cells.json", encode({"cells": names}))


# --- Which files a state directory holds besides the database, and which of them a backup keeps
# Kept is what cannot be made anew: who is trusted, and what was chosen. Not kept is what the next
# start writes (kubeconfigs, the announcement), what tells of the past (logs), and what describes
# the machines that run at this moment: a backup of that would be a lie by the time it is restored.


KEPT = (
    *("tokens.json", "ca.crt", "ca.key", "server.crt", "server.key", "service-accounts.key"),
    *("port.json", "cells.json", "driver.json"),
    *("membership.json", "cell.key", "cell.crt", "hub-ca.crt"),
)
# Beside these, what a restored state takes the place of.
REPLACED = (*KEPT, "store.db", "store.db-*", "kubeconfig", "manager.kubeconfig", "chaos.json")


def require_database(state: Path) -> None:
    """Who was ready once, and told so in its kubeconfig, had a database. With an empty one in its
    place every machine that runs would be nobody's, and be removed."""
    database = state / "store.db"
    if (state / "kubeconfig").exists() and not database.exists():
        raise StateError(
            f"{database} is gone, and with it all that is known here; restore it from a backup "
            "(datumctl compute local restore FILE), or begin anew (datumctl compute local reset)"
        )


def is_kept(name: str) -> bool:
    return name in KEPT


def kept_files(state: Path) -> dict[str, bytes]:
    return {name: (state / name).read_bytes() for name in KEPT if (state / name).is_file()}


def replaced_files(state: Path) -> list[Path]:
    """Those of a state that a restore sets aside. The lock stays: it is being held."""
    if not state.is_dir():
        return []
    return sorted(
        path
        for path in state.iterdir()
        if path.is_file() and any(fnmatchcase(path.name, name) for name in REPLACED)
    )
