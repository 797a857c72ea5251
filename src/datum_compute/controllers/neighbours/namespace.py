"""A terminating namespace is emptied, then removed. For planes without a Kubernetes beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import KINDS, NAMESPACE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Later, Outcome
from datum_compute.runtime.view import View

ROLES = ("platform", "project", "hub", "cell")
RECHECK_S = 10.0

_NAMESPACED = tuple(kind for kind in KINDS if kind.namespaced)


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.need(key.plane)
    namespace = view.read(NAMESPACE).get(key.ref)
    if namespace is None or not namespace.is_terminating:
        return Done()
    name = namespace.metadata.name
    remaining = [(kind, obj) for kind in _NAMESPACED for obj in view.read(kind).in_namespace(name)]
    for kind, obj in remaining:
        if not obj.is_terminating:
            await view.delete(kind, ref_of(obj), uid=obj.metadata.uid)
    if remaining or await _holds_anything(view, name):
        return Later(RECHECK_S)
    await view.client.finalize_namespace(namespace)
    return Done()


async def _holds_anything(view: View, name: str) -> bool:
    """Asked of the plane itself: a cache may not have seen the newest object."""
    for kind in _NAMESPACED:
        if (await view.client.list(kind, name)).items:
            return True
    return False


def to_terminating_namespace(view: View, change: Change[Any]) -> Iterable[Key]:
    namespace = view.cached(NAMESPACE).get(Ref("", change.latest.metadata.namespace))
    if namespace is not None and namespace.is_terminating:
        yield Key(view.plane, Ref("", namespace.metadata.name))


CONTROLLERS = tuple(
    Controller(
        name=f"namespace-{role}",
        role=role,
        kind=NAMESPACE,
        reconcile=reconcile,
        watches=tuple(watches(role, kind, to_terminating_namespace) for kind in _NAMESPACED),
        workers=1,
    )
    for role in ROLES
)
