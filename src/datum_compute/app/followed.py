"""What a plane holds of one kind, followed for as long as the process runs."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from random import Random
from typing import Generic, TypeVar

from datum_compute.api.meta.objects import ApiObject, Ref, ref_of
from datum_compute.client.client import Client
from datum_compute.client.responses import Listed
from datum_compute.client.watch import Watched, follow

T = TypeVar("T", bound=ApiObject)


class Followed(Generic[T]):
    """``changed`` is set with every change; who waits for it clears it."""

    def __init__(
        self, client: Client, watched: Watched[T], random: Random, changed: asyncio.Event
    ) -> None:
        self.objects: dict[Ref, T] = {}
        self.complete = False  # whether all of them have been seen
        self._client = client
        self._watched = watched
        self._random = random
        self._changed = changed

    async def run(self) -> None:
        async with aclosing(follow(self._client, self._watched, self._random)) as news:
            async for item in news:
                if isinstance(item, Listed):
                    self.objects = {ref_of(obj): obj for obj in item.items}
                    self.complete = True
                elif item.object is None:
                    continue
                elif item.type == "DELETED":
                    self.objects.pop(ref_of(item.object), None)
                else:
                    self.objects[ref_of(item.object)] = item.object
                self._changed.set()
