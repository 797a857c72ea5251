"""The watches that are open: how many each user has, and whether each may stay open.

A watch that its user would no longer get is ended as soon as the grants of its plane change; the
client connects again and reads why it may not. A stream that its reader just drops is forgotten
when it goes, so nothing here keeps one alive.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from datum_compute.api.errors import TooManyRequests
from datum_compute.api.planes import PlaneName
from datum_compute.server.verbs.watch_stream import WatchStream

PER_USER_MAX = 2000  # on one plane
RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class _Open:
    stream: weakref.ref[WatchStream]
    plane: PlaneName
    user: str
    may_stay: Callable[[], bool]


class OpenWatches:
    def __init__(self, per_user_max: int = PER_USER_MAX) -> None:
        self._per_user_max = per_user_max
        self._numbers = count()
        self._open: dict[int, _Open] = {}
        self._of_user: Counter[tuple[PlaneName, str]] = Counter()
        self._changed: dict[PlaneName, None] = {}

    def __len__(self) -> int:
        return len(self._open)

    def check_room(self, plane: PlaneName, user: str) -> None:
        if self._of_user[(plane, user)] >= self._per_user_max:
            raise TooManyRequests(
                f'user "{user}" has {self._per_user_max} watches open on plane "{plane}", which '
                "is the limit; close some and try again",
                retry_after_s=RETRY_AFTER_S,
            )

    def add(
        self, plane: PlaneName, user: str, stream: WatchStream, may_stay: Callable[[], bool]
    ) -> None:
        number = next(self._numbers)
        self._open[number] = _Open(weakref.ref(stream), plane, user, may_stay)
        self._of_user[(plane, user)] += 1
        weakref.finalize(stream, self._forget, number).atexit = False

    def grants_changed(self, plane: PlaneName) -> None:
        """Look at the watches of a plane soon; many changes at once are one look."""
        if plane not in self._changed:
            self._changed[plane] = None
            asyncio.get_running_loop().call_soon(self._recheck, plane)

    def _recheck(self, plane: PlaneName) -> None:
        del self._changed[plane]
        for watch in list(self._open.values()):
            stream = watch.stream()
            if watch.plane == plane and stream is not None and not watch.may_stay():
                stream.stop()

    def _forget(self, number: int) -> None:
        gone = self._open.pop(number)
        owner = (gone.plane, gone.user)
        self._of_user[owner] -= 1
        if not self._of_user[owner]:
            del self._of_user[owner]
