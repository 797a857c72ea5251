"""Network -> its prefix on record, and its release when nobody uses it any more."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import IP_ALLOCATION, NETWORK, NETWORK_CONTEXT
from datum_compute.api.meta import Ref
from datum_compute.api.plane import PLATFORM
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.prefix_ledger import observe_ledger, to_holder
from datum_compute.planning.network.networks import plan_network
from datum_compute.planning.network.prefixes import IPV6_NETWORKS, allocation_name, pool_label
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    network = view.read(NETWORK).get(key.ref)
    if network is None:
        return Done()
    contexts = view.read(NETWORK_CONTEXT).owned_by(network.metadata.uid)
    ledger = observe_ledger(context, key.plane, network, IPV6_NETWORKS)
    prefix = network.status.ipam.ipv6_prefix
    recorded = context.planes.require(PLATFORM).read(IP_ALLOCATION)
    inside = len(recorded.with_label(labels.POOL, pool_label(prefix))) if prefix else 0
    plan = plan_network(key.plane, network, contexts, ledger, inside, context.now())
    return await carry_out(context.planes, plan)


def from_context(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """A network that is going waits for its last context."""
    found = change.latest
    if change.new is None:
        yield Key(view.plane, Ref(found.metadata.namespace, found.spec.network.name))


def from_inside(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """A network that is going waits for the last prefix that was cut from its own. Who holds its
    own is on record beside it."""
    if change.new is None:
        pool = view.cached(IP_ALLOCATION).get(Ref("", allocation_name(change.latest.spec.pool)))
        if pool is not None:
            yield from _to_network(view, ObjectChange(None, pool))


_to_network = to_holder(NETWORK)

CONTROLLER = Controller(
    name="network",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(NETWORK),
        watches(NETWORK_CONTEXT, from_context),
        watches(IP_ALLOCATION, _to_network, on="platform"),
        watches(IP_ALLOCATION, from_inside, on="platform"),
    ),
    finalizers=(labels.NETWORK_FINALIZER,),
)
