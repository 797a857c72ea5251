"""The Ready condition of an Instance: its status, reason and message.

Ready = Programmed and Available and no scheduling gates. Nothing else counts: not whether a process
runs (a sleeping instance serves), not a quota that was granted before.

An Instance that is not Ready reports the reason and message of the cause with the highest rank
(``api/reasons.py``); of equal ranks the first. A Pending condition and an undecided quota are no
cause.

The instance controller and the provisioner both write Ready, with ``ready_condition``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from datum_compute.api.codec import plain
from datum_compute.api.conditions import (
    EPOCH,
    FALSE,
    TRUE,
    Condition,
    Verdict,
    decided,
    find_condition,
    with_condition,
)
from datum_compute.api.instance import AVAILABLE, PROGRAMMED, QUOTA_GRANTED, READY, Instance
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.reasons import INSTANCE_RANK, QUOTA_DENIED_ON_INSTANCE, Reason
from datum_compute.planning.plan import Action, PatchStatus, Plan
from datum_compute.planning.rollout.gates import (
    Decision,
    find_quota_denial,
    gate_names,
    plan_removal,
    recheck_s,
    recorded,
    remaining_gates,
)
from datum_compute.planning.rollout.stopping import stopping_verdict

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
    return decided(READY, verdict, generation=instance.metadata.generation, now=now)


def observed_ready(instance: Instance, now: str) -> Condition:
    """Ready as it follows from what the instance says now."""
    return ready_condition(instance, instance.status.conditions, gate_names(instance), now)


def ready_verdict(conditions: Sequence[Condition], gates: Sequence[str]) -> Verdict:
    if gates:
        message = f"Scheduling gates present: {', '.join(gates)}"
        held = Verdict(FALSE, Reason.SCHEDULING_GATES_PRESENT, message)
        return _worst(held, 0, [*_quota(conditions), *_others(conditions)])
    programmed = find_condition(conditions, PROGRAMMED)
    if programmed is None or programmed.status != TRUE:
        return _unprogrammed(conditions, programmed)
    available = find_condition(conditions, AVAILABLE)
    if available is None or available.status != TRUE:
        if available is None or available.reason == Reason.PENDING:
            return Verdict(FALSE, Reason.PENDING, "Instance is not available")
        return _words(available)
    return Verdict(TRUE, Reason.AVAILABLE, "Instance is ready")


def _unprogrammed(conditions: Sequence[Condition], programmed: Condition | None) -> Verdict:
    verdict = Verdict(FALSE, Reason.PENDING_PROGRAMMING, "Instance has not been programmed")
    candidates = [*_others(conditions)]
    if programmed is None or programmed.reason in _UNTOLD:
        return _worst(verdict, -1, candidates)
    return _worst(_words(programmed), 0, [*candidates, _words(programmed)])


def _worst(first: Verdict, rank: int, candidates: Sequence[Verdict]) -> Verdict:
    """The one with the highest rank; ``first`` has the given rank, ties keep the earlier."""
    for candidate in candidates:
        other = INSTANCE_RANK.get(candidate.reason, 0)
        if other > rank:
            first, rank = candidate, other
    return first


def _quota(conditions: Sequence[Condition]) -> Iterator[Verdict]:
    denial = find_quota_denial(conditions)
    if denial is not None:
        yield Verdict(FALSE, QUOTA_DENIED_ON_INSTANCE, denial.message)


def _others(conditions: Sequence[Condition]) -> Iterator[Verdict]:
    for condition in conditions:
        if condition.type in _SILENT or condition.status == TRUE:
            continue
        if condition.reason not in _UNTOLD:
            yield _words(condition)


def _words(condition: Condition) -> Verdict:
    return Verdict(condition.status, condition.reason, condition.message)
