"""The objects of one kind in one plane, with lookups that never scan.

Indexed by namespace, by label and by owner uid. Objects are frozen; nobody changes a cached one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Generic, TypeVar

from datum_compute.api.meta import ApiObject, Ref, ref_of

T = TypeVar("T", bound=ApiObject)


class Cache(Generic[T]):
    def __init__(self) -> None:
        self._objects: dict[Ref, T] = {}
        self._indexes: dict[str, dict[Ref, T]] = {}

    def __len__(self) -> int:
        return len(self._objects)

    def get(self, ref: Ref) -> T | None:
        return self._objects.get(ref)

    def all(self) -> list[T]:
        return list(self._objects.values())

    def in_namespace(self, namespace: str) -> list[T]:
        return self._lookup(f"namespace:{namespace}")

    def labelled(self, label: str, value: str) -> list[T]:
        return self._lookup(f"label:{label}={value}")

    def owned_by(self, uid: str) -> list[T]:
        assert uid, "an empty uid owns nothing"
        return self._lookup(f"owner:{uid}")

    def put(self, obj: T) -> T | None:
        """Take in a new state; returns the one it replaces."""
        ref = ref_of(obj)
        old = self.remove(ref)
        self._objects[ref] = obj
        for term in _terms(obj):
            self._indexes.setdefault(term, {})[ref] = obj
        return old

    def remove(self, ref: Ref) -> T | None:
        old = self._objects.pop(ref, None)
        for term in _terms(old) if old is not None else ():
            entries = self._indexes[term]
            entries.pop(ref, None)
            if not entries:
                del self._indexes[term]
        return old

    def refs(self) -> Iterable[Ref]:
        return list(self._objects)

    def _lookup(self, term: str) -> list[T]:
        return list(self._indexes.get(term, {}).values())


def _terms(obj: ApiObject) -> Iterator[str]:
    metadata = obj.metadata
    yield f"namespace:{metadata.namespace}"
    for label, value in metadata.labels.items():
        yield f"label:{label}={value}"
    for owner in metadata.owner_references:
        yield f"owner:{owner.uid}"
