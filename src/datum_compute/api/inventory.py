"""What a plane holds, of every kind: the seam between a server and those who clean up after others.

Only a process that serves a plane can offer this. It is always current: there is no cache that
could be behind, so what is not found is not there. The two writes are all that cleaning up needs of
kinds it knows nothing of; that they are so narrow is what lets them work on roles too.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass
from typing import Any, Protocol

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo, OwnerReference, Ref


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One object as those who clean up see it. ``kind`` is how it can be reached."""

    kind: KindInfo[Any]
    ref: Ref
    uid: str
    version: str
    terminating: bool
    finalizers: tuple[str, ...]
    owners: tuple[OwnerReference, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """One committed change. ``owners`` are told when the object is new or gone, or they differ."""

    resource: str
    ref: Ref
    uid: str
    gone: bool
    begins_to_end: bool  # its deletion starts, or gets another propagation policy
    owners: tuple[OwnerReference, ...]


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes somebody follows; what is not wanted costs nearly nothing."""

    resources: tuple[str, ...] = ()  # every change of these
    gone: bool = False  # whatever is gone, of any resource
    ties: bool = False  # what has owners to tell, or begins to end


class Changes(Protocol):
    """What is there now, as changes, and then every change, until it is closed."""

    def __aiter__(self) -> AsyncIterator[Changed]: ...

    def close(self) -> None: ...


class Holdings(Protocol):
    def kind_named(self, api_version: str, kind: str) -> KindInfo[Any] | None:
        """The kind of a reference; any version of its group will do."""
        ...

    def find(self, resource: str, ref: Ref) -> StoredObject | None: ...

    def content(self, resource: str, ref: Ref) -> JsonObject | None:
        """The whole object, as it is stored."""
        ...

    def dependents(self, uid: str) -> list[StoredObject]:
        """Objects that name this uid as an owner."""
        ...

    def in_namespace(self, namespace: str) -> list[StoredObject]: ...

    def of_resource(self, resource: str) -> list[StoredObject]: ...

    def changes(self, wanted: ChangeFilter) -> Changes: ...

    async def strike_off(self, held: StoredObject, owners: Collection[str]) -> None:
        """Take the owners of these uids out of the object as it was looked at; one that is gone
        is fine, one that has changed is a Conflict."""
        ...

    async def release(self, held: StoredObject, finalizer: str) -> None:
        """Take the finalizer of a foreground or orphan deletion away; otherwise the same."""
        ...
