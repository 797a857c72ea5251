"""Returns freed memory to the system after many connections have ended.

The C library keeps freed blocks for later use. After a flood of connections these are hundreds of
megabytes. ``malloc_trim`` of glibc returns free pages to the system. It takes a few milliseconds
for each hundred megabytes, so it runs rarely and in a thread.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import cache

RELEASED_BYTES_MIN = 32 * 1024 * 1024
TRIM_DELAY_S = 2.0  # many connections end at the same time


class MemoryTrimmer:
    def __init__(self, on_trim: Callable[[], None]) -> None:
        self._on_trim = on_trim
        self._released_bytes = 0
        self._timer: asyncio.TimerHandle | None = None

    def note_released(self, size_bytes: int) -> None:
        """Record about how much memory a connection has freed."""
        self._released_bytes += size_bytes
        if self._released_bytes >= RELEASED_BYTES_MIN and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(TRIM_DELAY_S, self._trim)

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
    """Return ``malloc_trim`` of the C library; None if it has none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
