"""One plane as controllers see it: reads from caches, writes to the API, never older than itself.

Rules it keeps:
- Only declared kinds can be read, so that every read has a wake-up edge.
- A read from a cache that is incomplete, or has not seen this process's own writes, raises
  NotSynced: nobody acts on absence that is not proven.
"""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from datum_compute.api.codec import JsonObject
from datum_compute.api.errors import NotFound
from datum_compute.api.meta import ApiObject, KindInfo, Ref
from datum_compute.api.plane import PlaneName
from datum_compute.client.client import Client, Patch
from datum_compute.runtime.cache import Cache
from datum_compute.runtime.informer import Informer
from datum_compute.runtime.outcome import NotSynced

T = TypeVar("T", bound=ApiObject)

OWN_WRITE_S = 1.0


class View:
    def __init__(self, plane: PlaneName, client: Client, random: Random) -> None:
        self.plane = plane
        self.client = client
        self._random = random
        self._informers: dict[str, Informer[Any]] = {}
        self._written: dict[str, int] = {}

    def declare(self, kind: KindInfo[T]) -> Informer[T]:
        """The shared informer of a kind, made on first use."""
        found = self._informers.get(kind.resource)
        if found is None:
            found = self._informers[kind.resource] = Informer(self.client, kind, self._random)
        return found

    def informers(self) -> list[Informer[Any]]:
        return list(self._informers.values())

    def cached(self, kind: KindInfo[T]) -> Cache[T]:
        """The cache as it is, for mapping events only: it may be incomplete."""
        return self._informer(kind).cache

    def read(self, kind: KindInfo[T]) -> Cache[T]:
        """The cache, complete and not older than our own writes; else NotSynced."""
        informer = self._informer(kind)
        if not informer.synced or informer.version < self._written.get(kind.resource, 0):
            raise NotSynced(f"{self.plane}: the view of {kind.plural} is behind")
        return informer.cache

    async def create(self, kind: KindInfo[T], obj: T) -> T:
        return await self._seen(kind, await self.client.create(kind, obj))

    async def patch(self, kind: KindInfo[T], ref: Ref, patch: Patch) -> T:
        return await self._seen(kind, await self.client.patch(kind, ref, patch))

    async def patch_status(
        self, kind: KindInfo[T], ref: Ref, status: JsonObject, *, version: str
    ) -> T:
        """Merge into the status of the object as it was read at ``version``."""
        written = await self.client.patch_status(kind, ref, status, version=version)
        return await self._seen(kind, written)

    async def delete(self, kind: KindInfo[Any], ref: Ref, *, uid: str, version: str = "") -> None:
        """Delete this very object; one that is gone already is fine."""
        try:
            await self.client.delete(kind, ref, uid=uid, version=version)
        except NotFound:
            return

    def note_write(self, kind: KindInfo[Any], version: int) -> None:
        """A write made past this view: reads wait until the cache has seen it."""
        self._written[kind.resource] = max(version, self._written.get(kind.resource, 0))

    async def _seen(self, kind: KindInfo[T], obj: T) -> T:
        informer = self._informers.get(kind.resource)
        if informer is not None:
            self.note_write(kind, obj.version)
            await informer.caught_up(obj.version, OWN_WRITE_S)
        return obj

    def _informer(self, kind: KindInfo[T]) -> Informer[T]:
        found = self._informers.get(kind.resource)
        assert found is not None, (
            f"{kind.kind} is read on {self.plane} but no controller declares it"
        )
        return found
