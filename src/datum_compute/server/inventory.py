"""The objects of a plane, read from the store, for garbage collection and namespace deletion.

Owners and finalizers are removed by patch requests of the user COLLECTOR, so that the changes pass
authorization, admission and audit. COLLECTOR has its permissions because this process sends the
request. A token or certificate with the same name has none.
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
    """The objects of one plane. ``send`` sends a request as COLLECTOR."""

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
        return next(iter(self._to_stored_objects([record])), None) if record is not None else None

    def content(self, resource: str, ref: Ref) -> JsonObject | None:
        record = self._store.get(self._plane, ObjectKey(resource, ref.namespace, ref.name))
        return decode(record.body) if record is not None else None

    def dependents(self, uid: str) -> list[StoredObject]:
        return self._to_stored_objects(self._store.dependents(self._plane, uid))

    def in_namespace(self, namespace: str) -> list[StoredObject]:
        return [
            held
            for resource in self._store.resources(self._plane)
            for held in self._to_stored_objects(
                self._store.snapshot(self._plane, resource, namespace).records
            )
        ]

    def of_resource(self, resource: str) -> list[StoredObject]:
        return self._to_stored_objects(self._store.snapshot(self._plane, resource).records)

    def changes(self, wanted: ChangeFilter) -> _Changes:
        return _Changes(self._store, self._plane, wanted)

    async def remove_owners(self, held: StoredObject, owners: Collection[str]) -> None:
        kept = [to_json(owner) for owner in held.owners if owner.uid not in owners]
        await self._patch(held, {"ownerReferences": kept or None})

    async def release(self, held: StoredObject, finalizer: str) -> None:
        assert finalizer in _COLLECTED, "not a finalizer of the collector"
        kept = [f for f in held.finalizers if f != finalizer]
        await self._patch(held, {"finalizers": kept or None})

    async def _patch(self, held: StoredObject, metadata: JsonObject) -> None:
        """Patch the metadata of this version of the object. Raise Conflict if it has changed."""
        seen = {"uid": held.uid, "resourceVersion": held.version}
        body = encode({"metadata": {**metadata, **seen}})
        path = path_prefix(self._plane) + held.kind.path(held.ref)
        response = await self._send(Request("PATCH", path, {}, _HEADERS, body))
        if response.status < 400:
            return
        refusal = from_status(response.status, decode(response.body))
        if not isinstance(refusal, NotFound):
            raise refusal

    def _to_stored_objects(self, records: Iterable[Record]) -> list[StoredObject]:
        """Return the records whose kind is served. Others cannot be patched or deleted."""
        kinds = self._registry_of(self._plane).kinds_by_storage()
        return [
            _to_stored_object(kinds[r.key.resource], r) for r in records if r.key.resource in kinds
        ]


class _Changes:
    """The changes of a plane. It is not a generator, so it needs no asynchronous cleanup."""

    def __init__(self, store: Store, plane: PlaneName, wanted: ChangeFilter) -> None:
        self._wanted = wanted
        # Without ownership, only the resources of the filter have to be listed.
        listed = store.resources(plane) if wanted.ownership else sorted(wanted.resources)
        self._queued: deque[CommittedChange] = deque(
            _change(record, None, gone=False)
            for resource in listed
            for record in store.snapshot(plane, resource).records
            if _is_wanted(wanted, record, None, gone=False)
        )
        self._has_queued = asyncio.Event()
        self.close = store.listen(plane, self._enqueue)

    def __aiter__(self) -> AsyncIterator[CommittedChange]:
        return self

    async def __anext__(self) -> CommittedChange:
        while not self._queued:
            self._has_queued.clear()
            await self._has_queued.wait()
        return self._queued.popleft()

    def _enqueue(self, event: StoreEvent) -> None:
        if _is_wanted(self._wanted, event.record, event.previous, gone=event.deleted):
            self._queued.append(_change(event.record, event.previous, gone=event.deleted))
            self._has_queued.set()


def _is_wanted(
    wanted: ChangeFilter, record: Record, previous: Record | None, *, gone: bool
) -> bool:
    if (gone and wanted.gone) or record.key.resource in wanted.resources:
        return True
    return wanted.ownership and (
        _starts_deletion(record, previous)
        or (bool(record.owners) and _concerns_owners(record, previous, gone=gone))
    )


def _change(record: Record, previous: Record | None, *, gone: bool) -> CommittedChange:
    key = record.key
    return CommittedChange(
        key.resource,
        Ref(key.namespace, key.name),
        record.uid,
        gone,
        _starts_deletion(record, previous),
        _owners(record) if _concerns_owners(record, previous, gone=gone) else (),
    )


def _starts_deletion(record: Record, previous: Record | None) -> bool:
    """Return True if the change starts a deletion, or adds a finalizer of the collector to it.

    A repeated delete adds the finalizer of its policy to an object that is already terminating.
    """
    if not record.terminating:
        return False
    if previous is None or not previous.terminating:
        return True
    return any(f in record.finalizers and f not in previous.finalizers for f in _COLLECTED)


def _concerns_owners(record: Record, previous: Record | None, *, gone: bool) -> bool:
    return gone or previous is None or previous.owners != record.owners


def _to_stored_object(kind: KindInfo[Any], record: Record) -> StoredObject:
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
