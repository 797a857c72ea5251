"""A reader that replays a watch and compares every event with the log of commits (I9).

Its own link is sound; hosts may die under it, and histories may be gone. Whatever happens, the
events it gets are exactly the commits after the version it asked for: none missing, none twice,
none out of order.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable
from typing import Any

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import ApiError, Expired, Unreachable
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import PlaneName
from datum_compute.client.answers import WatchEvent
from datum_compute.client.client import Client
from testkit.sim.checks.truth import Truth


class Mirror:
    def __init__(
        self,
        client: Client,
        plane: PlaneName,
        kind: KindInfo[Any],
        truth: Truth,
        complain: Callable[[str], None],
    ) -> None:
        self._client = client
        self.plane = plane
        self._kind = kind
        self._truth = truth
        self._complain = complain
        self._shown: dict[Ref, str] = {}

    async def run(self) -> None:
        since = 0
        while True:
            try:
                since = since or await self._list()
                async for event in self._client.watch_plain(self._kind, str(since)):
                    since = self._take(event, since)
            except Expired:
                since = 0
            except (ApiError, Unreachable):
                await asyncio.sleep(0.5)

    def what_is_missing(self) -> str:
        """What it shows after the calm, compared with the rows."""
        rows = {
            Ref(key.namespace, key.name): row["metadata"]["resourceVersion"]
            for key, row in self._truth.of_resource(self.plane, self._kind.resource)
        }
        if rows == self._shown:
            return ""
        return f"I9: a watch of {self._kind.plural} on {self.plane} does not show what is there"

    async def _list(self) -> int:
        listed = await self._client.list_plain(self._kind)
        self._shown = {_ref(item): item["metadata"]["resourceVersion"] for item in listed.items}
        return int(listed.version)

    def _take(self, event: WatchEvent[JsonObject], since: int) -> int:
        version = int(event.version)
        if event.object is None or event.type == "BOOKMARK":
            return max(since, version)
        log = self._truth.log.get((self.plane, self._kind.resource), [])
        place = bisect_right(log, since)
        if place >= len(log) or log[place] != version:
            awaited = log[place] if place < len(log) else None
            self._complain(
                f"I9: a watch of {self._kind.plural} on {self.plane} told {version} after {since}"
                f", the next commit was {awaited}"
            )
        if event.type == "DELETED":
            self._shown.pop(_ref(event.object), None)
        else:
            self._shown[_ref(event.object)] = event.version
        return version


def _ref(obj: JsonObject) -> Ref:
    return Ref(obj["metadata"].get("namespace", ""), obj["metadata"]["name"])
