"""SubnetClaim -> the Subnet of its name, and what came of it."""

from __future__ import annotations

from datum_compute.api.kinds import NETWORK_CONTEXT, SUBNET, SUBNET_CLAIM
from datum_compute.api.meta import Ref
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.network.subnets import plan_claim
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


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    claim = view.read(SUBNET_CLAIM).get(key.ref)
    if claim is None:
        return Done()
    around = Ref(key.ref.namespace, claim.spec.network_context.name)
    plan = plan_claim(
        key.plane,
        claim,
        view.read(NETWORK_CONTEXT).get(around),
        view.read(SUBNET).get(key.ref),
        context.now(),
    )
    return await carry_out(context.planes, plan)


CONTROLLER = Controller(
    name="subnet-claim",
    role="project",
    reconcile=reconcile,
    edges=(for_(SUBNET_CLAIM), reads(NETWORK_CONTEXT), watches(SUBNET, own_key)),
)
