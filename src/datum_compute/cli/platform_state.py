"""The files of the local platform, as the command line sees them: its log to read, all to delete.

Deleting takes only what the platform itself writes, by name, so that a state directory that was
pointed at the wrong place loses nothing of its owner's.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from datum_compute.cli.errors import OtherError

_DATABASE = "store.db"
_OURS = (
    *(f"{_DATABASE}*", "store.lock"),
    *("tokens.json", "server.json", "port.json", "cells.json", "chaos.json", "driver.json"),
    "machines-*.json",
    *("ca.crt", "ca.key", "server.crt", "server.key", "service-accounts.key"),
    *("kubeconfig", "manager.kubeconfig", "audit.log*", "server.log*", ".*.new"),
    *("driver.json", "membership.json", "cell.key", "cell.crt", "hub-ca.crt"),
)
# What restores leave behind: the state of before, and folders of one that was interrupted.
_OUR_FOLDERS = ("before-restore-*", ".restore-*")


def log_file(state_dir: Path) -> Path:
    return state_dir / "server.log"


class LogReader:
    """Reads whole lines, each once; a restart puts a new file in the place of the old one."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._inode = 0
        self._offset = 0

    def added(self) -> list[str]:
        """What is there since the last call; from the beginning at first."""
        try:
            file = self._log.open("rb")
        except FileNotFoundError:  # in the middle of being replaced
            return []
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._offset:
                self._inode, self._offset = found.st_ino, 0
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return whole.decode(errors="replace").split("\n") if newline else []


def holds_a_platform(state_dir: Path) -> bool:
    return any((state_dir / name).exists() for name in (_DATABASE, "tokens.json"))


def remove_state(state_dir: Path) -> None:
    """The database goes last: after a crash in between, the command can be run again."""
    try:
        for path in sorted(_files(state_dir), key=lambda path: path.name.startswith(_DATABASE)):
            path.unlink(missing_ok=True)
        for pattern in _OUR_FOLDERS:
            for folder in state_dir.glob(pattern):
                shutil.rmtree(folder)
        cells = state_dir / "cells"
        if cells.is_dir() and not any(cells.iterdir()):
            cells.rmdir()
        if not any(state_dir.iterdir()):
            state_dir.rmdir()
    except OSError as error:
        raise OtherError(f"{error.filename} cannot be deleted: {error.strerror}.") from error


def _files(state_dir: Path) -> Iterator[Path]:
    for pattern in _OURS:
        yield from (path for path in state_dir.glob(pattern) if path.is_file())
