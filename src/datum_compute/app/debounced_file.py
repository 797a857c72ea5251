"""A file that many changes ask to be written, and that is written now and then.

The first change after a quiet time is in the file when the call returns, those that follow are
written together a moment later. The disk is not waited for before it is quiet again, and then on
another thread: to wait takes longer than all else that a process does in that time, and with many
processes on one disk it is what all of them would wait for.

What a crash takes away in that moment is made good by the controllers: a machine that is not in the
file is started again, one that should have gone is removed again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from threading import Lock

from datum_compute.app.state_directory import write_passing, write_private

SAVE_EVERY_S = 0.25

_log = logging.getLogger(__name__)

Write = Callable[[Path, bytes], None]
Apart = Callable[[Callable[[], None]], Awaitable[None]]


class DebouncedFile:
    """``content`` is asked for where the changes are made; writes also run elsewhere."""

    def __init__(
        self,
        path: Path,
        content: Callable[[], bytes],
        pause_s: float = SAVE_EVERY_S,
        *,
        passing: Write = write_passing,
        lasting: Write = write_private,
        apart: Apart = asyncio.to_thread,
    ) -> None:
        self._path = path
        self._content = content
        self._pause_s = pause_s
        self._passing = passing
        self._lasting = lasting
        self._apart = apart
        self._pausing: asyncio.Task[None] | None = None
        self._wanted = False
        self._lock = Lock()
        self._asked = 0
        self._written = 0

    def __call__(self) -> None:
        if self._pausing is not None:
            self._wanted = True
            return
        self._next(self._passing)()
        self._pausing = asyncio.get_running_loop().create_task(self._go_on())

    def now(self) -> None:
        """For what must not be lost: done when this returns."""
        self._wanted = False
        self._next(self._lasting)()

    async def _go_on(self) -> None:
        """Until nobody has asked for a whole pause, and what is so then is on disk."""
        lasts = False
        try:
            while not lasts:
                await asyncio.sleep(self._pause_s)
                lasts, self._wanted = not self._wanted, False
                try:
                    await self._apart(self._next(self._lasting if lasts else self._passing))
                except OSError as error:
                    _log.warning("what runs cannot be noted, trying again: %s", error)
                    lasts, self._wanted = False, True
                lasts = lasts and not self._wanted
        finally:
            self._pausing = None
            if not lasts:  # the process ends
                self.now()

    def _next(self, write: Write) -> Callable[[], None]:
        """The write of what is so now."""
        self._asked += 1
        return partial(self._write_unless_older, write, self._asked, self._content())

    def _write_unless_older(self, write: Write, number: int, content: bytes) -> None:
        """One that was on its way does not undo what was written since."""
        with self._lock:
            if number > self._written:
                write(self._path, content)
                self._written = number
