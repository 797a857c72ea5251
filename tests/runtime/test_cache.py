"""Cache: every lookup equals a scan, whenever its index was added."""

from __future__ import annotations

from itertools import count

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.core import Namespace
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.meta.objects import ApiObject, ObjectMeta, OwnerReference, Ref
from datum_compute.client.responses import UndecodableObject as UnreadableAnswer
from datum_compute.runtime.cache import (
    DECODED_OBJECTS_MAX,
    Cache,
    Index,
    Lister,
    UnreadableObjectError,
)

objects = st.builds(
    lambda name, namespace, label, owner: Namespace(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            labels={"city": label} if label else {},
            owner_references=[OwnerReference(api_version="v1", kind="K", name="o", uid=owner)]
            if owner
            else [],
        )
    ),
    st.sampled_from("abc"),
    st.sampled_from(["x", "y"]),
    st.sampled_from(["", "DFW", "ORD"]),
    st.sampled_from(["", "u1", "u2"]),
)

FIRST_LETTER = Index(NAMESPACE, "first-letter", lambda obj: [obj.metadata.name[:1]])


def versioned(obj: Namespace, version: int) -> Namespace:
    metadata = msgspec.structs.replace(obj.metadata, resource_version=str(version))
    return msgspec.structs.replace(obj, metadata=metadata)


@given(
    st.lists(st.tuples(st.booleans(), objects), max_size=30),
    st.integers(0, 30),
)
def test_indexes_always_equal_a_scan(
    steps: list[tuple[bool, Namespace]], indexed_after: int
) -> None:
    cache: Cache[Namespace] = Cache(Namespace)
    found = Lister(cache)
    model: dict[Ref, Namespace] = {}
    versions = count(1)
    for number, (keep, changed) in enumerate(steps):
        obj = versioned(changed, next(versions))
        ref = Ref(obj.metadata.namespace, obj.metadata.name)
        entry = cache.entry_for(obj)
        if number == indexed_after:  # after the entry was created, before it is added
            cache.add_index(FIRST_LETTER)
            found.list_with_label("city", "DFW")
        if keep:
            cache.put(entry)
            model[ref] = obj
        else:
            cache.remove(ref)
            model.pop(ref, None)
    cache.add_index(FIRST_LETTER)
    for ref, obj in model.items():
        assert found.get(ref) == obj
    for namespace in ("x", "y"):
        names = {o.metadata.name for o in found.list_in_namespace(namespace)}
        assert names == {r.name for r in model if r.namespace == namespace}
    for city in ("DFW", "ORD"):
        expected = [o for o in model.values() if o.metadata.labels.get("city") == city]
        assert _names(found.list_with_label("city", city)) == _names(expected)
    for uid in ("u1", "u2"):
        owned = [o for o in model.values() if uid in [w.uid for w in o.metadata.owner_references]]
        assert _names(found.list_owned_by(uid)) == _names(owned)
    for letter in "abc":
        expected = [o for o in model.values() if o.metadata.name == letter]
        assert _names(found.list_by_index("first-letter", letter)) == _names(expected)
        assert found.counts("first-letter").get(letter, 0) == len(expected)
    assert found.uids() == {ref: obj.metadata.uid for ref, obj in model.items()}


def test_a_changed_label_moves_the_object_in_the_index() -> None:
    cache: Cache[Namespace] = Cache(Namespace)
    found = Lister(cache)
    for version, city in enumerate(("DFW", "ORD"), start=1):
        obj = Namespace(metadata=ObjectMeta(name="a", labels={"city": city}))
        cache.put(cache.entry_for(versioned(obj, version)))
    assert found.list_with_label("city", "DFW") == []
    assert len(found.list_with_label("city", "ORD")) == 1


def test_an_object_that_is_read_repeatedly_is_decoded_once() -> None:
    cache: Cache[Namespace] = Cache(Namespace)
    for number in range(DECODED_OBJECTS_MAX + 10):
        cache.put(cache.entry_for(Namespace(metadata=ObjectMeta(name=f"n{number}"))))
    found = Lister(cache)
    assert found.get(Ref("", "n5")) is found.get(Ref("", "n5"))
    assert len(found.all()) == DECODED_OBJECTS_MAX + 10


def test_only_a_lookup_that_needs_an_unreadable_object_fails() -> None:
    cache: Cache[Namespace] = Cache(Namespace)
    readable = Namespace(metadata=ObjectMeta(name="a", namespace="x"))
    unreadable = ObjectMeta(name="b", namespace="y", labels={"city": "DFW"}, resource_version="7")
    cache.put(cache.entry_for(readable))
    body = b'{"metadata":{"name":"b","namespace":"y","labels":{"city":"DFW"}},"spec":5}'
    cache.put(cache.entry_for(UnreadableAnswer(unreadable, body, "Expected object, got int")))
    strict, lenient = Lister(cache), Lister(cache, _strict=False)
    assert strict.list_in_namespace("x") == [readable]
    for lookup in (strict.all, lambda: strict.get(Ref("y", "b"))):
        with pytest.raises(UnreadableObjectError, match="y/b cannot be read: Expected object"):
            lookup()
    with pytest.raises(UnreadableObjectError):
        strict.list_with_label("city", "DFW")
    assert lenient.all() == [readable]
    assert lenient.get(Ref("y", "b")) is None


def test_an_index_function_that_raises_makes_only_that_object_unreadable() -> None:
    def by_city(obj: Namespace) -> list[str]:
        return [obj.metadata.labels["city"]]

    cache: Cache[Namespace] = Cache(Namespace)
    cache.add_index(Index(NAMESPACE, "city", by_city))
    for name, labels in (("a", {"city": "DFW"}), ("b", {})):
        cache.put(cache.entry_for(Namespace(metadata=ObjectMeta(name=name, labels=labels))))
    found = Lister(cache)
    assert [obj.metadata.name for obj in found.list_by_index("city", "DFW")] == ["a"]
    with pytest.raises(UnreadableObjectError, match="an index function raised KeyError"):
        found.get(Ref("", "b"))


def test_two_indexes_with_one_name_are_rejected() -> None:
    cache: Cache[Namespace] = Cache(Namespace)
    cache.add_index(FIRST_LETTER)
    cache.add_index(FIRST_LETTER)
    with pytest.raises(AssertionError, match="first-letter"):
        cache.add_index(Index(NAMESPACE, "first-letter", lambda _obj: ["another"]))


def _names(objects: list[Namespace] | list[ApiObject]) -> list[tuple[str, str]]:
    return sorted((o.metadata.namespace, o.metadata.name) for o in objects)
