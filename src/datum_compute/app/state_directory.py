"""Files of the state directory. They are private and replaced atomically."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from datum_compute.api.meta.codec import DecodeError, decode_as, encode
from datum_compute.api.planes import PlaneName, cell_plane, member_name

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
_FREE_BYTES_MIN = 64 * 1024


class StateError(Exception):
    """A file of the state directory is not usable. The message names the file and the remedy."""


def ensure_private_directory(path: Path) -> Path:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """Replace the file atomically and sync it to disk. Only its owner can read it."""
    _replace(path, content, sync=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_without_sync(path: Path, content: bytes) -> None:
    """Replace the file like ``write_private``, but do not sync it to disk.

    The content survives a crash of this process. A crash of the machine may restore the old content
    or leave an empty file.
    """
    _replace(path, content, sync=False)


def _replace(path: Path, content: bytes, *, sync: bool) -> None:
    draft = path.with_name(f".{path.name}.new")
    try:
        handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        draft.replace(path)
    except OSError:
        with suppress(OSError):
            draft.unlink(missing_ok=True)
        raise


def replace_or_overwrite(path: Path, content: bytes) -> None:
    """Replace the file like ``write_private``, or overwrite it in place if the disk is full.

    A crash during an overwrite leaves partial content. Readers must detect partial content.
    """
    try:
        write_private(path, content)
    except OSError as error:
        if error.errno not in _DISK_FULL or not path.exists():
            raise
        handle = os.open(path, os.O_WRONLY)
        with os.fdopen(handle, "wb") as file:
            file.write(content.ljust(path.stat().st_size))


def describe_disk_problem(directory: Path) -> str:
    """Return why the directory is not writable, or an empty string if it is."""
    existing = next(path for path in (directory, *directory.parents) if path.exists())
    return describe_statvfs_problem(directory, os.statvfs(existing))


def describe_statvfs_problem(directory: Path, disk: os.statvfs_result) -> str:
    """Return why a disk with these statistics is not writable, or an empty string if it is."""
    if disk.f_flag & os.ST_RDONLY:
        return f"the disk that holds {directory} is read-only"
    free = disk.f_bavail * disk.f_frsize
    if disk.f_blocks and free < _FREE_BYTES_MIN:  # some file systems report a size of 0
        return f"the disk that holds {directory} is full ({free} bytes free)"
    return ""


# --- Settings of the last run, which are the defaults of the next one
# An unreadable port or list of cells is ignored. An unreadable driver is an error: a different
# driver would not manage the instances that are running. A file is only written when it changes.


DRIVERS = ("containers", "simulated")


def read_last_port(state: Path) -> int:
    """Return the port of the last run, or 0 if it is unknown."""
    try:
        port = decode_as((state / "port.json").read_bytes(), dict[str, int]).get("port", 0)
    except (OSError, DecodeError):
        return 0
    return port if 0 < port < 65536 else 0


def save_port(state: Path, port: int) -> None:
    if read_last_port(state) != port:
        write_private(state / "port.json", encode({"port": port}))


def read_last_driver(state: Path) -> tuple[str, str]:
    """Return the driver of the last run and the socket of its engine, or empty strings."""
    path = state / "driver.json"
    try:
        found = decode_as(path.read_bytes(), dict[str, str])
        if found.get("driver") not in DRIVERS:
            raise DecodeError(f"the driver is not one of {', '.join(DRIVERS)}")
    except FileNotFoundError:
        return "", ""
    except (OSError, DecodeError) as error:
        raise StateError(
            f"{path} is damaged ({error}). The file contains the driver of the instances: set the "
            "driver with --driver containers or --driver simulated"
        ) from error
    return found["driver"], found.get("engine", "")


def save_driver(state: Path, driver: str, engine: str) -> None:
    path, content = state / "driver.json", encode({"driver": driver, "engine": engine})
    if not path.is_file() or path.read_bytes() != content:
        write_private(path, content)


def read_last_cells(state: Path) -> tuple[PlaneName, ...]:
    """Return the cells of the last run, or none if they are unknown."""
    try:
        names = decode_as((state / "cells.json").read_bytes(), dict[str, list[str]])
        return tuple(cell_plane(name) for name in dict.fromkeys(names.get("cells", [])))
    except (OSError, DecodeError, ValueError):
        return ()


def save_cells(state: Path, cells: Sequence[PlaneName]) -> None:
    if read_last_cells(state) != tuple(cells):
        names = [member_name(cell) for cell in cells]
        write_private(state / "cells.json", encode({"cells": names}))


# --- The files that a backup contains besides the database
# A backup contains the files that cannot be created again: credentials and settings. It omits files
# that the next start writes (kubeconfigs, the announcement), logs, and records of running machines,
# which would be outdated after a restore.


BACKUP_FILES = (
    *("tokens.json", "ca.crt", "ca.key", "server.crt", "server.key", "service-accounts.key"),
    *("port.json", "cells.json", "driver.json"),
    *("membership.json", "cell.key", "cell.crt", "hub-ca.crt"),
)
# The files that a restore moves away.
_REPLACED_BY_RESTORE = (
    *BACKUP_FILES,
    *("store.db", "store.db-*", "kubeconfig", "manager.kubeconfig", "chaos.json"),
)


def require_database(state: Path) -> None:
    """Raise StateError if the database of an initialized state directory is missing.

    The kubeconfig is written when the server has become ready, so its presence shows that there was
    a database. With an empty database, the driver would remove all running machines as orphans.
    """
    database = state / "store.db"
    if (state / "kubeconfig").exists() and not database.exists():
        raise StateError(
            f"{database}, which contains all objects, is missing; restore a backup "
            "(datumctl compute local restore FILE), or start over (datumctl compute local reset)"
        )


def is_backup_file(name: str) -> bool:
    return name in BACKUP_FILES


def read_backup_files(state: Path) -> dict[str, bytes]:
    return {name: (state / name).read_bytes() for name in BACKUP_FILES if (state / name).is_file()}


def list_replaced_files(state: Path) -> list[Path]:
    """Return the files that a restore moves away, which do not include the lock file."""
    if not state.is_dir():
        return []
    return sorted(
        path
        for path in state.iterdir()
        if path.is_file() and any(fnmatchcase(path.name, name) for name in _REPLACED_BY_RESTORE)
    )
