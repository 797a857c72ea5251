"""Scheduling gates of an Instance and its Ready condition.

A scheduling gate names what must happen before an Instance may have a machine. Rules:
- Other components may add gates of their own. Such a gate blocks the instance like any other, and
  Ready reports it, until the component removes it.
- A gate is removed in the pass that records its condition. The condition is written first, so a
  crash between the two writes leaves a gate that the next pass removes.
- Gates are removed item by item, by name, and never by writing the whole list. So a write from a
  stale cache conflicts and cannot restore a gate. No controller adds a gate to an existing
  instance.
- A granted decision stays granted. When the gate is gone and its condition is True, a decision that
  is not True is not recorded, so that a failure of a dependency never stops a running instance.

Ready is True if Programmed and Available are True and no scheduling gate is left. It does not
depend on a running process, because a sleeping instance serves too, nor on the present state of a
quota that was granted before.
An Instance that is not Ready reports the reason and message of the cause with the highest rank
(``planning/reasons.py``); ties go to the first. A Pending condition and an undecided quota are not
causes. The instance controller and the provisioner both write Ready, with ``ready_condition``.

To add a gate:
1. Name it below with its condition (``api/compute/instance.py``). Add its reasons to
   ``api/conditions.py``, with a rank to ``planning/reasons.py``, and to
   ``planning/explain/advice.py``.
2. Add a line to ``INITIAL_GATES``, so that new instances get it.
3. Write a pure function in ``planning`` that decides the gate from observed objects, such as
   ``decide_quota_gate`` in ``planning/quota/claims.py``. The status of its result is True (clear
   the gate), False (refused, with the reason) or Unknown (not decided yet).
4. Write a function in ``controllers/gates.py`` that reads these objects and returns the Decision,
   or None if the gate does not apply to the instance. ``recheck_s`` limits the delay after a missed
   event. Add the function to ``DECIDERS`` of ``controllers/workload/instance.py``, and the watches
   whose events change the decision to the same controller.
The object that the gate waits for (a claim, an address, a copy) has its own controller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import (
    AVAILABLE,
    NETWORK_READY,
    PROGRAMMED,
    QUOTA_GRANTED,
    READY,
    REFERENCED_DATA_READY,
    Instance,
    SchedulingGate,
)
from datum_compute.api.compute.referenced_data import references
from datum_compute.api.conditions import (
    EPOCH,
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    is_true,
    make_condition,
    with_condition,
)
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.planes import PlaneName
from datum_compute.planning.initial_status import should_defer
from datum_compute.planning.plan import Action, ListItemRef, PatchStatus, Plan, RemoveListItems
from datum_compute.planning.reasons import (
    QUOTA_DENIED_ON_INSTANCE,
    TOO_LITTLE_QUOTA,
    rank_of,
    worst_cause,
)
from datum_compute.planning.rollout.stopping import stopping_value
from datum_compute.planning.rollout.suspension import halt_reason, halted_ready

# Gates that the platform decides.
NETWORK, QUOTA, REFERENCED_DATA = "Network", "Quota", "ReferencedData"

# The condition that records the decision of each gate.
CONDITION_OF_GATE = {
    NETWORK: NETWORK_READY,
    QUOTA: QUOTA_GRANTED,
    REFERENCED_DATA: REFERENCED_DATA_READY,
}

# A plane that was never read may still be synchronizing for this long. After that the condition of
# the gate reports that it cannot be read.
FIRST_SYNC_S = 30.0

IsRequired = Callable[[WorkloadDeployment], bool]

# Gates of a new instance in display order, each with a function that decides if it is required.
INITIAL_GATES: tuple[tuple[str, IsRequired], ...] = (
    (NETWORK, lambda _deployment: True),
    (QUOTA, lambda _deployment: True),
    (REFERENCED_DATA, lambda deployment: bool(references(deployment.spec.template))),
)


class Decision(msgspec.Struct, frozen=True):
    """The decision about one gate, with the condition that records it.

    ``status_fields`` are written with the condition, ``spec_fields`` when the gate is removed.
    """

    gate: str
    condition: str
    value: ConditionValue
    recheck_s: float | None = None
    status_fields: Mapping[str, Any] = {}
    spec_fields: Mapping[str, Any] = {}

    @property
    def is_clear(self) -> bool:
        return self.value.status == TRUE


def initial_gates(deployment: WorkloadDeployment) -> list[SchedulingGate]:
    return [SchedulingGate(name=name) for name, applies in INITIAL_GATES if applies(deployment)]


def instance_age_s(instance: Instance, unix_s: float) -> float:
    """Return the age by creation time. Transition times of initial conditions are ``EPOCH``."""
    return unix_s - parse_timestamp(instance.metadata.creation_timestamp or EPOCH)


def gate_names(instance: Instance) -> list[str]:
    return [gate.name for gate in instance.spec.controller.scheduling_gates]


def find_quota_denial(instance_conditions: Iterable[Condition]) -> Condition | None:
    """Return QuotaGranted if it denies the quota: it is False, or the project has no budget.

    A quota that is not decided yet is not denied.
    """
    quota = find_condition(instance_conditions, QUOTA_GRANTED)
    if quota is None or quota.status == TRUE:
        return None
    return quota if quota.status == FALSE or quota.reason == Reason.QUOTA_NO_BUDGET else None


def is_quota_denied(instance: Instance) -> bool:
    return find_quota_denial(instance.status.conditions) is not None


def is_quota_exceeded(instance: Instance | None) -> bool:
    """Return True if the instance never had a machine because the project has too little quota.

    Quota that was granted stays granted, so an instance without a Quota gate is not affected.
    """
    if instance is None or not instance.spec.controller.scheduling_gates:
        return False  # the usual case, checked for each instance in each pass
    if instance.is_terminating or QUOTA not in gate_names(instance):
        return False
    denial = find_quota_denial(instance.status.conditions)
    return denial is not None and denial.reason in TOO_LITTLE_QUOTA


def all_gates_cleared(instance: Instance) -> bool:
    """Return True if the condition of every remaining gate is True.

    The reconcile that writes the last of these conditions also removes the gates.
    """
    conditions = instance.status.conditions
    return all(
        is_true(conditions, CONDITION_OF_GATE.get(name, "")) for name in gate_names(instance)
    )


def conditions_with_decisions(
    instance: Instance, decisions: Sequence[Decision], now: str
) -> list[Condition]:
    """Return the conditions of the instance, updated with every decision."""
    conditions = instance.status.conditions
    present = gate_names(instance)
    for decision in decisions:
        if decision.gate in present or not _is_superseded(conditions, decision):
            generation = instance.metadata.generation
            new = make_condition(decision.condition, decision.value, generation=generation, now=now)
            conditions = with_condition(conditions, new)
    return conditions


def _is_superseded(conditions: Sequence[Condition], decision: Decision) -> bool:
    """Return True if a decision about a removed gate is not to be recorded.

    It is recorded already, or it would revoke a granted decision.
    """
    old = find_condition(conditions, decision.condition)
    if old is None:
        return False
    unchanged = (old.status, old.reason, old.message) == decision.value
    return unchanged or (old.status == TRUE and not decision.is_clear)


def remaining_gates(instance: Instance, decisions: Sequence[Decision]) -> list[str]:
    clear = {decision.gate for decision in decisions if decision.is_clear}
    return [name for name in gate_names(instance) if name not in clear]


def plan_gate_removal(
    plane: PlaneName, instance: Instance, decisions: Sequence[Decision]
) -> list[RemoveListItems]:
    """Remove all gates that have become clear, in one patch."""
    stays = set(remaining_gates(instance, decisions))
    items = tuple(
        ListItemRef(f"/spec/controller/schedulingGates/{index}", "name", name)
        for index, name in enumerate(gate_names(instance))
        if name not in stays
    )
    if not items:
        return []
    spec_fields = {n: value for d in decisions if d.is_clear for n, value in d.spec_fields.items()}
    ref, uid = ref_of(instance), instance.metadata.uid
    return [RemoveListItems(plane, INSTANCE, ref, uid, items, "gates are clear", spec_fields)]


def should_defer_gates(instance: Instance, decision: Decision, now: str) -> bool:
    """Return True if no decision is recorded yet, because this gate of a new instance is undecided.

    All decisions are then recorded in one write when the last gate is decided.
    """
    undecided = decision.value.status == UNKNOWN and decision.gate in gate_names(instance)
    undecided = undecided and decision.value.reason != Reason.QUOTA_NO_BUDGET
    return undecided and should_defer(instance, (), now)


def recheck_s(instance: Instance, decisions: Sequence[Decision]) -> float | None:
    """Return the delay until the next recheck of a gate that is not clear."""
    present = gate_names(instance)
    delays = [d.recheck_s for d in decisions if d.gate in present and not d.is_clear]
    return min((seconds for seconds in delays if seconds is not None), default=None)


_PENDING_REASONS = (Reason.PENDING, Reason.PENDING_PROGRAMMING)
# Conditions that are not causes, or that ``ready_value`` handles separately. Running is the former
# name of Available, which objects of an old release may still have.
_IGNORED_CONDITIONS = (READY, PROGRAMMED, QUOTA_GRANTED, "Running")


def plan_readiness(
    plane: PlaneName, instance: Instance, decisions: Sequence[Decision], now: str
) -> Plan:
    """Record the decisions and Ready in one write, then remove the gates that are clear."""
    conditions = conditions_with_decisions(instance, decisions, now)
    gates = remaining_gates(instance, decisions)
    new = ready_condition(instance, conditions, gates, now)
    conditions = with_condition(conditions, new)
    actions: list[Action] = []
    status_fields = {name: value for d in decisions for name, value in d.status_fields.items()}
    if status_fields or not _needs_no_write(instance, conditions):
        version = instance.metadata.resource_version
        status = {"conditions": to_json(conditions), **status_fields}
        reason = f"{READY} is {new.status}: {new.reason}"
        actions.append(PatchStatus(plane, INSTANCE, ref_of(instance), version, status, reason))
    if not instance.is_terminating:
        actions += plan_gate_removal(plane, instance, decisions)
    return Plan(tuple(actions), requeue_after_s=recheck_s(instance, decisions))


def is_ready_current(instance: Instance) -> bool:
    """Return True if Ready of an instance without gates matches its other conditions."""
    conditions = instance.status.conditions
    ready = ready_condition(instance, conditions, (), EPOCH)
    return _needs_no_write(instance, with_condition(conditions, ready))


def _needs_no_write(instance: Instance, conditions: Sequence[Condition]) -> bool:
    """Return True if the conditions are recorded already.

    A difference in ``observedGeneration`` alone is ignored while an instance without gates has no
    machine report yet. The first report writes the new generation.
    """
    old = instance.status.conditions
    if conditions == old:
        return True
    programmed = find_condition(conditions, PROGRAMMED)
    unseen = programmed is not None and programmed.reason == Reason.PENDING
    gated = bool(instance.spec.controller.scheduling_gates)
    return (
        unseen
        and not gated
        and [_condition_value(c) for c in conditions] == [_condition_value(c) for c in old]
    )


def ready_condition(
    instance: Instance, conditions: Sequence[Condition], gates: Sequence[str], now: str
) -> Condition:
    halted = halt_reason(instance.spec.controller)
    if instance.is_terminating:
        value = stopping_value(instance)
    elif halted is not None:
        value = halted_ready(halted, conditions, gates)
    else:
        value = ready_value(conditions, gates)
    return make_condition(READY, value, generation=instance.metadata.generation, now=now)


def observed_ready(instance: Instance, now: str) -> Condition:
    """Return the Ready condition that follows from the recorded conditions and gates."""
    return ready_condition(instance, instance.status.conditions, gate_names(instance), now)


def ready_value(conditions: Sequence[Condition], gates: Sequence[str]) -> ConditionValue:
    """Return the value of Ready of an instance that is neither terminating nor halted.

    The module docstring describes the rules.

    ``gates`` are the names of the gates that are left.
    """
    if gates:
        message = f"Scheduling gates present: {', '.join(gates)}"
        gated = ConditionValue(FALSE, Reason.SCHEDULING_GATES_PRESENT, message)
        candidates = (gated, *_quota_cause(conditions), *_other_causes(conditions))
        return worst_cause(candidates) or gated
    programmed = find_condition(conditions, PROGRAMMED)
    if programmed is None or programmed.status != TRUE:
        return _not_programmed(conditions, programmed)
    available = find_condition(conditions, AVAILABLE)
    if available is None or available.status != TRUE:
        if available is None or available.reason == Reason.PENDING:
            return ConditionValue(FALSE, Reason.PENDING, "Instance is not available")
        return _condition_value(available)
    return ConditionValue(TRUE, Reason.AVAILABLE, "Instance is ready")


def _not_programmed(
    conditions: Sequence[Condition], programmed: Condition | None
) -> ConditionValue:
    """Return the value of Ready of an instance whose machine is not set up.

    While programming is in progress, Programmed is Unknown. Ready is False then, because the
    instance does not serve. A provider can set Programmed to Unknown for another reason, for
    example because it cannot observe a machine that serves. Ready is Unknown then.
    """
    value = ConditionValue(FALSE, Reason.PENDING_PROGRAMMING, "Instance has not been programmed")
    causes = [*_other_causes(conditions)]
    if programmed is not None and programmed.reason not in _PENDING_REASONS:
        value = _condition_value(programmed)
        if value.reason == Reason.PROGRAMMING_IN_PROGRESS:
            value = value._replace(status=FALSE)
        causes.append(value)
    worst, rank = worst_cause(causes), min(rank_of(value.reason), 0)
    return worst if worst is not None and rank_of(worst.reason) > rank else value


def _quota_cause(conditions: Sequence[Condition]) -> Iterator[ConditionValue]:
    denial = find_quota_denial(conditions)
    if denial is not None:
        yield ConditionValue(FALSE, QUOTA_DENIED_ON_INSTANCE, denial.message)


def _other_causes(conditions: Sequence[Condition]) -> Iterator[ConditionValue]:
    for condition in conditions:
        if condition.type in _IGNORED_CONDITIONS or condition.status == TRUE:
            continue
        if condition.reason not in _PENDING_REASONS:
            yield _condition_value(condition)


def _condition_value(condition: Condition) -> ConditionValue:
    return ConditionValue(condition.status, condition.reason, condition.message)
