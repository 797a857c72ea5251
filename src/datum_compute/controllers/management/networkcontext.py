"""NetworkContext -> a SubnetClaim for each address family; removed after its last binding."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import (
    NETWORK,
    NETWORK_BINDING,
    NETWORK_CONTEXT,
    SUBNET,
    SUBNET_CLAIM,
)
from datum_compute.api.meta import Ref
from datum_compute.api.networkcontext import NetworkContext
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.network.subnets import plan_context, subnet_name
from datum_compute.planning.presence import (
    context_ref,
    holders_of,
    network_ref,
    plan_context_removal,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, owns, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    found = view.read(NETWORK_CONTEXT).get(key.ref)
    if found is None or found.is_terminating:
        return Done()
    network = view.read(NETWORK).get(Ref(key.ref.namespace, found.spec.network.name))
    if network is None:
        return Done()  # the collector takes what a network leaves behind
    if not await _is_held(view, found):
        return await carry_out(context.planes, plan_context_removal(key.plane, found))
    names = [subnet_name(found, family) for family in found.spec.ip_families]
    claims, subnets = view.read(SUBNET_CLAIM), view.read(SUBNET)
    plan = plan_context(
        key.plane,
        found,
        network,
        {n: c for n in names if (c := claims.get(Ref(key.ref.namespace, n))) is not None},
        {n: s for n in names if (s := subnets.get(Ref(key.ref.namespace, n))) is not None},
        context.now(),
    )
    return await carry_out(context.planes, plan)


async def _is_held(view: CachedClient, context: NetworkContext) -> bool:
    """The cache is enough to see a holder; that there is none only the plane itself can say."""
    name = context.metadata.name
    cached = view.read(NETWORK_BINDING).with_label(labels.NETWORK_CONTEXT, name)
    if holders_of(context, cached):
        return True
    listed = await view.client.list(NETWORK_BINDING)
    return bool(holders_of(context, listed.items))


def from_binding(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Its coming and its going."""
    if change.old is None or change.new is None:
        binding = change.latest
        yield Key(view.plane, context_ref(network_ref(binding), binding.spec.location.name))


CONTROLLER = Controller(
    name="network-context",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(NETWORK_CONTEXT),
        owns(SUBNET_CLAIM),
        owns(SUBNET),
        watches(NETWORK_BINDING, from_binding),
    ),
)
