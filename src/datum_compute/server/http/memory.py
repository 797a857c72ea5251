"""Returns freed memory to the system after a flood of requests or connections.

The C library keeps freed blocks for later use. After a flood these are hundreds of megabytes.
``malloc_trim`` of glibc returns free pages to the system. Other threads that allocate memory wait
for it, a few milliseconds for each hundred megabytes. It therefore runs in a thread, and takes at
most ``TIME_SHARE_MAX`` of the time.

The trimmer compares the resident memory with that at its start. It cannot tell how much of it is
free. It tries again after a longer time when a trim has returned little.
"""

from __future__ import annotations

import asyncio
import ctypes
from collections.abc import Callable
from functools import cache
from os import sysconf
from pathlib import Path

CHECK_EVERY_S = 5.0
TRIM_EVERY_MAX_S = 60.0
TIME_SHARE_MAX = 0.005
EXCESS_BYTES_MIN = 32 * 1024 * 1024  # above the resident memory at the start
RETURNED_BYTES_MIN = 8 * 1024 * 1024  # a trim that returns less doubles the interval
RELEASED_BYTES_MIN = 32 * 1024 * 1024


class MemoryTrimmer:
    """Returns freed memory when the process has grown.

    ``read_resident`` returns the resident bytes of the process, None if they are unknown. ``trim``
    runs in a thread. ``clock`` returns seconds; by default it is the clock of the loop.
    """

    def __init__(
        self,
        on_trim: Callable[[], None],
        read_resident: Callable[[], int | None] | None = None,
        trim: Callable[[], object] | None = None,
        clock: Callable[[], float] | None = None,
    ) -> None:
        self._on_trim = on_trim
        self._read_resident = read_resident or resident_bytes
        self._trim = trim or _trim_heap
        self._clock = clock or _loop_time
        self._start_bytes: int | None = None
        self._trimmed_bytes = 0  # resident memory after the last trim
        self._released_bytes = 0
        self._pause_s = CHECK_EVERY_S
        self._next_trim_s = 0.0
        self._earliest_trim_s = 0.0  # limits the time share of trimming, even if memory grew
        self._trimming: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Check the resident memory every ``CHECK_EVERY_S`` from now on."""
        self._start_bytes = self._trimmed_bytes = self._read_resident() or 0
        if self._start_bytes:
            self._check_later()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def note_released(self, size_bytes: int) -> None:
        """Record about how much memory a connection has freed. After many, the next check trims."""
        self._released_bytes += size_bytes

    def check(self) -> asyncio.Task[None] | None:
        """Start a trim if one is due, and return it."""
        resident = self._read_resident()
        if resident is None or self._start_bytes is None or self._trimming is not None:
            return None
        now_s = self._clock()
        if resident - self._start_bytes < EXCESS_BYTES_MIN or now_s < self._earliest_trim_s:
            return None
        grown_bytes = max(self._released_bytes, resident - self._trimmed_bytes)
        if grown_bytes >= RELEASED_BYTES_MIN:
            self._pause_s = CHECK_EVERY_S
        elif now_s < self._next_trim_s:
            return None
        self._trimming = asyncio.get_running_loop().create_task(self._trim_in_thread(resident))
        return self._trimming

    def _check_later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(CHECK_EVERY_S, self._check_again)

    def _check_again(self) -> None:
        self._check_later()
        self.check()

    async def _trim_in_thread(self, before_bytes: int) -> None:
        self._released_bytes = 0
        try:
            start_s = self._clock()
            await asyncio.get_running_loop().run_in_executor(None, self._trim)
            took_s = self._clock() - start_s
        finally:
            self._trimming = None
        self._on_trim()
        self._trimmed_bytes = self._read_resident() or before_bytes
        if before_bytes - self._trimmed_bytes < RETURNED_BYTES_MIN:
            self._pause_s = min(2 * self._pause_s, TRIM_EVERY_MAX_S)
        else:
            self._pause_s = CHECK_EVERY_S
        self._next_trim_s = self._clock() + self._pause_s
        self._earliest_trim_s = self._clock() + took_s / TIME_SHARE_MAX


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def resident_bytes() -> int | None:
    """Return the resident memory of this process; None on systems other than Linux."""
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def _trim_heap() -> None:
    trim = _malloc_trim()
    if trim is not None:
        trim(0)


@cache
def _malloc_trim() -> Callable[[int], int] | None:
    """Return ``malloc_trim`` of the C library; None if it has none."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None)
