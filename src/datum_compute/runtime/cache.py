"""Cache of the objects of one kind on one plane, with indexed lookups.

A ``Lister`` reads from a ``Cache``. Objects are frozen and shared between callers.

- An entry holds the object as JSON, reduced to the fields that its kind models, plus the metadata
  that lookups need. Compared with decoded objects this takes a third of the memory, and the garbage
  collector has nothing to traverse. Recently read objects are also kept decoded.
- Namespace and owner uid are always indexed. A label is indexed by the first lookup that uses it,
  which reads every object once. Controllers declare further indexes (``Index``).
- An object that cannot be decoded stays in the cache. A strict lister raises UnreadableObjectError
  for it: a controller that counts, places or releases must not treat it as absent. A lenient
  lister, for mapping functions, skips it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from datum_compute.api.meta.codec import ApiStruct, encode
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, Ref
from datum_compute.client.responses import UndecodableObject

T = TypeVar("T", bound=ApiObject)

IndexKey = tuple[str, str]  # name of the index, value

DECODED_OBJECTS_MAX = 4096

_NAMESPACE_INDEX, _OWNER_INDEX, _LABEL_INDEX_PREFIX = "namespace", "owner", "label:"


class NotSynced(Exception):
    """The cache is incomplete or does not contain a write of this process yet.

    ``wait(timeout_s)`` returns True if the cache caught up within the timeout. It is None if there
    is no cache to wait for, for example because the plane is not engaged.
    """

    def __init__(
        self, message: str, wait: Callable[[float], Awaitable[bool]] | None = None
    ) -> None:
        super().__init__(message)
        self.wait = wait


class UnreadableObjectError(Exception):
    """A lookup would have to skip an object that cannot be decoded."""


@dataclass(frozen=True, slots=True)
class Index(Generic[T]):
    """An index declared by a controller: ``values`` returns the values of an object."""

    kind: KindInfo[T]
    name: str
    values: Callable[[T], Iterable[str]]
    on: str = ""  # role of the planes, by default the role of the controller


class CacheEntry(msgspec.Struct, frozen=True, gc=False):
    """One cached object. ``error`` is set if ``body`` cannot be decoded."""

    ref: Ref
    uid: str
    version: int
    body: bytes
    index_keys: tuple[IndexKey, ...]
    index_version: int  # version of the set of indexes that ``index_keys`` was computed for
    error: str = ""

    def __repr__(self) -> str:
        """Leave out the body, which may be that of a Secret."""
        return (
            f"CacheEntry({self.ref}, uid={self.uid}, version={self.version}, error={self.error!r})"
        )


class _MetadataOnly(ApiStruct, frozen=True):
    metadata: ObjectMeta


_metadata_decoder = msgspec.json.Decoder(_MetadataOnly)


class Cache(Generic[T]):
    def __init__(self, model: type[T], indexes: Sequence[Index[T]] = ()) -> None:
        self._decoder = msgspec.json.Decoder(model)
        self._indexes = {index.name: index for index in indexes}
        self._labels: dict[str, None] = {}
        self._index_version = 0
        self._entries: dict[Ref, CacheEntry] = {}
        # Dicts instead of sets: they keep the order of insertion, which makes runs reproducible.
        self._refs_by_key: dict[IndexKey, dict[Ref, None]] = {}
        self._values_by_index: dict[str, dict[str, None]] = {}
        self._shared_keys: dict[IndexKey, IndexKey] = {}
        self._decoded: OrderedDict[Ref, tuple[CacheEntry, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, ref: Ref) -> CacheEntry | None:
        return self._entries.get(ref)

    def get_decoded(self, ref: Ref) -> T | None:
        """Return the current object if it is kept decoded."""
        found = self._decoded.get(ref)
        return found[1] if found is not None else None

    def refs(self) -> list[Ref]:
        return list(self._entries)

    def entries(self) -> list[CacheEntry]:
        return list(self._entries.values())

    def entries_with(self, key: IndexKey) -> list[CacheEntry]:
        return [self._entries[ref] for ref in self._refs_by_key.get(key, ())]

    def counts(self, index: str) -> dict[str, int]:
        """Return the number of objects for each value of an index."""
        values = self._values_by_index.get(index, ())
        return {value: len(self._refs_by_key[(index, value)]) for value in values}

    def list_with_label(self, label: str, value: str) -> list[CacheEntry]:
        if label not in self._labels:
            self._add_label_index(label)
        return self.entries_with((_LABEL_INDEX_PREFIX + label, value))

    def list_in_namespace(self, namespace: str) -> list[CacheEntry]:
        return self.entries_with((_NAMESPACE_INDEX, namespace))

    def list_owned_by(self, uid: str) -> list[CacheEntry]:
        assert uid, "the uid of an owner is empty"
        return self.entries_with((_OWNER_INDEX, uid))

    def add_index(self, index: Index[T]) -> None:
        """Add an index. Two controllers may add the same one."""
        existing = self._indexes.setdefault(index.name, index)
        assert existing.values == index.values, f"two indexes are named {index.name}"
        if existing is index:
            self._reindex_all()

    def has_index(self, name: str) -> bool:
        return name in self._indexes

    def entry_for(self, obj: T | UndecodableObject) -> CacheEntry:
        """Return the entry for an object: the cached one if the version is the same."""
        metadata = obj.metadata
        ref = Ref(metadata.namespace, metadata.name)
        version = int(metadata.resource_version or 0)
        cached = self._entries.get(ref)
        if cached is not None and cached.version == version and cached.uid == metadata.uid:
            return cached
        if isinstance(obj, UndecodableObject):
            keys = self._intern_keys(self._metadata_keys(metadata), cached)
            body, error = obj.body, obj.error
        else:
            body, (keys, error) = encode(obj), self._compute_index_keys(obj, cached)
        return CacheEntry(ref, metadata.uid, version, body, keys, self._index_version, error)

    def put(self, entry: CacheEntry, obj: T | None = None) -> None:
        """Add or replace an entry. ``obj`` is the decoded object, if the caller has it."""
        if entry.index_version != self._index_version:
            entry = self._reindex(entry)
        cached = self._entries.get(entry.ref)
        if cached is not None and cached.index_keys == entry.index_keys:  # nearly always
            self._decoded.pop(entry.ref, None)
        else:
            self.remove(entry.ref)
            self._add_to_indexes(entry)
        self._entries[entry.ref] = entry
        if obj is not None and not entry.error:
            self._keep_decoded(entry, obj)

    def remove(self, ref: Ref) -> None:
        old = self._entries.pop(ref, None)
        if old is None:
            return
        self._decoded.pop(ref, None)
        for key in old.index_keys:
            refs = self._refs_by_key[key]
            del refs[ref]
            if not refs:
                del self._refs_by_key[key]
                del self._values_by_index[key[0]][key[1]]
                self._shared_keys.pop(key, None)

    def decode(self, entry: CacheEntry) -> T:
        """Return the object of an entry that has no error."""
        assert not entry.error
        decoded = self._decoded.get(entry.ref)
        if decoded is not None and decoded[0] is entry:
            return decoded[1]
        obj = self._decoder.decode(entry.body)
        if self._entries.get(entry.ref) is entry:
            self._keep_decoded(entry, obj)
        return obj

    def _add_to_indexes(self, entry: CacheEntry) -> None:
        for key in entry.index_keys:
            refs = self._refs_by_key.get(key)
            if refs is None:
                refs = self._refs_by_key[key] = {}
                self._values_by_index.setdefault(key[0], {})[key[1]] = None
            refs[entry.ref] = None

    def _keep_decoded(self, entry: CacheEntry, obj: T) -> None:
        self._decoded[entry.ref] = (entry, obj)
        if len(self._decoded) > DECODED_OBJECTS_MAX:
            self._decoded.popitem(last=False)

    def _all_keys(self, obj: T) -> list[IndexKey]:
        keys = self._metadata_keys(obj.metadata)
        for name, index in self._indexes.items():
            keys += [(name, value) for value in index.values(obj)]
        return keys

    def _metadata_keys(self, metadata: ObjectMeta) -> list[IndexKey]:
        keys = [(_NAMESPACE_INDEX, metadata.namespace)]
        keys += [(_OWNER_INDEX, owner.uid) for owner in metadata.owner_references]
        for label in self._labels:
            if (value := metadata.labels.get(label)) is not None:
                keys.append((_LABEL_INDEX_PREFIX + label, value))
        return keys

    def _intern_keys(
        self, keys: list[IndexKey], cached: CacheEntry | None = None
    ) -> tuple[IndexKey, ...]:
        """Return the keys without duplicates, as objects shared between entries to save memory."""
        new_keys = tuple(keys)
        if cached is not None and cached.index_keys == new_keys:
            return cached.index_keys
        return tuple(dict.fromkeys(self._shared_keys.setdefault(key, key) for key in new_keys))

    def _add_label_index(self, label: str) -> None:
        self._labels[label] = None
        self._reindex_all()

    def _reindex_all(self) -> None:
        self._index_version += 1
        for entry in self.entries():
            self.put(entry)

    def _reindex(self, entry: CacheEntry) -> CacheEntry:
        """Return the entry with keys for the current set of indexes."""
        if entry.error:
            metadata = _metadata_decoder.decode(entry.body).metadata
            keys, error = self._intern_keys(self._metadata_keys(metadata)), entry.error
        else:
            keys, error = self._compute_index_keys(self.decode(entry))
        return msgspec.structs.replace(
            entry, index_keys=keys, index_version=self._index_version, error=error
        )

    def _compute_index_keys(
        self, obj: T, cached: CacheEntry | None = None
    ) -> tuple[tuple[IndexKey, ...], str]:
        """Return the keys and an error: if an index function raises, the object is unreadable."""
        try:
            return self._intern_keys(self._all_keys(obj), cached), ""
        except Exception as error:
            keys = self._intern_keys(self._metadata_keys(obj.metadata))
            return keys, f"an index function raised {error!r}"


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
        return next(iter(self._decode((entry,))), None) if entry is not None else None

    def refs(self) -> list[Ref]:
        return self._cache.refs()

    def has(self, ref: Ref) -> bool:
        """Return True if the object exists, also if it cannot be decoded."""
        return self._cache.entry(ref) is not None

    def uid(self, ref: Ref) -> str:
        """Return the uid of an object without decoding it, or an empty string."""
        entry = self._cache.entry(ref)
        return entry.uid if entry is not None else ""

    def uids(self) -> dict[Ref, str]:
        """Return the uids of all objects without decoding them."""
        return {entry.ref: entry.uid for entry in self._cache.entries()}

    def all(self) -> list[T]:
        return self._decode(self._cache.entries())

    def list_in_namespace(self, namespace: str) -> list[T]:
        return self._decode(self._cache.list_in_namespace(namespace))

    def list_with_label(self, label: str, value: str) -> list[T]:
        return self._decode(self._cache.list_with_label(label, value))

    def list_owned_by(self, uid: str) -> list[T]:
        return self._decode(self._cache.list_owned_by(uid))

    def list_by_index(self, index: str, value: str) -> list[T]:
        """Return the objects with a value in a declared index."""
        return self._decode(self._entries_in(index, value))

    def refs_by_index(self, index: str, value: str) -> list[Ref]:
        """Return what ``by_index`` returns as refs, without decoding the objects."""
        return [entry.ref for entry in self._entries_in(index, value)]

    def counts(self, index: str) -> dict[str, int]:
        """Return the number of objects for each value of a declared index."""
        assert self._cache.has_index(index), f"no controller declares the index {index}"
        return self._cache.counts(index)

    def _entries_in(self, index: str, value: str) -> list[CacheEntry]:
        assert self._cache.has_index(index), f"no controller declares the index {index}"
        return self._cache.entries_with((index, value))

    def _decode(self, entries: Iterable[CacheEntry]) -> list[T]:
        objects = []
        for entry in entries:
            if not entry.error:
                objects.append(self._cache.decode(entry))
            elif self._strict:
                raise UnreadableObjectError(f"{entry.ref} cannot be read: {entry.error}")
        return objects
