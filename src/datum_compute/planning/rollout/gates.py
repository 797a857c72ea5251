"""Scheduling gates: what must happen before an Instance may have a machine.

Rules kept here:
- The list is open. A gate that nobody here knows holds the instance like any other, and Ready
  names it, until whoever put it there removes it.
- A gate goes in the same pass that records its condition. The condition is written first, so a
  crash between the two leaves a gate that the next pass removes.
- Gates are removed one by one, by their name, never by writing the list: a writer with an old
  view is refused and can bring nothing back. Nothing here ever adds a gate to an instance that is
  there already.
- What was granted stays granted: when the gate is gone and its condition True, a decision that is
  not True is no longer recorded. Trouble of a neighbour never takes down what runs.

To add a gate:
1. Name it below with the condition that records it (``api/instance.py``); its reasons go into
   ``api/reasons.py`` (with a rank there, and an entry in ``planning/explain/explain.py``).
2. Put it on new instances: a line in ``ON_NEW_INSTANCES`` below.
3. Decide it: ``planning/<gate>.py`` with a pure ``decide_<gate>(instance, observed...) ->
   Decision``. The verdict's status is True (clear it), False (refused, and why) or Unknown (not
   decided yet). ``recheck_s`` bounds the wait if an event should be missed.
4. Observe for it: a function in ``DECIDERS`` of ``controllers/workload/instance.py`` reads what the
   decision needs and answers it, or None if the gate is not its business for this instance. The
   watches whose events change the decision belong to the same controller.
Whoever makes what the gate waits for (a claim, an address, a companion) is a controller of its own.
A condition other than True then competes for the Ready reason by itself
(planning/rollout/gates.py).

The Ready condition of an Instance: its status, reason and message.

Ready = Programmed and Available and no scheduling gates. Nothing else counts: not whether a process
runs (a sleeping instance serves), not a quota that was granted before.

An Instance that is not Ready reports the reason and message of the cause with the highest rank
(``api/reasons.py``); of equal ranks the first. A Pending condition and an undecided quota are no
cause.

The instance controller and the provisioner both write Ready, with ``ready_condition``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from datum_compute.api.codec import plain
from datum_compute.api.conditions import (
    EPOCH,
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionValue,
    find_condition,
    is_true,
    make_condition,
    with_condition,
)
from datum_compute.api.instance import (
    AVAILABLE,
    NETWORK_READY,
    PROGRAMMED,
    QUOTA_GRANTED,
    READY,
    REFERENCED_DATA_READY,
    Instance,
    SchedulingGate,
)
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.reasons import INSTANCE_RANK, QUOTA_DENIED_ON_INSTANCE, Reason
from datum_compute.api.references import references
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.initial_status import should_defer
from datum_compute.planning.jitter import with_jitter
from datum_compute.planning.plan import Action, ListItemRef, PatchStatus, Plan, RemoveListItems
from datum_compute.planning.rollout.stopping import stopping_verdict

# Gates that the platform knows by name.
NETWORK, QUOTA, REFERENCED_DATA = "Network", "Quota", "ReferencedData"

# The condition that says of each whether it is clear.
RECORDED_AS = {
    NETWORK: NETWORK_READY,
    QUOTA: QUOTA_GRANTED,
    REFERENCED_DATA: REFERENCED_DATA_READY,
}

# A plane that was never read may still be synchronizing for this long. After that the condition of
# the gate reports that it cannot be read.
FIRST_SYNC_S = 30.0

Applies = Callable[[WorkloadDeployment], bool]

# Gates of a new instance, each with the question whether it applies. In the order they are shown.
ON_NEW_INSTANCES: tuple[tuple[str, Applies], ...] = (
    (NETWORK, lambda _deployment: True),
    (QUOTA, lambda _deployment: True),
    (REFERENCED_DATA, lambda deployment: bool(references(deployment.spec.template))),
)


class Decision(msgspec.Struct, frozen=True):
    """What is known about one gate: the condition that records it, and the verdict.

    ``records`` are fields of the status that belong to the gate, written with its condition;
    ``fields`` are fields of the spec, written when the gate goes.
    """

    gate: str
    condition: str
    verdict: ConditionValue
    recheck_s: float | None = None
    records: Mapping[str, Any] = {}
    fields: Mapping[str, Any] = {}

    @property
    def is_clear(self) -> bool:
        return self.verdict.status == TRUE


def first_gates(deployment: WorkloadDeployment) -> list[SchedulingGate]:
    return [SchedulingGate(name=name) for name, applies in ON_NEW_INSTANCES if applies(deployment)]


def waiting_s(instance: Instance, unix_s: float) -> float:
    """Return the age of the instance. The conditions of a new one have the time 1970."""
    return unix_s - parse_timestamp(instance.metadata.creation_timestamp or EPOCH)


def gate_names(instance: Instance) -> list[str]:
    return [gate.name for gate in instance.spec.controller.scheduling_gates]


def find_quota_denial(instance_conditions: Iterable[Condition]) -> Condition | None:
    """Return QuotaGranted if it is False. A quota that is not decided yet is not denied."""
    quota = find_condition(instance_conditions, QUOTA_GRANTED)
    return quota if quota is not None and quota.status == FALSE else None


def is_quota_denied(instance: Instance) -> bool:
    return find_quota_denial(instance.status.conditions) is not None


def are_going(instance: Instance) -> bool:
    """Whether every gate is on record as clear: whoever recorded the last one removes them now."""
    conditions = instance.status.conditions
    return all(is_true(conditions, RECORDED_AS.get(name, "")) for name in gate_names(instance))


def recorded(instance: Instance, decisions: Sequence[Decision], now: str) -> list[Condition]:
    """The conditions of the instance with every decision in its own."""
    conditions = instance.status.conditions
    held = gate_names(instance)
    for decision in decisions:
        if decision.gate in held or not _is_past(conditions, decision):
            generation = instance.metadata.generation
            new = make_condition(
                decision.condition, decision.verdict, generation=generation, now=now
            )
            conditions = with_condition(conditions, new)
    return conditions


def _is_past(conditions: Sequence[Condition], decision: Decision) -> bool:
    """Whether a decision about a gate that is gone would say nothing new, or take it back."""
    old = find_condition(conditions, decision.condition)
    if old is None:
        return False
    unchanged = (old.status, old.reason, old.message) == decision.verdict
    return unchanged or (old.status == TRUE and not decision.is_clear)


def remaining_gates(instance: Instance, decisions: Sequence[Decision]) -> list[str]:
    clear = {decision.gate for decision in decisions if decision.is_clear}
    return [name for name in gate_names(instance) if name not in clear]


def plan_removal(
    plane: PlaneName, instance: Instance, decisions: Sequence[Decision]
) -> list[RemoveListItems]:
    """All gates that have become clear, in one patch."""
    stays = set(remaining_gates(instance, decisions))
    items = tuple(
        ListItemRef(f"/spec/controller/schedulingGates/{index}", "name", name)
        for index, name in enumerate(gate_names(instance))
        if name not in stays
    )
    if not items:
        return []
    fields = {n: value for d in decisions if d.is_clear for n, value in d.fields.items()}
    ref, uid = ref_of(instance), instance.metadata.uid
    return [RemoveListItems(plane, INSTANCE, ref, uid, items, "clear now", fields)]


def should_defer_gates(instance: Instance, decision: Decision, now: str) -> bool:
    """Return True if the gates of a new instance are not recorded yet, because one is undecided.

    They are then recorded in one write, when all of them are decided.
    """
    undecided = decision.verdict.status == UNKNOWN and decision.gate in gate_names(instance)
    return undecided and should_defer(instance, (), now)


def recheck_s(instance: Instance, decisions: Sequence[Decision]) -> float | None:
    """The soonest time at which an undecided gate should be looked at again, spread a little so
    that a thousand instances do not ask together."""
    held = gate_names(instance)
    asked = [d.recheck_s for d in decisions if d.gate in held and not d.is_clear]
    soonest = min((seconds for seconds in asked if seconds is not None), default=None)
    return None if soonest is None else with_jitter(soonest, ref_of(instance))


_UNTOLD = (Reason.PENDING, Reason.PENDING_PROGRAMMING)
# Conditions that never speak for themselves. Running was the name of Available once: objects that
# still carry it must not be believed.
_SILENT = (READY, PROGRAMMED, QUOTA_GRANTED, "Running")


def plan_readiness(
    plane: PlaneName, instance: Instance, decisions: Sequence[Decision], now: str
) -> Plan:
    """Record the decisions and Ready in one write, then remove the gates that are clear."""
    conditions = recorded(instance, decisions, now)
    gates = remaining_gates(instance, decisions)
    new = ready_condition(instance, conditions, gates, now)
    conditions = with_condition(conditions, new)
    actions: list[Action] = []
    records = {name: value for d in decisions for name, value in d.records.items()}
    if records or not _says_the_same(instance, conditions):
        version = instance.metadata.resource_version
        status = {"conditions": plain(conditions), **records}
        reason = f"{READY} is {new.status}: {new.reason}"
        actions.append(PatchStatus(plane, INSTANCE, ref_of(instance), version, status, reason))
    if not instance.is_terminating:
        actions += plan_removal(plane, instance, decisions)
    return Plan(tuple(actions), requeue_after_s=recheck_s(instance, decisions))


def is_ready_said(instance: Instance) -> bool:
    """Whether Ready, of an instance without gates, is what follows from its other conditions."""
    conditions = instance.status.conditions
    ready = ready_condition(instance, conditions, (), EPOCH)
    return _says_the_same(instance, with_condition(conditions, ready))


def _says_the_same(instance: Instance, conditions: Sequence[Condition]) -> bool:
    """Also if only the generation is new, while no machine has been seen: the first word about the
    machine brings the generation along."""
    old = instance.status.conditions
    if conditions == old:
        return True
    programmed = find_condition(conditions, PROGRAMMED)
    unseen = programmed is not None and programmed.reason == Reason.PENDING
    gated = bool(instance.spec.controller.scheduling_gates)
    return unseen and not gated and [_words(c) for c in conditions] == [_words(c) for c in old]


def ready_condition(
    instance: Instance, conditions: Sequence[Condition], gates: Sequence[str], now: str
) -> Condition:
    if instance.is_terminating:
        verdict = stopping_verdict(instance)
    else:
        verdict = ready_verdict(conditions, gates)
    return make_condition(READY, verdict, generation=instance.metadata.generation, now=now)


def observed_ready(instance: Instance, now: str) -> Condition:
    """Ready as it follows from what the instance says now."""
    return ready_condition(instance, instance.status.conditions, gate_names(instance), now)


def ready_verdict(conditions: Sequence[Condition], gates: Sequence[str]) -> ConditionValue:
    if gates:
        message = f"Scheduling gates present: {', '.join(gates)}"
        held = ConditionValue(FALSE, Reason.SCHEDULING_GATES_PRESENT, message)
        return _worst(held, 0, [*_quota(conditions), *_others(conditions)])
    programmed = find_condition(conditions, PROGRAMMED)
    if programmed is None or programmed.status != TRUE:
        return _unprogrammed(conditions, programmed)
    available = find_condition(conditions, AVAILABLE)
    if available is None or available.status != TRUE:
        if available is None or available.reason == Reason.PENDING:
            return ConditionValue(FALSE, Reason.PENDING, "Instance is not available")
        return _words(available)
    return ConditionValue(TRUE, Reason.AVAILABLE, "Instance is ready")


def _unprogrammed(conditions: Sequence[Condition], programmed: Condition | None) -> ConditionValue:
    verdict = ConditionValue(FALSE, Reason.PENDING_PROGRAMMING, "Instance has not been programmed")
    candidates = [*_others(conditions)]
    if programmed is None or programmed.reason in _UNTOLD:
        return _worst(verdict, -1, candidates)
    return _worst(_words(programmed), 0, [*candidates, _words(programmed)])


def _worst(
    first: ConditionValue, rank: int, candidates: Sequence[ConditionValue]
) -> ConditionValue:
    """The one with the highest rank; ``first`` has the given rank, ties keep the earlier."""
    for candidate in candidates:
        other = INSTANCE_RANK.get(candidate.reason, 0)
        if other > rank:
            first, rank = candidate, other
    return first


def _quota(conditions: Sequence[Condition]) -> Iterator[ConditionValue]:
    denial = find_quota_denial(conditions)
    if denial is not None:
        yield ConditionValue(FALSE, QUOTA_DENIED_ON_INSTANCE, denial.message)


def _others(conditions: Sequence[Condition]) -> Iterator[ConditionValue]:
    for condition in conditions:
        if condition.type in _SILENT or condition.status == TRUE:
            continue
        if condition.reason not in _UNTOLD:
            yield _words(condition)


def _words(condition: Condition) -> ConditionValue:
    return ConditionValue(condition.status, condition.reason, condition.message)
