"""The open watches of the server: their limit for each user, and their permissions.

When the permissions on a plane change, the server checks every watch of the plane again and ends
those that are no longer permitted. The client reconnects and receives the 403. Streams are held by
weak references: a watch that its reader drops is removed when the stream is freed.
"""

from __future__ import annotations

import asyncio
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from datum_compute.api.errors import TooManyRequests
from datum_compute.api.http import BufferedStream
from datum_compute.api.planes import PlaneName

PER_USER_MAX = 2000  # on one plane
RETRY_AFTER_S = 5


@dataclass(frozen=True, slots=True)
class _OpenWatch:
    stream: weakref.ref[BufferedStream]
    plane: PlaneName
    user: str
    is_permitted: Callable[[], bool]


class OpenWatches:
    def __init__(self, per_user_max: int = PER_USER_MAX) -> None:
        self._per_user_max = per_user_max
        self._numbers = count()
        self._watches: dict[int, _OpenWatch] = {}
        self._counts: Counter[tuple[PlaneName, str]] = Counter()
        self._changed_planes: dict[PlaneName, None] = {}

    def __len__(self) -> int:
        return len(self._watches)

    def check_limit(self, plane: PlaneName, user: str) -> None:
        """Raise TooManyRequests if the user cannot open another watch on the plane."""
        if self._counts[(plane, user)] >= self._per_user_max:
            raise TooManyRequests(
                f'user "{user}" has {self._per_user_max} watches open on plane "{plane}", which '
                "is the limit; close some and try again",
                retry_after_s=RETRY_AFTER_S,
            )

    def add(
        self,
        plane: PlaneName,
        user: str,
        stream: BufferedStream,
        is_permitted: Callable[[], bool],
    ) -> None:
        number = next(self._numbers)
        self._watches[number] = _OpenWatch(weakref.ref(stream), plane, user, is_permitted)
        self._counts[(plane, user)] += 1
        weakref.finalize(stream, self._remove, number).atexit = False

    def recheck_plane(self, plane: PlaneName) -> None:
        """Check the watches of a plane in the next pass of the loop, once for many changes."""
        if plane not in self._changed_planes:
            self._changed_planes[plane] = None
            asyncio.get_running_loop().call_soon(self._end_forbidden, plane)

    def _end_forbidden(self, plane: PlaneName) -> None:
        del self._changed_planes[plane]
        for watch in list(self._watches.values()):
            stream = watch.stream()
            if watch.plane == plane and stream is not None and not watch.is_permitted():
                stream.stop()

    def _remove(self, number: int) -> None:
        watch = self._watches.pop(number)
        owner = (watch.plane, watch.user)
        self._counts[owner] -= 1
        if not self._counts[owner]:
            del self._counts[owner]
