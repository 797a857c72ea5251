"""A file that is written at most once per interval, however often its content changes.

The first change after a quiet interval is written before the call returns. Later changes are
written together at the end of the interval. These writes do not wait for the disk: with many
processes on one disk, waiting would take longer than all other work.

A process that is killed loses the changes of one interval, and a machine that crashes may lose
more. Controllers repair that: they start a machine again if the file does not contain it, and
remove a machine again if the file still contains it. A process that ends normally writes the last
state to the disk.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from pathlib import Path

from datum_compute.app.state_directory import write_private, write_without_sync

INTERVAL_S = 0.25

_log = logging.getLogger(__name__)

Write = Callable[[Path, bytes], None]


class DebouncedFile:
    """Call the object after each change. ``content`` returns the content to write.

    If the first write fails, the call raises OSError. With ``must_write_first=False`` it does not,
    and the write is repeated after each interval like any other.
    """

    def __init__(
        self,
        path: Path,
        content: Callable[[], bytes],
        interval_s: float = INTERVAL_S,
        *,
        write: Write = write_without_sync,
        write_synced: Write = write_private,
        must_write_first: bool = True,
    ) -> None:
        self._path = path
        self._content = content
        self._interval_s = interval_s
        self._write = write
        self._write_synced = write_synced
        self._must_write_first = must_write_first
        self._task: asyncio.Task[None] | None = None
        self._is_changed = False

    def __call__(self) -> None:
        if self._task is not None:
            self._is_changed = True
            return
        try:
            self._write(self._path, self._content())
        except OSError:
            if self._must_write_first:
                raise
            self._is_changed = True
        self._task = asyncio.get_running_loop().create_task(self._write_changes())

    def write_now(self) -> None:
        """Write to the disk before returning, for changes that must not be lost."""
        self._is_changed = False
        self._write_synced(self._path, self._content())

    async def _write_changes(self) -> None:
        """Write the changes of each interval, until an interval has none."""
        try:
            await asyncio.sleep(self._interval_s)
            while self._is_changed:
                self._is_changed = False
                try:
                    self._write(self._path, self._content())
                except OSError as error:
                    _log.warning("cannot write %s, retrying: %s", self._path, error)
                    self._is_changed = True
                await asyncio.sleep(self._interval_s)
        finally:
            self._task = None
            if self._is_changed:  # cancelled, because the process ends
                self.write_now()
