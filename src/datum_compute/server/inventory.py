"""What a plane holds, straight from the store: for garbage collection and emptying.

Owners and finalizers are taken away in the name of COLLECTOR, through the same road as any other
patch, so that it is checked, tracked and audited. COLLECTOR has its rights because this process
sends the request: a token or certificate of that name has none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable
from typing import Any

from datum_compute.api.errors import NotFound, from_status
from datum_compute.api.http import MERGE_PATCH, Request, Response
from datum_compute.api.inventory import ChangeFilter, CommittedChange, StoredObject
from datum_compute.api.labels import FOREGROUND_FINALIZER, ORPHAN_FINALIZER
from datum_compute.api.meta.codec import JsonObject, decode, decode_as, encode, to_json
from datum_compute.api.meta.objects import ApiObject, KindInfo, OwnerReference, Ref
from datum_compute.api.planes import PlaneName, path_prefix
from datum_compute.server.access.authentication import EVERY_PLANE, MASTERS, User
from datum_compute.server.discovery.resources import ResourceRegistry
from datum_compute.store.journal import ObjectKey
from datum_compute.store.records import Record
from datum_compute.store.store import Store
from datum_compute.store.watch_log import StoreEvent

COLLECTOR = User("system:garbage-collector", (MASTERS,), frozenset({EVERY_PLANE}))
_COLLECTED = (FOREGROUND_FINALIZER, ORPHAN_FINALIZER)
_HEADERS = {"content-type": MERGE_PATCH, "user-agent": "garbage-collector"}

Send = Callable[[Request], Awaitable[Response]]


class PlaneInventory:
    """``send`` carries out a request as COLLECTOR."""

    def __init__(
        self,
        store: Store,
        plane: PlaneName,
        registry_of: Callable[[PlaneName], ResourceRegistry],
        send: Send,
    ) -> None:
        self._store = store
        self._plane = plane
        self._registry_of = registry_of
        self._send = send

    def kind_named(self, api_version: str, kind: str) -> KindInfo[Any] | None:
        return self._registry_of(self._plane).kind_named(api_version, kind)

    def find(self, resource: str, ref: Ref) -> StoredObject | None:
        record = self._store.get(self._plane, ObjectKey(resource, ref.namespace, ref.name))
        return next(iter(self._held([record])), None) if record is not None else None

    def content(self, resource: str, ref: Ref) -> JsonObject | None:
        record = self._store.get(self._plane, ObjectKey(resource, ref.namespace, ref.name))
        return decode(record.body) if record is not None else None

    def dependents(self, uid: str) -> list[StoredObject]:
        return self._held(self._store.dependents(self._plane, uid))

    def in_namespace(self, namespace: str) -> list[StoredObject]:
        return [
            held
            for resource in self._store.resources(self._plane)
            for held in self._held(self._store.snapshot(self._plane, resource, namespace).records)
        ]

    def of_resource(self, resource: str) -> list[StoredObject]:
        return self._held(self._store.snapshot(self._plane, resource).records)

    def changes(self, wanted: ChangeFilter) -> _Changes:
        return _Changes(self._store, self._plane, wanted)

    async def remove_owners(self, held: StoredObject, owners: Collection[str]) -> None:
        kept = [to_json(owner) for owner in held.owners if owner.uid not in owners]
        await self._patch(held, {"ownerReferences": kept or None})

    async def release(self, held: StoredObject, finalizer: str) -> None:
        assert finalizer in _COLLECTED, "not the collector's own"
        kept = [f for f in held.finalizers if f != finalizer]
        await self._patch(held, {"finalizers": kept or None})

    async def _patch(self, held: StoredObject, metadata: JsonObject) -> None:
        """Of the object as it was looked at; one that changed meanwhile is looked at again."""
        seen = {"uid": held.uid, "resourceVersion": held.version}
        body = encode({"metadata": {**metadata, **seen}})
        path = path_prefix(self._plane) + held.kind.path(held.ref)
        response = await self._send(Request("PATCH", path, {}, _HEADERS, body))
        if response.status < 400:
            return
        refusal = from_status(response.status, decode(response.body))
        if not isinstance(refusal, NotFound):
            raise refusal

    def _held(self, records: Iterable[Record]) -> list[StoredObject]:
        """Without what no kind leads to any more: nobody could do anything about it."""
        kinds = self._registry_of(self._plane).kinds_by_storage()
        return [_held(kinds[r.key.resource], r) for r in records if r.key.resource in kinds]


class _Changes:
    """A plain object and no generator, so that nothing is left to finish at an odd time."""

    def __init__(self, store: Store, plane: PlaneName, wanted: ChangeFilter) -> None:
        self._wanted = wanted
        # Of most resources nothing that is merely there is wanted: those are not even listed.
        listed = store.resources(plane) if wanted.ownership else sorted(wanted.resources)
        self._waiting: deque[CommittedChange] = deque(
            _change(record, None, gone=False)
            for resource in listed
            for record in store.snapshot(plane, resource).records
            if _is_wanted(wanted, record, None, gone=False)
        )
        self._news = asyncio.Event()
        self.close = store.listen(plane, self._take)

    def __aiter__(self) -> AsyncIterator[CommittedChange]:
        return self

    async def __anext__(self) -> CommittedChange:
        while not self._waiting:
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    def _take(self, event: StoreEvent) -> None:
        if _is_wanted(self._wanted, event.record, event.previous, gone=event.deleted):
            self._waiting.append(_change(event.record, event.previous, gone=event.deleted))
            self._news.set()


def _is_wanted(
    wanted: ChangeFilter, record: Record, previous: Record | None, *, gone: bool
) -> bool:
    if (gone and wanted.gone) or record.key.resource in wanted.resources:
        return True
    return wanted.ownership and (
        _begins_to_end(record, previous)
        or (bool(record.owners) and _tells_owners(record, previous, gone=gone))
    )


def _change(record: Record, previous: Record | None, *, gone: bool) -> CommittedChange:
    key = record.key
    return CommittedChange(
        key.resource,
        Ref(key.namespace, key.name),
        record.uid,
        gone,
        _begins_to_end(record, previous),
        _owners(record) if _tells_owners(record, previous, gone=gone) else (),
    )


def _begins_to_end(record: Record, previous: Record | None) -> bool:
    """Return True if the change starts a deletion, or adds a finalizer of the collector to it.

    A repeated delete adds the finalizer of its policy to an object that is already terminating.
    """
    if not record.terminating:
        return False
    if previous is None or not previous.terminating:
        return True
    return any(f in record.finalizers and f not in previous.finalizers for f in _COLLECTED)


def _tells_owners(record: Record, previous: Record | None, *, gone: bool) -> bool:
    return gone or previous is None or previous.owners != record.owners


def _held(kind: KindInfo[Any], record: Record) -> StoredObject:
    key = record.key
    return StoredObject(
        kind,
        Ref(key.namespace, key.name),
        record.uid,
        str(record.version),
        record.terminating,
        record.finalizers,
        _owners(record),
    )


def _owners(record: Record) -> tuple[OwnerReference, ...]:
    if not record.owners:
        return ()
    return tuple(decode_as(record.body, ApiObject).metadata.owner_references)
