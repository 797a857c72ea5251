"""Instance -> its gates and its Ready condition."""

from __future__ import annotations

from collections.abc import Callable

from datum_compute.api.errors import Conflict
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import INSTANCE
from datum_compute.controllers import gates as datagate
from datum_compute.controllers import gates as networkgate
from datum_compute.controllers import gates as quotagate
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.initial_status import INITIAL_STATUS_S
from datum_compute.planning.rollout.gates import (
    Decision,
    are_going,
    is_ready_said,
    plan_readiness,
    should_defer_gates,
)
from datum_compute.runtime.controller import (
    MANY_WORKERS,
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
)

# Reads what a gate needs and decides it; None if it does not apply to this instance.
# ``planning/rollout/gates.py`` describes how to add one.
Decide = Callable[[Context, Key, Instance], Decision | None]
DECIDERS: tuple[Decide, ...] = (
    quotagate.decide_quota,  # first, because it is what a new instance waits for
    networkgate.decide_network,
    datagate.decide_data,
)


async def reconcile(context: Context, key: Key) -> Outcome:
    instance = context.planes.require(key.plane).read(INSTANCE).get(key.ref)
    if instance is None:
        return Done()
    decisions = list[Decision]()
    for decide in DECIDERS:
        decision = decide(context, key, instance)
        if decision is not None and should_defer_gates(instance, decision, context.now()):
            return Requeue(INITIAL_STATUS_S)
        if decision is not None:
            decisions.append(decision)
    if any(quotagate.clears_gate(decision) for decision in decisions):
        await quotagate.confirm_grant(context, key, instance)
    plan = plan_readiness(key.plane, instance, decisions, context.now())
    try:
        return await carry_out(context.planes, plan)
    except Conflict:
        # Another controller wrote first. Keep the recheck delay instead of a backoff.
        if plan.requeue_after_s is None:
            raise
        return Requeue(plan.requeue_after_s)


def concerns_readiness(_old: Instance, new: Instance) -> bool:
    """Return False for our own writes: all gates recorded as clear, or Ready up to date.

    Without gates only Ready is left to write, and the provisioner usually writes it together with
    the conditions that it follows from.
    """
    if new.spec.controller.scheduling_gates:
        return new.is_terminating or not are_going(new)
    return not is_ready_said(new)


CONTROLLER = Controller(
    name="instance",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE, update_filter=concerns_readiness),
        *networkgate.NETWORK_EDGES,
        *quotagate.EDGES,
        *datagate.DATA_EDGES,
    ),
    indexes=(datagate.WAITING,),
    workers=MANY_WORKERS,
)
