"""Lookups follow every change of an object."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.meta import ApiObject, ObjectMeta, OwnerReference, Ref
from datum_compute.runtime.cache import Cache

objects = st.builds(
    lambda name, namespace, label, owner: ApiObject(
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


@given(st.lists(st.tuples(st.booleans(), objects), max_size=30))
def test_indexes_always_equal_a_scan(steps: list[tuple[bool, ApiObject]]) -> None:
    cache: Cache[ApiObject] = Cache()
    model: dict[Ref, ApiObject] = {}
    for keep, obj in steps:
        ref = Ref(obj.metadata.namespace, obj.metadata.name)
        if keep:
            cache.put(obj)
            model[ref] = obj
        else:
            assert cache.remove(ref) == model.pop(ref, None)
    for namespace in ("x", "y"):
        found = {o.metadata.name for o in cache.in_namespace(namespace)}
        assert found == {r.name for r in model if r.namespace == namespace}
    for city in ("DFW", "ORD"):
        expected = [o for o in model.values() if o.metadata.labels.get("city") == city]
        assert _names(cache.labelled("city", city)) == _names(expected)
    for uid in ("u1", "u2"):
        owned = [o for o in model.values() if uid in [w.uid for w in o.metadata.owner_references]]
        assert _names(cache.owned_by(uid)) == _names(owned)


def test_a_changed_label_moves_the_object_to_its_new_place() -> None:
    cache: Cache[ApiObject] = Cache()
    obj = ApiObject(metadata=ObjectMeta(name="a", labels={"city": "DFW"}))
    cache.put(obj)
    moved = msgspec.structs.replace(obj.metadata, labels={"city": "ORD"})
    cache.put(msgspec.structs.replace(obj, metadata=moved))
    assert cache.labelled("city", "DFW") == []
    assert len(cache.labelled("city", "ORD")) == 1


def _names(objects: list[ApiObject]) -> list[tuple[str, str]]:
    return sorted((o.metadata.namespace, o.metadata.name) for o in objects)
