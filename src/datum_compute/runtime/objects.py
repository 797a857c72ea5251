"""Reading from a cache: frozen objects, found by name, namespace, label, owner or declared index.

An object that cannot be decoded is there all the same. A controller that counts, places or
releases must not take it for absent, so a lookup that would have to leave it out raises
Unreadable, and the reconcile is tried again later. Mapping functions, which only wake others,
read without it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from datum_compute.api.meta import ApiObject, Ref
from datum_compute.runtime.cache import Cache, CacheEntry, UnreadableObjectError

T = TypeVar("T", bound=ApiObject)


@dataclass(frozen=True, slots=True)
class Lister(Generic[T]):
    _cache: Cache[T]
    _strict: bool = True

    def __len__(self) -> int:
        return len(self._cache)

    def get(self, ref: Ref) -> T | None:
        found = self._cache.get_decoded(ref)
        if found is not None:
            return found
        entry = self._cache.entry(ref)
        return next(iter(self._decoded((entry,))), None) if entry is not None else None

    def refs(self) -> list[Ref]:
        return self._cache.refs()

    def has(self, ref: Ref) -> bool:
        """Whether the object exists; it is not decoded, and may be unreadable."""
        return self._cache.entry(ref) is not None

    def uid(self, ref: Ref) -> str:
        """The uid of an object, or the empty string; it is not decoded."""
        entry = self._cache.entry(ref)
        return entry.uid if entry is not None else ""

    def uids(self) -> dict[Ref, str]:
        """Who is there; nothing is decoded for it."""
        return {entry.ref: entry.uid for entry in self._cache.entries()}

    def all(self) -> list[T]:
        return self._decoded(self._cache.entries())

    def in_namespace(self, namespace: str) -> list[T]:
        return self._decoded(self._cache.in_namespace(namespace))

    def labelled(self, label: str, value: str) -> list[T]:
        return self._decoded(self._cache.labelled(label, value))

    def owned_by(self, uid: str) -> list[T]:
        return self._decoded(self._cache.owned_by(uid))

    def indexed(self, index: str, value: str) -> list[T]:
        """By an index that a controller declares."""
        assert self._cache.has_index(index), f"no controller declares the index {index}"
        return self._decoded(self._cache.group((index, value)))

    def refs_indexed(self, index: str, value: str) -> list[Ref]:
        """As ``indexed``, but nothing is decoded."""
        assert self._cache.has_index(index), f"no controller declares the index {index}"
        return [entry.ref for entry in self._cache.group((index, value))]

    def counts(self, index: str) -> dict[str, int]:
        """How many objects each value of a declared index has; none of them is looked at."""
        assert self._cache.has_index(index), f"no controller declares the index {index}"
        return self._cache.counts(index)

    def _decoded(self, entries: Iterable[CacheEntry]) -> list[T]:
        found = []
        for entry in entries:
            if not entry.error:
                found.append(self._cache.decode(entry))
            elif self._strict:
                raise UnreadableObjectError(f"{entry.ref} cannot be read: {entry.error}")
        return found
