"""When an Instance is Ready, and what it says when it is not.

Ready = Programmed and Available and no scheduling gates.
"""

from __future__ import annotations

from datum_compute.api.codec import plain
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    Verdict,
    decided,
    find_condition,
    with_condition,
)
from datum_compute.api.instance import AVAILABLE, PROGRAMMED, READY, Instance
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.planning.actions import PatchStatus, Plan

_UNTOLD = ("Pending", "PendingProgramming")


def plan_readiness(plane: PlaneName, instance: Instance, now: str) -> Plan:
    """Write the Ready condition, which is all this decision owns of the status."""
    new = ready_condition(instance, now)
    conditions = with_condition(instance.status.conditions, new)
    if conditions == instance.status.conditions:
        return Plan()
    version = instance.metadata.resource_version
    status = {"conditions": plain(conditions)}
    patch = PatchStatus(plane, INSTANCE, ref_of(instance), version, status, new.reason)
    return Plan((patch,))


def ready_condition(instance: Instance, now: str) -> Condition:
    return decided(READY, _verdict(instance), generation=instance.metadata.generation, now=now)


def _verdict(instance: Instance) -> Verdict:
    if instance.is_terminating:
        return Verdict(FALSE, "Stopping", "Instance is being removed")
    gates = [gate.name for gate in instance.spec.controller.scheduling_gates]
    if gates:
        return Verdict(
            FALSE, "SchedulingGatesPresent", f"Scheduling gates present: {', '.join(gates)}"
        )
    programmed = find_condition(instance.status.conditions, PROGRAMMED)
    if programmed is None or programmed.status != TRUE:
        if programmed is None or programmed.reason in _UNTOLD:
            return Verdict(FALSE, "PendingProgramming", "Instance has not been programmed")
        return Verdict(programmed.status, programmed.reason, programmed.message)
    available = find_condition(instance.status.conditions, AVAILABLE)
    if available is None or available.status != TRUE:
        if available is None or available.reason == "Pending":
            return Verdict(FALSE, "Pending", "Instance is not available")
        return Verdict(available.status, available.reason, available.message)
    return Verdict(TRUE, "Available", "Instance is ready")
