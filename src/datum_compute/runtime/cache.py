"""The objects of one kind in one plane, small in memory, with lookups that never scan.

An object is kept as the JSON of the fields its kind models, beside the few facts that lookups
need; that is a third of the memory of decoded objects, and nothing for the garbage collector to
walk. The objects in use are kept decoded as well, so that those who look often pay once.

Indexes: by namespace and by owner uid always; by a label from the first time it is asked for
(which looks at every object once); by functions that controllers declare (``Index``).

Objects are frozen; nobody changes a cached one. Reading goes through ``objects.py``.

Reading from a cache: frozen objects, found by name, namespace, label, owner or declared index.

An object that cannot be decoded is there all the same. A controller that counts, places or
releases must not take it for absent, so a lookup that would have to leave it out raises
Unreadable, and the reconcile is tried again later. Mapping functions, which only wake others,
read without it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from datum_compute.api.codec import ApiStruct, encode
from datum_compute.api.meta import ApiObject, KindInfo, ObjectMeta, Ref
from datum_compute.client.answers import Unreadable

T = TypeVar("T", bound=ApiObject)

Term = tuple[str, str]  # the name of an index, and a value in it

# Decoded objects kept for those who look again.
DECODED_MAX = 4096

_NAMESPACE, _OWNER, _LABEL = "namespace", "owner", "label:"


class NotSynced(Exception):
    """A cached view is not complete, or has not yet seen our own write: do not act on it.

    ``wait`` waits up to so many seconds for what is missing, and says whether it has come.
    """

    def __init__(
        self, message: str, wait: Callable[[float], Awaitable[bool]] | None = None
    ) -> None:
        super().__init__(message)
        self.wait = wait


class UnreadableObjectError(Exception):
    """An object is there that is not of the shape of its kind: nothing is decided without it."""


@dataclass(frozen=True, slots=True)
class Index(Generic[T]):
    """A lookup that a controller declares: the values under which an object is found."""

    kind: KindInfo[T]
    name: str
    values: Callable[[T], Iterable[str]]
    on: str = ""  # role of the planes; the controller's own if empty


class CacheEntry(msgspec.Struct, frozen=True, gc=False):
    """One object as the cache keeps it; ``error`` says why its body cannot be decoded."""

    ref: Ref
    uid: str
    version: int
    body: bytes
    terms: tuple[Term, ...]
    shape: int  # which indexes there were when the terms were taken
    error: str = ""

    def __repr__(self) -> str:
        """Without the body: it may be that of a Secret."""
        return f"Entry({self.ref}, uid={self.uid}, version={self.version}, error={self.error!r})"


class _Described(ApiStruct, frozen=True):
    metadata: ObjectMeta


_described = msgspec.json.Decoder(_Described)


class Cache(Generic[T]):
    def __init__(self, model: type[T], indexes: Sequence[Index[T]] = ()) -> None:
        self._model = msgspec.json.Decoder(model)
        self._indexes = {index.name: index for index in indexes}
        self._labels: dict[str, None] = {}
        self._shape = 0
        self._entries: dict[Ref, CacheEntry] = {}
        # Each group is keyed by ref; the dict keeps the order in which objects came.
        self._groups: dict[Term, dict[Ref, None]] = {}
        self._values: dict[str, dict[str, None]] = {}  # those in use, of each index
        self._terms: dict[Term, Term] = {}
        self._decoded: OrderedDict[Ref, tuple[CacheEntry, T]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def entry(self, ref: Ref) -> CacheEntry | None:
        return self._entries.get(ref)

    def get_decoded(self, ref: Ref) -> T | None:
        """The object, if it is kept decoded as it is now."""
        known = self._decoded.get(ref)
        return known[1] if known is not None else None

    def refs(self) -> list[Ref]:
        return list(self._entries)

    def entries(self) -> list[CacheEntry]:
        return list(self._entries.values())

    def group(self, term: Term) -> list[CacheEntry]:
        """The objects with one value in one index."""
        return [self._entries[ref] for ref in self._groups.get(term, ())]

    def counts(self, index: str) -> dict[str, int]:
        """How many objects each value of an index has."""
        return {value: len(self._groups[(index, value)]) for value in self._values.get(index, ())}

    def with_label(self, label: str, value: str) -> list[CacheEntry]:
        if label not in self._labels:
            self._index_label(label)
        return self.group((_LABEL + label, value))

    def in_namespace(self, namespace: str) -> list[CacheEntry]:
        return self.group((_NAMESPACE, namespace))

    def owned_by(self, uid: str) -> list[CacheEntry]:
        assert uid, "an empty uid owns nothing"
        return self.group((_OWNER, uid))

    def declare(self, index: Index[T]) -> None:
        """Add an index; one name means one thing."""
        known = self._indexes.setdefault(index.name, index)
        assert known.values == index.values, f"two indexes are called {index.name}"
        if known is index:
            self._shape += 1
            for entry in self.entries():
                self.put(entry)

    def has_index(self, name: str) -> bool:
        return name in self._indexes

    def entry_for(self, obj: T | Unreadable) -> CacheEntry:
        """What the cache keeps of an object; the entry it has already, if that is the same."""
        metadata = obj.metadata
        ref = Ref(metadata.namespace, metadata.name)
        version = int(metadata.resource_version or 0)
        known = self._entries.get(ref)
        if known is not None and known.version == version and known.uid == metadata.uid:
            return known
        if isinstance(obj, Unreadable):
            terms = self._interned(self._metadata_terms(metadata), known)
            body, error = obj.body, obj.error
        else:
            body, (terms, error) = encode(obj), self._found_under(obj, known)
        return CacheEntry(ref, metadata.uid, version, body, terms, self._shape, error)

    def put(self, entry: CacheEntry, obj: T | None = None) -> None:
        """Take in a new state, decoded already if ``obj`` is given."""
        if entry.shape != self._shape:
            entry = self._reshaped(entry)
        known = self._entries.get(entry.ref)
        if known is not None and known.terms == entry.terms:
            self._decoded.pop(entry.ref, None)  # found where it was before, as nearly always
        else:
            self.remove(entry.ref)
            self._file(entry)
        self._entries[entry.ref] = entry
        if obj is not None and not entry.error:
            self._remember(entry, obj)

    def remove(self, ref: Ref) -> None:
        old = self._entries.pop(ref, None)
        if old is None:
            return
        self._decoded.pop(ref, None)
        for term in old.terms:
            group = self._groups[term]
            del group[ref]
            if not group:
                del self._groups[term]
                del self._values[term[0]][term[1]]
                self._terms.pop(term, None)

    def decode(self, entry: CacheEntry) -> T:
        """The object of an entry; only of one without an error."""
        assert not entry.error
        known = self._decoded.get(entry.ref)
        if known is not None and known[0] is entry:
            return known[1]
        obj = self._model.decode(entry.body)
        if self._entries.get(entry.ref) is entry:
            self._remember(entry, obj)
        return obj

    def _file(self, entry: CacheEntry) -> None:
        for term in entry.terms:
            group = self._groups.get(term)
            if group is None:
                group = self._groups[term] = {}
                self._values.setdefault(term[0], {})[term[1]] = None
            group[entry.ref] = None

    def _remember(self, entry: CacheEntry, obj: T) -> None:
        self._decoded[entry.ref] = (entry, obj)
        if len(self._decoded) > DECODED_MAX:
            self._decoded.popitem(last=False)

    def _all_terms(self, obj: T) -> list[Term]:
        terms = self._metadata_terms(obj.metadata)
        for name, index in self._indexes.items():
            terms += [(name, value) for value in index.values(obj)]
        return terms

    def _metadata_terms(self, metadata: ObjectMeta) -> list[Term]:
        terms = [(_NAMESPACE, metadata.namespace)]
        terms += [(_OWNER, owner.uid) for owner in metadata.owner_references]
        for label in self._labels:
            if (value := metadata.labels.get(label)) is not None:
                terms.append((_LABEL + label, value))
        return terms

    def _interned(self, found: list[Term], known: CacheEntry | None = None) -> tuple[Term, ...]:
        """Each term once, and the same object wherever it occurs; those that are known already, if
        they are the same."""
        terms = tuple(found)
        if known is not None and known.terms == terms:
            return known.terms
        return tuple(dict.fromkeys(self._terms.setdefault(term, term) for term in terms))

    def _index_label(self, label: str) -> None:
        self._labels[label] = None
        self._shape += 1
        for entry in self.entries():
            self.put(entry)

    def _reshaped(self, entry: CacheEntry) -> CacheEntry:
        """The same object under the indexes there are now."""
        if entry.error:
            metadata = _described.decode(entry.body).metadata
            terms, error = self._interned(self._metadata_terms(metadata)), entry.error
        else:
            terms, error = self._found_under(self.decode(entry))
        return msgspec.structs.replace(entry, terms=terms, shape=self._shape, error=error)

    def _found_under(self, obj: T, known: CacheEntry | None = None) -> tuple[tuple[Term, ...], str]:
        """Where an object is found; one that an index function chokes on counts as unreadable."""
        try:
            return self._interned(self._all_terms(obj), known), ""
        except Exception as error:
            terms = self._interned(self._metadata_terms(obj.metadata))
            return terms, f"an index function raised {error!r}"


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

    def with_label(self, label: str, value: str) -> list[T]:
        return self._decoded(self._cache.with_label(label, value))

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
