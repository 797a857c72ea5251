"""Instance controller: decides the scheduling gates of an Instance and writes its Ready condition.

``planning/rollout/gates.py`` contains the rules, ``controllers/gates.py`` reads what they need.
"""

from __future__ import annotations

from collections.abc import Callable

from datum_compute.api import labels
from datum_compute.api.compute.instance import Instance
from datum_compute.api.errors import Conflict
from datum_compute.api.kinds import INSTANCE
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.controllers.gates import (
    DATA_EDGES,
    NETWORK_EDGES,
    QUOTA_EDGES,
    WAITING_FOR_DATA,
    confirm_grant,
    decide_data,
    decide_network,
    decide_quota,
    log_quota_recheck,
    needs_grant,
)
from datum_compute.planning.initial_status import INITIAL_STATUS_S
from datum_compute.planning.rollout.gates import (
    Decision,
    all_gates_cleared,
    is_ready_current,
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

# A function that reads what a gate depends on and decides the gate. It returns None if the gate
# does not apply to the instance. ``planning/rollout/gates.py`` describes how to add a gate.
Decide = Callable[[Context, Key, Instance], Decision | None]
DECIDERS: tuple[Decide, ...] = (
    decide_quota,  # first, because it is what a new instance waits for
    decide_network,
    decide_data,
)


async def reconcile(context: Context, key: Key) -> Outcome:
    instance = context.planes.require(key.plane).read(INSTANCE).get(key.ref)
    if instance is None:
        log_quota_recheck(context, key, ())
        return Done()
    decisions = list[Decision]()
    for decide in DECIDERS:
        decision = decide(context, key, instance)
        if decision is not None and should_defer_gates(instance, decision, context.now()):
            return Requeue(INITIAL_STATUS_S)
        if decision is not None:
            decisions.append(decision)
    log_quota_recheck(context, key, decisions)
    if any(needs_grant(decision) for decision in decisions):
        await confirm_grant(context, key, instance)
    plan = plan_readiness(key.plane, instance, decisions, context.now())
    try:
        return await apply_plan(context.planes, plan)
    except Conflict:
        # Another controller wrote first. Keep the recheck delay instead of a backoff.
        if plan.requeue_after_s is None:
            raise
        return Requeue(plan.requeue_after_s)


def concerns_readiness(_old: Instance, new: Instance) -> bool:
    """Return False if this controller has nothing to write after the update.

    With gates, that is the case if all are recorded as clear, because the reconcile that recorded
    them removes them. Without gates only Ready is written, and the provisioner usually writes it
    together with the conditions on which it depends. It writes both conditions of an instance that
    is being deleted, until it has removed its finalizer.
    """
    if new.spec.controller.scheduling_gates:
        return new.is_terminating or not all_gates_cleared(new)
    if new.is_terminating and labels.PROVISIONER_FINALIZER in new.metadata.finalizers:
        return False
    return not is_ready_current(new)


CONTROLLER = Controller(
    name="instance",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE, update_filter=concerns_readiness),
        *NETWORK_EDGES,
        *QUOTA_EDGES,
        *DATA_EDGES,
    ),
    indexes=(WAITING_FOR_DATA,),
    workers=MANY_WORKERS,
)
