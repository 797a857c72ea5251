"""Controllers of subnets: the prefix of a Subnet, and the Subnet of a SubnetClaim."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import IP_ALLOCATION, NETWORK, NETWORK_CONTEXT, SUBNET, SUBNET_CLAIM
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.networking.network import Network, Subnet
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.controllers.prefix_ledger import (
    USER_EDGES,
    USER_INDEXES,
    map_to_holder,
    observe_ledger,
    observe_prefix_user,
)
from datum_compute.planning.network.subnets import (
    plan_claim,
    plan_subnet,
    plan_subnet_removal,
    pool_of,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    for_,
    own_key,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    subnet = client.read(SUBNET).get(key.ref)
    if subnet is None:
        return Done()
    network = _network_of(client, subnet)
    ledger = observe_ledger(context, key.plane, subnet, pool_of(subnet, network))
    if subnet.is_terminating:
        users = {a.spec.cidr: observe_prefix_user(context, client, a.spec.cidr) for a in ledger.own}
        plan = plan_subnet_removal(key.plane, subnet, ledger, users)
    else:
        plan = plan_subnet(key.plane, subnet, network, ledger, context.now())
    return await apply_plan(context.planes, plan)


def _network_of(client: CachedClient, subnet: Subnet) -> Network | None:
    namespace = subnet.metadata.namespace
    context = client.read(NETWORK_CONTEXT).get(Ref(namespace, subnet.spec.network_context.name))
    if context is None:
        return None
    return client.read(NETWORK).get(Ref(namespace, context.spec.network.name))


def map_network(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a network to its subnets: an IPv6 subnet waits for the prefix of its network."""
    old, new = change.old, change.new
    if old is not None and new is not None and old.status.ipam == new.status.ipam:
        return
    for context in client.read_unsynced(NETWORK_CONTEXT).list_owned_by(change.latest.metadata.uid):
        for subnet in client.read_unsynced(SUBNET).list_owned_by(context.metadata.uid):
            yield Key(client.plane, ref_of(subnet))


SUBNET_CONTROLLER = Controller(
    name="subnet",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(SUBNET),
        reads(NETWORK_CONTEXT),
        watches(NETWORK, map_network),
        watches(IP_ALLOCATION, map_to_holder(SUBNET), on="platform"),
        *USER_EDGES,
    ),
    indexes=USER_INDEXES,
    finalizers=(labels.SUBNET_FINALIZER,),
)


# --- claims


async def reconcile_subnet_claim(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    claim = client.read(SUBNET_CLAIM).get(key.ref)
    if claim is None:
        return Done()
    context_ref = Ref(key.ref.namespace, claim.spec.network_context.name)
    plan = plan_claim(
        key.plane,
        claim,
        client.read(NETWORK_CONTEXT).get(context_ref),
        client.read(SUBNET).get(key.ref),
        context.now(),
    )
    return await apply_plan(context.planes, plan)


SUBNET_CLAIM_CONTROLLER = Controller(
    name="subnet-claim",
    role="project",
    reconcile=reconcile_subnet_claim,
    edges=(for_(SUBNET_CLAIM), reads(NETWORK_CONTEXT), watches(SUBNET, own_key)),
)
