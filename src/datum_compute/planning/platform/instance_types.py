"""Status of an InstanceType, and the notice to workloads that use a type no longer offered.

The status records since when the type is deprecated, and whether its replacement can be used.

Copies of the InstanceTypes of the platform plane, on projects and cells.

- A copy is created Active and follows its original one step of the lifecycle at a time. The API
  allows no other change of the lifecycle.
- The resources of an InstanceType cannot be changed. If they differ, the copy is of an earlier
  original: it is deleted and created again.
- When the original is deleted, the copies on projects are deleted. Those on cells stay, because
  instances there may still have that size.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api.conditions import FALSE, TRUE, Condition, Verdict, with_verdicts
from datum_compute.api.instancetype import InstanceType, InstanceTypeLifecycle, InstanceTypeStatus
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.api.reasons import Reason
from datum_compute.planning.apply import plan_status
from datum_compute.planning.federation.mirror import (
    Marks,
    desired_copy,
    plan_copy_deletion,
    plan_mirror,
)
from datum_compute.planning.plan import Action, Plan

READY = "Ready"
_OF_WORKLOADS = {
    "Deprecated": Reason.INSTANCE_TYPE_DEPRECATED,
    "Disabled": Reason.INSTANCE_TYPE_DISABLED,
}
_VALID = Verdict(TRUE, Reason.VALID, "The instance type can be used")


def plan_instance_type(
    plane: PlaneName, instance_type: InstanceType, replacement: InstanceType | None, now: str
) -> Plan:
    if instance_type.is_terminating:
        return Plan()
    status = type_status(instance_type, replacement, now)
    return Plan(tuple(plan_status(plane, INSTANCE_TYPE, instance_type, status)))


def type_status(
    instance_type: InstanceType, replacement: InstanceType | None, now: str
) -> InstanceTypeStatus:
    """``replacement`` is the type that `spec.lifecycle` names, if it exists."""
    generation = instance_type.metadata.generation
    told = with_verdicts(
        instance_type.status.conditions,
        {READY: _verdict(instance_type, replacement)},
        generation=generation,
        now=now,
    )
    return InstanceTypeStatus(
        conditions=told,
        deprecated_at=_deprecated_at(instance_type, now),
        observed_generation=generation,
    )


def _deprecated_at(instance_type: InstanceType, now: str) -> str | None:
    if instance_type.spec.lifecycle.phase == "Active":
        return None
    return instance_type.status.deprecated_at or now


def _verdict(instance_type: InstanceType, replacement: InstanceType | None) -> Verdict:
    lifecycle = instance_type.spec.lifecycle
    name = lifecycle.replacement_instance_type
    if lifecycle.phase == "Active" or not name:
        return _VALID
    if replacement is None or replacement.is_terminating:
        message = f"There is no instance type {name}, which should be used instead"
        return Verdict(FALSE, Reason.REPLACEMENT_NOT_FOUND, message)
    if replacement.spec.lifecycle.phase == "Disabled":
        message = f"Instance type {name}, which should be used instead, is disabled itself"
        return Verdict(FALSE, Reason.REPLACEMENT_DISABLED, message)
    return _VALID


def with_size_notice(
    conditions: Sequence[Condition], used: InstanceType | None, *, generation: int, now: str
) -> list[Condition]:
    """The conditions of a workload, with one that tells of a type that is no longer offered; it
    goes when the workload has another. Of a type that is gone the last word stays."""
    if used is None:
        return list(conditions)
    phase = used.spec.lifecycle.phase
    reason = _OF_WORKLOADS.get(phase)
    kept = [c for c in conditions if c.type == reason or c.type not in _OF_WORKLOADS.values()]
    if reason is None:
        return kept
    instead = used.spec.lifecycle.replacement_instance_type
    advice = f"; use {instead} instead" if instead else ""
    message = f"Instance type {used.metadata.name} is {phase.lower()}{advice}"
    verdict = Verdict(TRUE, reason, message)
    return with_verdicts(kept, {reason: verdict}, generation=generation, now=now)


_PHASES = ("Active", "Deprecated", "Disabled")


def plan_copy(plane: PlaneName, original: InstanceType, copy: InstanceType | None) -> list[Action]:
    lifecycle = _next(original.spec.lifecycle, copy.spec.lifecycle if copy else None)
    spec = msgspec.structs.replace(original.spec, lifecycle=lifecycle)
    desired = msgspec.structs.replace(
        desired_copy(original, "", carry=Marks(), mark=Marks()), spec=spec
    )
    resized = copy is not None and copy.spec.resources != original.spec.resources
    return plan_mirror(
        plane,
        INSTANCE_TYPE,
        desired,
        copy,
        "as operators keep it",
        recreate="its resources are those of an earlier type" if resized else "",
    )


def plan_removal(plane: PlaneName, copy: InstanceType | None) -> list[Action]:
    """Plan the deletion of a copy without an original."""
    if plane_role(plane) == "cell":
        return []
    return plan_copy_deletion(plane, INSTANCE_TYPE, copy, "it is gone")


def _next(
    wanted: InstanceTypeLifecycle, present: InstanceTypeLifecycle | None
) -> InstanceTypeLifecycle:
    """Return the next step from the present lifecycle to the wanted one; never a step back."""
    if present is None:
        return InstanceTypeLifecycle()
    goal, here = _PHASES.index(wanted.phase), _PHASES.index(present.phase)
    phase = _PHASES[here + 1] if goal > here else _PHASES[here]
    return msgspec.structs.replace(wanted, phase=phase)
