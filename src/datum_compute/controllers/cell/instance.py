"""Instance -> its gates and its Ready condition."""

from __future__ import annotations

from collections.abc import Callable

from datum_compute.api.errors import Conflict
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import INSTANCE
from datum_compute.controllers.cell import networkgate, quotagate
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.gates import FIRST_WORD_S, Decision, is_too_soon
from datum_compute.planning.readiness import plan_readiness
from datum_compute.runtime.controller import MANY_WORKERS, Controller, for_
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Later, Outcome

# Who decides which gate, from what the planes hold; None: not his business for this instance.
# planning/gates.py says how to add one.
Decide = Callable[[Context, Key, Instance], Decision | None]
DECIDERS: tuple[Decide, ...] = (networkgate.decide_network, quotagate.decide_quota)


async def reconcile(context: Context, key: Key) -> Outcome:
    instance = context.planes.need(key.plane).read(INSTANCE).get(key.ref)
    if instance is None:
        return Done()
    decided = (decide(context, key, instance) for decide in DECIDERS)
    decisions = [decision for decision in decided if decision is not None]
    if is_too_soon(instance, decisions, quotagate.waiting_s(context, instance)):
        return Later(FIRST_WORD_S)
    plan = plan_readiness(key.plane, instance, decisions, context.now())
    try:
        return await carry_out(context.planes, plan)
    except Conflict:
        # Others write too. Who waits is looked at in time, however often that happens.
        if plan.requeue_after_s is None:
            raise
        return Later(plan.requeue_after_s)


CONTROLLER = Controller(
    name="instance",
    role="cell",
    reconcile=reconcile,
    edges=(for_(INSTANCE), *networkgate.EDGES, *quotagate.EDGES),
    workers=MANY_WORKERS,
)
