"""Dependents go when every owner they name is gone. For planes without a Kubernetes beside them.

One controller for all kinds of a plane, not one for each: with n kinds that would be n x n watches.
So its keys say the kind as well: the name of the object comes after that of its resource.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import KINDS, NAMESPACE, kind_of
from datum_compute.api.meta import ApiObject, KindInfo, OwnerReference, Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View

ROLES = ("platform", "project", "hub", "cell")

_BY_RESOURCE = {kind.resource: kind for kind in KINDS}


async def reconcile(context: Context, key: Key) -> Outcome:
    kind, ref = _named_by(key)
    if kind is None:
        return Done()  # a namespace as such: it has no owner
    view = context.planes.need(key.plane)
    obj = view.read(kind).get(ref)
    if obj is None or obj.is_terminating or not obj.metadata.owner_references:
        return Done()
    for owner in obj.metadata.owner_references:
        if not await _is_gone(view, obj, owner):
            return Done()
    await view.delete(kind, ref, uid=obj.metadata.uid)
    return Done()


async def _is_gone(view: View, dependent: ApiObject, owner: OwnerReference) -> bool:
    """By the cache if it is there; its absence is asked of the plane itself."""
    kind = kind_of(owner.api_version, owner.kind)
    if kind is None:
        return False
    ref = Ref(dependent.metadata.namespace if kind.namespaced else "", owner.name)
    cached = view.read(kind).get(ref)
    if cached is not None and cached.metadata.uid == owner.uid:
        return False
    try:
        live = await view.client.get(kind, ref)
    except NotFound:
        return True
    return bool(live.metadata.uid != owner.uid)


def _to_garbage(kind: KindInfo[Any]) -> Callable[[View, Change[Any]], Iterable[Key]]:
    """An object whose owners are news, and all dependents of one that is gone."""

    def to_keys(view: View, change: Change[Any]) -> Iterable[Key]:
        if change.new is not None:
            if _owners(change.new) != _owners(change.old):
                yield _key(view, kind, change.new)
        elif change.old is not None:
            for dependent_kind in KINDS:
                for dependent in view.cached(dependent_kind).owned_by(change.old.metadata.uid):
                    yield _key(view, dependent_kind, dependent)

    return to_keys


def _owners(obj: ApiObject | None) -> list[OwnerReference]:
    return obj.metadata.owner_references if obj is not None else []


def _key(view: View, kind: KindInfo[Any], obj: ApiObject) -> Key:
    ref = ref_of(obj)
    return Key(view.plane, Ref(ref.namespace, f"{kind.resource}/{ref.name}"))


def _named_by(key: Key) -> tuple[KindInfo[Any] | None, Ref]:
    resource, slash, name = key.ref.name.partition("/")
    return (_BY_RESOURCE[resource] if slash else None), Ref(key.ref.namespace, name)


CONTROLLERS = tuple(
    Controller(
        name=f"garbage-{role}",
        role=role,
        kind=NAMESPACE,
        reconcile=reconcile,
        watches=tuple(watches(role, kind, _to_garbage(kind)) for kind in KINDS),
    )
    for role in ROLES
)
