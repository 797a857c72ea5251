"""CachedClient: access of controllers to one plane. Reads come from caches, writes go to the API.

- Only kinds that a controller declares in its edges can be read.
- ``read`` raises NotSynced while the cache is incomplete or does not contain a write of this
  process. The worker waits shortly for the cache and calls the reconcile again. A controller
  therefore always finds an object that it has just created, and never one that it has just deleted.
- A write without a response may have succeeded. The kind is not synced until the plane has
  responded with its current version and the cache has reached it. So no object is created twice.
- ``get_uncached`` reads from the plane, for decisions that must not depend on a cache.
- The client of a disengaged plane writes nothing. If a write was in flight when the plane was
  disengaged, and the plane is engaged again, the kind is not synced in the new client (the
  ``successor``) either.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import replace
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from datum_compute.api.errors import AlreadyExists, ApiError, NotFound, Unreachable
from datum_compute.api.meta.codec import ApiStruct, JsonObject
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.client.client import Client, Patch
from datum_compute.client.transport.retry import Backoff
from datum_compute.runtime.cache import Lister, NotSynced
from datum_compute.runtime.informer import Informer

T = TypeVar("T", bound=ApiObject)
R = TypeVar("R")

VERSION_REQUEST_TIMEOUT_S = 5.0
# Time for the watch to reach the version of the plane before the kind is listed instead.
WATCH_CATCH_UP_S = 1.0
# After this time an object that is still cached after its deletion is assumed to exist.
DELETED_UID_KEPT_S = 60.0

_BACKOFF = Backoff(first_s=0.05, most_s=10.0)

_log = logging.getLogger(__name__)


# Label selectors by resource, for a process that may read only a part of a plane.
LabelScope = Mapping[str, Mapping[str, str]]


def noop() -> None:
    """Allow every write: the default fence."""


def _no_successor() -> None:
    return None


class _OwnWrite(NamedTuple):
    """The latest write of this process. Writes compare by epoch, and then by version."""

    epoch: int
    version: int


class _ResponseMetadata(ApiStruct, frozen=True):
    resource_version: str = ""


class _WriteResponse(ApiStruct, frozen=True):
    """The decoded part of a response to a write. The object itself arrives through the watch."""

    metadata: _ResponseMetadata = _ResponseMetadata()


class CachedClient:
    """``fence`` is called before every write and raises if this process may not write.

    ``scope`` restricts the listed resources to objects with the labels. ``successor`` returns the
    client that replaced this one for the same plane, if there is one.
    ``uncached`` sends every request to the plane and does not call ``fence``.
    """

    def __init__(
        self,
        plane: PlaneName,
        client: Client,
        random: Random,
        *,
        fence: Callable[[], None] = noop,
        scope: LabelScope | None = None,
        successor: Callable[[], CachedClient | None] = _no_successor,
    ) -> None:
        self.plane = plane
        self.uncached = client
        self.identity = ""  # of the plane; set by the controller that probes it
        self._random = random
        self._fence = fence
        self._scope = scope or {}
        self._successor = successor
        self._informers: dict[str, Informer[Any]] = {}
        self._response_kinds: dict[str, KindInfo[Any]] = {}
        self._own_writes: dict[str, _OwnWrite] = {}
        self._deleted: dict[str, dict[Ref, tuple[str, float]]] = {}
        # Resources with a write of unknown outcome, and the task that resolves it.
        self._unknown_writes: dict[str, asyncio.Task[None] | None] = {}
        self._closed = False

    def declare(self, kind: KindInfo[T], namespace: str | None = None) -> Informer[T]:
        """Return the informer of a kind, which all controllers share. Create it if necessary.

        ``namespace`` is the only one that the caller reads, or empty for all. If callers name
        different ones, the informer reads all namespaces.
        """
        informer = self._informers.get(kind.resource)
        if informer is None:
            labels = self._scope.get(kind.resource)
            informer = Informer(self.uncached, kind, self._random, labels, self.plane)
            informer.namespace = namespace or ""
            self._informers[kind.resource] = informer
        elif namespace is not None and namespace != informer.namespace:
            informer.namespace = ""
        return informer

    def informer(self, kind: KindInfo[T]) -> Informer[T] | None:
        """Return the informer of a kind if the kind is declared."""
        return self._informers.get(kind.resource)

    def informers(self) -> list[Informer[Any]]:
        return list(self._informers.values())

    # --- reading

    def read(self, kind: KindInfo[T]) -> Lister[T]:
        """Return a lister on a complete cache that contains our own writes, or raise NotSynced."""
        informer = self._require_informer(kind)
        if not self._is_fresh(informer):

            async def wait(timeout_s: float) -> bool:
                return await informer.wait_for(lambda: self._is_fresh(informer), timeout_s)

            cause = (
                "is not up to date" if informer.is_served else "is empty: the kind is not served"
            )
            raise NotSynced(f"{self.plane}: the cache of {kind.plural} {cause}", wait)
        return informer.strict

    def read_unsynced(self, kind: KindInfo[T]) -> Lister[T]:
        """Return a lister for mapping functions. The cache may be incomplete."""
        return self._require_informer(kind).lenient

    async def get_uncached(self, kind: KindInfo[T], ref: Ref) -> T | None:
        """Read an object from the plane. Return None if it does not exist."""
        try:
            obj = await self.uncached.get(kind, ref)
        except NotFound:
            return None
        self.record_write(kind, obj.version)  # later reads must not return an older state
        return obj

    # --- writing

    async def create(self, kind: KindInfo[T], obj: T) -> None:
        await self._expect_creation(
            kind,
            obj,
            self._write(kind, lambda response: self.uncached.create(response, obj)),
        )

    async def create_with_status(self, kind: KindInfo[T], obj: T) -> T:
        """Create an object with its status and return it.

        The result has no status if the plane ignores the status on create.
        """
        created: list[T] = []

        async def create() -> int:
            send = partial(self.uncached.create, kind, obj, with_status=True)
            created.append(await self._track_write(kind, send))
            version = int(created[0].metadata.resource_version or 0)
            self.record_write(kind, version)
            return version

        await self._expect_creation(kind, obj, create())
        return created[0]

    async def patch(self, kind: KindInfo[Any], ref: Ref, patch: Patch) -> None:
        await self._write(kind, lambda response: self.uncached.patch(response, ref, patch))

    async def patch_status(
        self, kind: KindInfo[Any], ref: Ref, status: JsonObject, *, version: str
    ) -> None:
        """Merge into the status. ``version`` is the version of the object that was read."""
        await self._write(
            kind,
            lambda response: self.uncached.patch_status(response, ref, status, version=version),
        )

    async def delete(self, kind: KindInfo[Any], ref: Ref, *, uid: str, version: str = "") -> None:
        """Delete the object with this uid. It is not an error if it does not exist."""
        try:
            remaining_version = await self._track_write(
                kind, lambda: self.uncached.delete(kind, ref, uid=uid, version=version)
            )
        except NotFound:
            remaining_version = ""
        if remaining_version:
            self.record_write(kind, int(remaining_version))
        elif kind.resource in self._informers:
            until_s = asyncio.get_running_loop().time() + DELETED_UID_KEPT_S
            self._deleted.setdefault(kind.resource, {})[ref] = (uid, until_s)

    def record_write(self, kind: KindInfo[Any], version: int) -> None:
        """Let reads of the kind wait until the cache contains ``version``."""
        informer = self._informers.get(kind.resource)
        if informer is None:
            return
        last = self._own_writes.get(kind.resource)
        epoch = informer.write_epoch
        if last is None or last.epoch != epoch or last.version < version:
            self._own_writes[kind.resource] = _OwnWrite(epoch, version)

    def relist(self) -> None:
        """List every kind again, because another plane has replaced the one that was listed."""
        for informer in self._informers.values():
            informer.relist()

    def mark_stale(self, kind: KindInfo[Any]) -> None:
        """Let reads wait for the current version: an uncached read contradicts the cache."""
        self._mark_write_unknown(kind)

    def close(self) -> None:
        """Stop writing and cancel background tasks."""
        self._closed = True
        for task in self._unknown_writes.values():
            if task is not None:
                task.cancel()

    async def _expect_creation(
        self, kind: KindInfo[T], obj: T, write: Coroutine[Any, Any, int]
    ) -> None:
        """Create the object. If it is deleted before the cache contains it, report the deletion."""
        informer = self._informers.get(kind.resource)
        if informer is None:
            await write
            return
        ref, version = ref_of(obj), 0
        informer.expect_creation(obj)
        try:
            version = await write
        except ApiError as error:
            if error.code < 500 and not isinstance(error, AlreadyExists):
                informer.cancel_creation(ref)
            raise
        finally:
            informer.set_created_version(ref, version)

    # --- freshness

    async def _write(
        self, kind: KindInfo[Any], write: Callable[[KindInfo[Any]], Awaitable[_WriteResponse]]
    ) -> int:
        """Send a write and return the version of the object."""
        response_kind = self._response_kinds.get(kind.resource)
        if response_kind is None:
            response_kind = replace(kind, model=_WriteResponse)
            self._response_kinds[kind.resource] = response_kind
        response = await self._track_write(kind, partial(write, response_kind))
        version = int(response.metadata.resource_version or 0)
        self.record_write(kind, version)
        return version

    async def _track_write(self, kind: KindInfo[Any], write: Callable[[], Awaitable[R]]) -> R:
        """Send a write. If there is no response, mark the kind as having an unknown write."""
        if self._closed:
            raise NotSynced(f"{self.plane} is not engaged any more: the write was not sent")
        self._fence()
        try:
            return await write()
        except ApiError as error:
            # An object that exists but is not cached shows that the cache is stale.
            if error.code >= 500 or isinstance(error, AlreadyExists):
                self._mark_write_unknown(kind)
            raise
        except BaseException:  # includes the timeout of the reconcile
            self._mark_write_unknown(kind)
            raise
        finally:
            self._mark_successor_unknown(kind)

    def _mark_write_unknown(self, kind: KindInfo[Any]) -> None:
        if kind.resource in self._informers:
            task = self._unknown_writes.get(kind.resource)
            if task is not None:
                task.cancel()  # its version request may have been answered before this write
            self._unknown_writes[kind.resource] = None

    def _mark_successor_unknown(self, kind: KindInfo[Any]) -> None:
        """Mark the kind in the successor, which may have listed before our write arrived."""
        successor = self._successor() if self._closed else None
        if successor is not None:
            successor._mark_write_unknown(kind)

    async def _resolve_unknown_write(self, kind: KindInfo[Any], informer: Informer[Any]) -> None:
        """Request the current version of the plane, then wait until the cache contains it."""
        version = await self._retry_until_answered(
            kind, lambda: self._request_version(kind, informer)
        )
        self.record_write(kind, version)
        if not await informer.wait_for_version(version, WATCH_CATCH_UP_S):
            await self._retry_until_answered(kind, informer.refresh)
        if self._unknown_writes.get(kind.resource) is asyncio.current_task():
            del self._unknown_writes[kind.resource]
        informer.notify_waiters()

    async def _request_version(self, kind: KindInfo[Any], informer: Informer[Any]) -> int:
        async with asyncio.timeout(VERSION_REQUEST_TIMEOUT_S):
            try:
                return int(
                    await self.uncached.version(kind, informer.namespace, labels=informer.labels)
                )
            except NotFound:
                return 0

    async def _retry_until_answered(
        self, kind: KindInfo[Any], request: Callable[[], Awaitable[R]]
    ) -> R:
        failures = 0
        while True:
            try:
                return await request()
            except (ApiError, Unreachable, TimeoutError, ValueError) as error:
                _log.debug("%s: request for %s failed: %s", self.plane, kind.plural, error)
            except Exception:  # a bug must not block reads of the kind permanently
                _log.exception("%s: request for %s failed", self.plane, kind.plural)
            failures += 1
            await asyncio.sleep(_BACKOFF.delay_s(failures, self._random))

    def _is_fresh(self, informer: Informer[Any]) -> bool:
        resource = informer.kind.resource
        if resource in self._unknown_writes:
            if self._unknown_writes[resource] is None and not self._closed:
                resolving = self._resolve_unknown_write(informer.kind, informer)
                task = asyncio.get_running_loop().create_task(resolving)
                self._unknown_writes[resource] = task
            return False
        if not informer.is_synced:
            return False
        written = self._own_writes.get(resource)
        if written is not None:
            if (informer.epoch, informer.version) < written:
                return False
            del self._own_writes[resource]
        deleted = self._deleted.get(resource)
        return not deleted or not self._still_cached(informer, deleted)

    def _still_cached(self, informer: Informer[Any], deleted: dict[Ref, tuple[str, float]]) -> bool:
        """Return True if the cache contains an object that this process has deleted."""
        now_s = asyncio.get_running_loop().time()
        for ref, (uid, until_s) in list(deleted.items()):
            entry = informer.cache.entry(ref)
            if entry is None or entry.uid != uid or now_s > until_s:
                del deleted[ref]
        return bool(deleted)

    def _require_informer(self, kind: KindInfo[T]) -> Informer[T]:
        informer = self._informers.get(kind.resource)
        assert informer is not None, (
            f"{kind.kind} is read on {self.plane} but no controller declares it"
        )
        return informer
