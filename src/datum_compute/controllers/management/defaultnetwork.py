"""Create the default network in the namespace ``default`` of each project."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import NAMESPACE, NETWORK
from datum_compute.api.meta import Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planes.catalogue import default_network
from datum_compute.planning.network.networks import plan_default_network
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange

_DESIRED = default_network()
_NAMESPACE = Ref("", _DESIRED.metadata.namespace)


async def reconcile(context: Context, key: Key) -> Outcome:
    if key.ref != _NAMESPACE:
        return Done()
    view = context.planes.require(key.plane)
    namespace = view.read(NAMESPACE).get(key.ref)
    existing = view.read(NETWORK).get(ref_of(_DESIRED))
    plan = plan_default_network(key.plane, namespace, existing, _DESIRED)
    return await carry_out(context.planes, plan)


def from_network(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """The namespace of a default network that was deleted."""
    if change.new is None and ref_of(change.latest) == ref_of(_DESIRED):
        yield Key(view.plane, _NAMESPACE)


CONTROLLER = Controller(
    name="default-network",
    role="project",
    reconcile=reconcile,
    edges=(for_(NAMESPACE), watches(NETWORK, from_network)),
    workers=1,
)
