"""Dependents go when every owner they name is gone. For planes without a Kubernetes beside them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import KINDS, kind_of
from datum_compute.api.meta import ApiObject, KindInfo, OwnerReference, Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View

ROLES = ("platform", "project", "hub", "cell")


def _reconcile(kind: KindInfo[Any]) -> Callable[[Context, Key], Awaitable[Outcome]]:
    async def reconcile(context: Context, key: Key) -> Outcome:
        view = context.planes.need(key.plane)
        obj = view.read(kind).get(key.ref)
        if obj is None or obj.is_terminating or not obj.metadata.owner_references:
            return Done()
        for owner in obj.metadata.owner_references:
            if not await _is_gone(view, obj, owner):
                return Done()
        await view.delete(kind, key.ref, uid=obj.metadata.uid)
        return Done()

    return reconcile


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


def _from_gone_owner(kind: KindInfo[Any]) -> Callable[[View, Change[Any]], Iterable[Key]]:
    def to_keys(view: View, change: Change[Any]) -> Iterable[Key]:
        if change.new is None and change.old is not None:
            for dependent in view.cached(kind).owned_by(change.old.metadata.uid):
                yield Key(view.plane, ref_of(dependent))

    return to_keys


def _controllers(role: str) -> list[Controller[Context]]:
    return [
        Controller(
            name=f"garbage-{role}-{kind.plural}",
            role=role,
            kind=kind,
            reconcile=_reconcile(kind),
            watches=tuple(watches(role, owner, _from_gone_owner(kind)) for owner in KINDS),
            workers=1,
        )
        for kind in KINDS
    ]


CONTROLLERS = tuple(controller for role in ROLES for controller in _controllers(role))
