"""NetworkBinding -> the NetworkContext it needs, and whether that is ready."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import LOCATION_BINDING, NETWORK, NETWORK_BINDING, NETWORK_CONTEXT
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.networkcontext import NetworkContext
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.presence import (
    Surroundings,
    binding_labels,
    context_ref,
    network_ref,
    plan_binding,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    binding = view.read(NETWORK_BINDING).get(key.ref)
    if binding is None:
        return Done()
    network, location = network_ref(binding), binding.spec.location.name
    around = Surroundings(
        network=view.read(NETWORK).get(network),
        location=view.read(LOCATION_BINDING).get(Ref("", location)),
        context=view.read(NETWORK_CONTEXT).get(context_ref(network, location)),
    )
    return await carry_out(context.planes, plan_binding(key.plane, binding, around, context.now()))


def _labelled(view: CachedClient, label: str, value: str) -> Iterable[Key]:
    for binding in view.cached(NETWORK_BINDING).with_label(label, value):
        yield Key(view.plane, ref_of(binding))


def from_context(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    return _labelled(view, labels.NETWORK_CONTEXT, change.latest.metadata.name)


def concerns_bindings(old: NetworkContext, new: NetworkContext) -> bool:
    """Not who took hold of it last."""
    before, after = old.metadata, new.metadata
    return (
        (old.spec, old.status) != (new.spec, new.status)
        or before.owner_references != after.owner_references
        or before.deletion_timestamp != after.deletion_timestamp
    )


def from_network(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Its numbers, its coming and its going; not its status."""
    old, new = change.old, change.new
    if old is not None and new is not None and old.metadata.generation == new.metadata.generation:
        return []
    named = binding_labels(ref_of(change.latest), "")[labels.NETWORK]
    return _labelled(view, labels.NETWORK, named)


def from_location(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.old is not None and change.new is not None:
        return []
    named = binding_labels(Ref("", ""), change.latest.metadata.name)[labels.LOCATION]
    return _labelled(view, labels.LOCATION, named)


CONTROLLER = Controller(
    name="network-binding",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(NETWORK_BINDING),
        watches(NETWORK_CONTEXT, from_context, update_filter=concerns_bindings),
        watches(NETWORK, from_network),
        watches(LOCATION_BINDING, from_location),
    ),
)
