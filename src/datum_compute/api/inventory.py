"""All objects of a plane, for controllers that clean up objects of any kind.

Only a process that serves a plane can offer this. There is no cache, so a missing object does not
exist. The two writes are all that cleanup of unknown kinds needs. Because they can change nothing
else, they also work on roles.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo, OwnerReference, Ref


@dataclass(frozen=True, slots=True)
class StoredObject:
    """The metadata of an object that cleanup needs. ``kind`` is the kind by which it can be
    accessed.
    """

    kind: KindInfo[Any]
    ref: Ref
    uid: str
    version: str
    terminating: bool
    finalizers: tuple[str, ...]
    owners: tuple[OwnerReference, ...]


@dataclass(frozen=True, slots=True)
class CommittedChange:
    """A committed change. ``owners`` is set if the object is new or deleted, or its
    owners changed.
    """

    resource: str
    ref: Ref
    uid: str
    gone: bool
    deletion_started: bool  # deletion has started, or its propagation policy has changed
    owners: tuple[OwnerReference, ...]


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Changes that a reader receives. Other changes cost almost nothing."""

    resources: tuple[str, ...] = ()  # all changes of these resources
    gone: bool = False  # deletions of all resources
    ownership: bool = False  # changes of owners, and deletions that have started


class Changes(Protocol):
    """The current objects as changes, followed by every change until it is closed."""

    def __aiter__(self) -> AsyncIterator[CommittedChange]: ...

    def close(self) -> None: ...


class Holdings(Protocol):
    def kind_named(self, api_version: str, kind: str) -> KindInfo[Any] | None:
        """Return the kind of a reference. Any served version of its group is used."""
        ...

    def find(self, resource: str, ref: Ref) -> StoredObject | None: ...

    def content(self, resource: str, ref: Ref) -> JsonObject | None:
        """Return the whole object as it is stored."""
        ...

    def dependents(self, uid: str) -> list[StoredObject]:
        """Return the objects that have this owner."""
        ...

    def in_namespace(self, namespace: str) -> list[StoredObject]: ...

    def of_resource(self, resource: str) -> list[StoredObject]: ...

    def changes(self, wanted: ChangeFilter) -> Changes: ...

    async def remove_owners(self, held: StoredObject, owners: Collection[str]) -> None:
        """Remove owners from the object in the version that was read.

        A missing object is no error. A changed object raises Conflict.
        """
        ...

    async def release(self, held: StoredObject, finalizer: str) -> None:
        """Remove the finalizer of a foreground or orphan deletion. Errors are those of
        ``remove_owners``.
        """
        ...
