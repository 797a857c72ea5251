"""Plan the status and the copies of InstanceTypes, and the condition of workloads that use them.

The status of a type records when it was deprecated, and whether its replacement can be used.

Types of the platform plane are copied to projects and cells:

- A copy is created Active and follows its original one step of the lifecycle at a time. The API
  allows no other change of the lifecycle.
- The resources of an InstanceType cannot be changed. If they differ, the copy is of an earlier
  original: it is deleted and created again.
- When the original is deleted, the copies on projects are moved to Disabled and deleted. Admission
  may refuse to delete a copy in another phase. Copies on cells stay, because instances there may
  still have that size.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api.compute.instance_type import (
    InstanceType,
    InstanceTypeLifecycle,
    InstanceTypeStatus,
)
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    ConditionValue,
    Reason,
    set_conditions,
)
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.planes import PlaneName, plane_role
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.federation.mirror import (
    Marks,
    desired_copy,
    plan_copy_deletion,
    plan_mirror,
)
from datum_compute.planning.plan import Action, Plan

READY = "Ready"
# Condition types of workloads by phase of their instance type.
_WORKLOAD_CONDITIONS = {
    "Deprecated": Reason.INSTANCE_TYPE_DEPRECATED,
    "Disabled": Reason.INSTANCE_TYPE_DISABLED,
}
_PHASES = ("Active", "Deprecated", "Disabled")
# The API requires a replacement of a type that is not Active. No type can have this name.
UNKNOWN_REPLACEMENT = "(unknown)"
_VALID = ConditionValue(TRUE, Reason.VALID, "The instance type can be used")


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
    """Return the status. ``replacement`` is the type that `spec.lifecycle` names, if it exists."""
    generation = instance_type.metadata.generation
    conditions = set_conditions(
        instance_type.status.conditions,
        {READY: _ready_verdict(instance_type, replacement)},
        generation=generation,
        now=now,
    )
    return InstanceTypeStatus(
        conditions=conditions,
        deprecated_at=_deprecated_at(instance_type, now),
        observed_generation=generation,
    )


def _deprecated_at(instance_type: InstanceType, now: str) -> str | None:
    if instance_type.spec.lifecycle.phase == "Active":
        return None
    return instance_type.status.deprecated_at or now


def _ready_verdict(instance_type: InstanceType, replacement: InstanceType | None) -> ConditionValue:
    lifecycle = instance_type.spec.lifecycle
    name = lifecycle.replacement_instance_type
    if lifecycle.phase == "Active" or not name:
        return _VALID
    if replacement is None or replacement.is_terminating:
        message = f"The replacement instance type {name} does not exist"
        return ConditionValue(FALSE, Reason.REPLACEMENT_NOT_FOUND, message)
    if replacement.spec.lifecycle.phase == "Disabled":
        message = f"The replacement instance type {name} is disabled"
        return ConditionValue(FALSE, Reason.REPLACEMENT_DISABLED, message)
    return _VALID


def with_size_notice(
    conditions: Sequence[Condition], used: InstanceType | None, *, generation: int, now: str
) -> list[Condition]:
    """Return the conditions of a workload, with a notice if its instance type is not Active.

    The notice is removed when the workload uses an Active type. If the type is deleted, the
    conditions stay as they are.
    """
    if used is None:
        return list(conditions)
    phase = used.spec.lifecycle.phase
    reason = _WORKLOAD_CONDITIONS.get(phase)
    kept = [
        c for c in conditions if c.type == reason or c.type not in _WORKLOAD_CONDITIONS.values()
    ]
    if reason is None:
        return kept
    replacement = used.spec.lifecycle.replacement_instance_type
    is_known = replacement not in ("", UNKNOWN_REPLACEMENT)
    advice = f"; use {replacement} instead" if is_known else ""
    message = f"Instance type {used.metadata.name} is {phase.lower()}{advice}"
    verdict = ConditionValue(TRUE, reason, message)
    return set_conditions(kept, {reason: verdict}, generation=generation, now=now)


# --- copies


def plan_copy(plane: PlaneName, original: InstanceType, copy: InstanceType | None) -> list[Action]:
    lifecycle = _next_lifecycle(original.spec.lifecycle, copy.spec.lifecycle if copy else None)
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
        "copy of the platform's instance type",
        recreate="its resources are those of an earlier original" if resized else "",
    )


def plan_removal(plane: PlaneName, copy: InstanceType | None) -> list[Action]:
    """Plan the next step of the removal of a copy without an original.

    A copy that missed phases of its original is Disabled first, one phase at a time. If it has no
    replacement yet, it gets ``UNKNOWN_REPLACEMENT``, because the original cannot be read any more.
    """
    if copy is None or plane_role(plane) == "cell":
        return []
    current = copy.spec.lifecycle
    if current.phase == "Disabled" or copy.is_terminating:
        return plan_copy_deletion(plane, INSTANCE_TYPE, copy, "the original is deleted")
    replacement = current.replacement_instance_type or UNKNOWN_REPLACEMENT
    disabled = InstanceTypeLifecycle(phase="Disabled", replacement_instance_type=replacement)
    spec = msgspec.structs.replace(copy.spec, lifecycle=_next_lifecycle(disabled, current))
    desired = msgspec.structs.replace(copy, spec=spec)
    return plan_object(plane, INSTANCE_TYPE, desired, copy, "the original is deleted")


def _next_lifecycle(
    desired: InstanceTypeLifecycle, current: InstanceTypeLifecycle | None
) -> InstanceTypeLifecycle:
    """Return the next step from the current lifecycle to the desired one; never a step back."""
    if current is None:
        return InstanceTypeLifecycle()
    goal, index = _PHASES.index(desired.phase), _PHASES.index(current.phase)
    phase = _PHASES[index + 1] if goal > index else _PHASES[index]
    return msgspec.structs.replace(desired, phase=phase)
