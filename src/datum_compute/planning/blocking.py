"""Why instances that are wanted are not ready: counts per reason, and who speaks for them all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from datum_compute.api.conditions import FALSE, Verdict, find_condition
from datum_compute.api.instance import READY, Instance
from datum_compute.api.reasons import (
    DEPLOYMENT_RANK,
    INSTANCE_RANK,
    QUOTA_DENIED_ON_DEPLOYMENT,
    QUOTA_DENIED_ON_INSTANCE,
    Reason,
    as_deployment_reason,
)
from datum_compute.api.workload import BlockedReplicas
from datum_compute.planning.rollout.gates import NETWORK, gate_names
from datum_compute.planning.rollout.slots import Slots
from datum_compute.planning.rollout.stopping import stopping_verdict


def blocked_slots(slots: Slots, wanted: int) -> list[BlockedReplicas]:
    """Ready and blocked together are all that is wanted."""
    causes = [
        cause_of(slots.held.get(number)) for number in range(wanted) if number not in slots.ready
    ]
    return _counted((verdict.reason, 1, verdict.message) for verdict in causes)


def blocked_sum(parts: Iterable[Sequence[BlockedReplicas]]) -> list[BlockedReplicas]:
    return _counted((b.reason, b.replicas, b.message) for blocked in parts for b in blocked)


def _counted(found: Iterable[tuple[str, int, str]]) -> list[BlockedReplicas]:
    """By rank, then by reason; the message is that of the first."""
    counts: dict[str, int] = {}
    messages: dict[str, str] = {}
    for reason, replicas, message in found:
        counts[reason] = counts.get(reason, 0) + replicas
        messages.setdefault(reason, message)
    ordered = sorted(counts, key=lambda reason: (-INSTANCE_RANK.get(reason, 0), reason))
    return [
        BlockedReplicas(reason=str(reason), replicas=counts[reason], message=messages[reason])
        for reason in ordered
    ]


def cause_of(instance: Instance | None) -> Verdict:
    if instance is None:
        return Verdict(FALSE, Reason.AWAITING_CREATION, "The instance is not created yet")
    if instance.is_terminating:
        return stopping_verdict(instance)
    ready = find_condition(instance.status.conditions, READY)
    if ready is None:
        return Verdict(FALSE, Reason.PENDING, "Nobody has looked at the instance yet")
    return Verdict(ready.status, ready.reason, ready.message)


def worst_cause(slots: Slots, wanted: int) -> tuple[Reason | str, str]:
    """What a deployment of which nothing is ready says: the highest rank, lowest ordinal first."""
    best = (Reason.INSTANCES_PROVISIONING, "No instances available yet")
    rank = DEPLOYMENT_RANK[Reason.INSTANCES_PROVISIONING]
    pending_quota = 0
    for number in range(wanted):
        instance = slots.held.get(number)
        if instance is None:
            continue
        verdict = cause_of(instance)
        pending_quota += verdict.reason == QUOTA_DENIED_ON_INSTANCE
        reason, message = _as_deployment(verdict, instance)
        if DEPLOYMENT_RANK.get(reason, 0) > rank:
            best, rank = (reason, message), DEPLOYMENT_RANK[reason]
    if best[0] == QUOTA_DENIED_ON_DEPLOYMENT:
        best = (best[0], f"{pending_quota} of {wanted} desired instances pending quota: {best[1]}")
    return best


def _as_deployment(verdict: Verdict, instance: Instance) -> tuple[Reason, str]:
    """Return the reason and message of a deployment for the cause of one of its instances."""
    if verdict.reason == Reason.SCHEDULING_GATES_PRESENT and gate_names(instance) == [NETWORK]:
        return Reason.NETWORK_PROVISIONING, "Waiting for the network"
    return as_deployment_reason(verdict.reason), verdict.message
