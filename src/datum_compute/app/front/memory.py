"""Returns freed memory to the system after many connections have ended.

The C library keeps freed memory of small and medium blocks for itself; after a flood of connections
that is hundreds of megabytes. ``malloc_trim`` of glibc gives whole free pages back. It runs in a
thread, because it takes some milliseconds for each hundred megabytes, and rarely.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import cache

RELEASED_BYTES_MIN = 32 * 1024 * 1024
WAIT_S = 2.0  # connections end in crowds


class MemoryTrimmer:
    def __init__(self, on_trim: Callable[[], None]) -> None:
        self._on_trim = on_trim
        self._released_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def note_released(self, size_bytes: int) -> None:
        """A connection has ended that held about that much."""
        self._released_bytes += size_bytes
        if self._released_bytes >= RELEASED_BYTES_MIN and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(WAIT_S, self._trim)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _trim(self) -> None:
        self._timer = None
        self._released_bytes = 0
        trim = _malloc_trim()
        if trim is not None:
            asyncio.get_running_loop().run_in_executor(None, trim, 0)
            self._on_trim()


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """The function of the C library, where it has one."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
