"""When a watch that brings nothing counts as dead.

Silence is not trusted. Our servers send a bookmark twice a minute, so a stream that is quiet for
STALL_S is dead. kube-apiserver sends one every 60 s: there it would be replaced for nothing, again
and again. Whoever was quiet for so long twice in a row is such a server until its bookmarks come
sooner: its streams get until its bookmark is overdue, and meanwhile the server itself is asked, by
the smallest list, whether it lives.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.client.deadlines import Deadlines

STALL_S = 55.0
OVERDUE_S = 65.0
PROBE_S = 4.0  # STALL_S and this are less than a minute


class Rhythm:
    """How often one server sends bookmarks of one kind, as far as that was seen."""

    def __init__(self) -> None:
        self._stalls = 0
        self._marked_s = 0.0

    @property
    def is_slow(self) -> bool:
        return self._stalls > 1

    @property
    def limit_s(self) -> float:
        return OVERDUE_S if self.is_slow else STALL_S

    def opened(self) -> None:
        self._marked_s = asyncio.get_running_loop().time()

    def bookmark(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if now_s - self._marked_s < STALL_S:
            self._stalls = 0
        self._marked_s = now_s

    def stalled(self) -> None:
        self._stalls += 1


class Probing:
    """Asks the server when the stream is quiet; whoever waits for the stream goes on at once if
    there is no answer. ``failure`` says why."""

    def __init__(
        self, rhythm: Rhythm, deadlines: Deadlines, probe: Callable[[], Awaitable[object]]
    ) -> None:
        self.failure: Unreachable | None = None
        self._rhythm = rhythm
        self._deadlines = deadlines
        self._probe = probe
        self._asking = asyncio.create_task(self._ask()) if rhythm.is_slow else None

    def close(self) -> None:
        if self._asking is not None:
            self._asking.cancel()

    async def _ask(self) -> None:
        while True:
            left_s = STALL_S - self._deadlines.lasts_s()
            if left_s > 0:
                await asyncio.sleep(max(left_s, 0.1))
                continue
            if self._rhythm.is_slow:
                self.failure = await self._unanswered()
            if self.failure is not None or not self._rhythm.is_slow:
                self._deadlines.expire()
                return
            await asyncio.sleep(OVERDUE_S - STALL_S)

    async def _unanswered(self) -> Unreachable | None:
        """Why there is no answer; None if there is one, whatever it says."""
        try:
            async with asyncio.timeout(PROBE_S):
                await self._probe()
        except ApiError:
            return None
        except TimeoutError:
            return Unreachable(f"a quiet watch, and no answer within {PROBE_S:g} s")
        except Unreachable as error:
            return error
        return None
