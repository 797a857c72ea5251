"""Controllers of networks in a project.

- ``network``: the prefix of a Network, and its release.
- ``network-binding``: the NetworkContext of a NetworkBinding, and whether the context is ready.
- ``network-context``: a SubnetClaim for each address family; the context is deleted after its last
  binding.
- ``default-network``: the default network in the namespace ``default`` of each project.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import (
    IP_ALLOCATION,
    LOCATION_BINDING,
    NAMESPACE,
    NETWORK,
    NETWORK_BINDING,
    NETWORK_CONTEXT,
    SUBNET,
    SUBNET_CLAIM,
)
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.networking.network import NetworkContext
from datum_compute.api.planes import PLATFORM
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.controllers.prefix_ledger import map_to_holder, observe_ledger
from datum_compute.planes.catalogue import default_network
from datum_compute.planning.network.networks import (
    CONTEXT_RECHECK_S,
    BindingInputs,
    binding_labels,
    context_ref,
    holders_of,
    network_ref,
    plan_binding,
    plan_context_removal,
    plan_default_network,
    plan_network,
)
from datum_compute.planning.network.prefixes import IPV6_NETWORKS, allocation_name, pool_label
from datum_compute.planning.network.subnets import plan_context, subnet_name
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    owns,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import generation_changed, never, value_changed


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    network = client.read(NETWORK).get(key.ref)
    if network is None:
        return Done()
    contexts = client.read(NETWORK_CONTEXT).list_owned_by(network.metadata.uid)
    ledger = observe_ledger(context, key.plane, network, IPV6_NETWORKS)
    prefix = network.status.ipam.ipv6_prefix
    recorded = context.planes.require(PLATFORM).read(IP_ALLOCATION)
    prefixes_in_use = (
        len(recorded.list_with_label(labels.POOL, pool_label(prefix))) if prefix else 0
    )
    plan = plan_network(key.plane, network, contexts, ledger, prefixes_in_use, context.now())
    return await apply_plan(context.planes, plan)


def map_context(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted context to its network, which may wait for its last context to be deleted."""
    found = change.latest
    if change.new is None:
        yield Key(client.plane, Ref(found.metadata.namespace, found.spec.network.name))


def map_inner_allocation(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted allocation to the network from whose prefix it was cut.

    A terminating network waits for the last such allocation. The network is found as the holder of
    the prefix that was the pool.
    """
    if change.new is None:
        pool = client.read_unsynced(IP_ALLOCATION).get(
            Ref("", allocation_name(change.latest.spec.pool))
        )
        if pool is not None:
            yield from _to_network(client, ObjectChange(None, pool))


_to_network = map_to_holder(NETWORK)

NETWORK_CONTROLLER = Controller(
    name="network",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(NETWORK),
        watches(NETWORK_CONTEXT, map_context),
        watches(IP_ALLOCATION, _to_network, on="platform"),
        watches(IP_ALLOCATION, map_inner_allocation, on="platform"),
    ),
    finalizers=(labels.NETWORK_FINALIZER,),
)


# --- bindings


async def reconcile_binding(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    binding = client.read(NETWORK_BINDING).get(key.ref)
    if binding is None:
        return Done()
    network, location = network_ref(binding), binding.spec.location.name
    inputs = BindingInputs(
        network=client.read(NETWORK).get(network),
        location=client.read(LOCATION_BINDING).get(Ref("", location)),
        context=client.read(NETWORK_CONTEXT).get(context_ref(network, location)),
    )
    return await apply_plan(context.planes, plan_binding(key.plane, binding, inputs, context.now()))


def _bindings_with_label(client: CachedClient, label: str, value: str) -> Iterable[Key]:
    for binding in client.read_unsynced(NETWORK_BINDING).list_with_label(label, value):
        yield Key(client.plane, ref_of(binding))


def map_binding_context(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    return _bindings_with_label(client, labels.NETWORK_CONTEXT, change.latest.metadata.name)


def _without_annotations(context: NetworkContext) -> object:
    """Return what bindings read. The annotation of the holder changes with every binding."""
    metadata = context.metadata
    return context.spec, context.status, metadata.owner_references, metadata.deletion_timestamp


def map_network(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a network to its bindings."""
    value = binding_labels(ref_of(change.latest), "")[labels.NETWORK]
    return _bindings_with_label(client, labels.NETWORK, value)


def map_location(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    value = binding_labels(Ref("", ""), change.latest.metadata.name)[labels.LOCATION]
    return _bindings_with_label(client, labels.LOCATION, value)


BINDING_CONTROLLER = Controller(
    name="network-binding",
    role="project",
    reconcile=reconcile_binding,
    edges=(
        for_(NETWORK_BINDING),
        watches(
            NETWORK_CONTEXT, map_binding_context, update_filter=value_changed(_without_annotations)
        ),
        watches(NETWORK, map_network, update_filter=generation_changed),
        watches(LOCATION_BINDING, map_location, update_filter=never),
    ),
)


# --- contexts


async def reconcile_context(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    found = client.read(NETWORK_CONTEXT).get(key.ref)
    if found is None or found.is_terminating:
        return Done()
    network = client.read(NETWORK).get(Ref(key.ref.namespace, found.spec.network.name))
    if network is None:
        return Done()  # the garbage collector deletes the context
    if not _has_cached_bindings(client, found):
        if await _has_bindings(client, found):
            # No event follows if the list was answered from an older state.
            return Requeue(CONTEXT_RECHECK_S)
        return await apply_plan(context.planes, plan_context_removal(key.plane, found))
    names = [subnet_name(found, family) for family in found.spec.ip_families]
    claims, subnets = client.read(SUBNET_CLAIM), client.read(SUBNET)
    plan = plan_context(
        key.plane,
        found,
        network,
        {n: c for n in names if (c := claims.get(Ref(key.ref.namespace, n))) is not None},
        {n: s for n in names if (s := subnets.get(Ref(key.ref.namespace, n))) is not None},
        context.now(),
    )
    return await apply_plan(context.planes, plan)


def _has_cached_bindings(client: CachedClient, context: NetworkContext) -> bool:
    name = context.metadata.name
    cached = client.read(NETWORK_BINDING).list_with_label(labels.NETWORK_CONTEXT, name)
    return bool(holders_of(context, cached))


async def _has_bindings(client: CachedClient, context: NetworkContext) -> bool:
    """Return True if a live list contains a binding that uses the context."""
    listed = await client.uncached.list(NETWORK_BINDING)
    return bool(holders_of(context, listed.items))


def map_binding(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a created or deleted binding to its context."""
    if change.old is None or change.new is None:
        binding = change.latest
        yield Key(client.plane, context_ref(network_ref(binding), binding.spec.location.name))


CONTEXT_CONTROLLER = Controller(
    name="network-context",
    role="project",
    reconcile=reconcile_context,
    edges=(
        for_(NETWORK_CONTEXT),
        owns(SUBNET_CLAIM),
        owns(SUBNET),
        watches(NETWORK_BINDING, map_binding),
    ),
)


# --- default network

_DESIRED = default_network()
_NAMESPACE = Ref("", _DESIRED.metadata.namespace)


async def reconcile_default_network(context: Context, key: Key) -> Outcome:
    if key.ref != _NAMESPACE:
        return Done()
    client = context.planes.require(key.plane)
    namespace = client.read(NAMESPACE).get(key.ref)
    existing = client.read(NETWORK).get(ref_of(_DESIRED))
    plan = plan_default_network(key.plane, namespace, existing, _DESIRED)
    return await apply_plan(context.planes, plan)


def map_default_network(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted default network to its namespace."""
    if change.new is None and ref_of(change.latest) == ref_of(_DESIRED):
        yield Key(client.plane, _NAMESPACE)


DEFAULT_NETWORK_CONTROLLER = Controller(
    name="default-network",
    role="project",
    reconcile=reconcile_default_network,
    edges=(for_(NAMESPACE), watches(NETWORK, map_default_network)),
    workers=1,
)
