"""How a plane comes to offer the sizes that operators keep on the platform plane.

A copy is made Active and follows its original one step of the lifecycle at a time, because that is
the only way an InstanceType may go. A copy whose resources are not those of the original is of an
earlier one: it is removed and made again. A type that goes from the platform plane goes from the
projects too. On cells it stays, because instances there may still have that size.
"""

from __future__ import annotations

import msgspec

from datum_compute.api.instancetype import InstanceType, InstanceTypeLifecycle
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta import ObjectMeta, ref_of
from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.planning.actions import Action, Delete, Wait
from datum_compute.planning.objects import plan_object

_PHASES = ("Active", "Deprecated", "Disabled")


def plan_copy(plane: PlaneName, original: InstanceType, copy: InstanceType | None) -> list[Action]:
    name = original.metadata.name
    if copy is not None and copy.is_terminating:
        return [Wait(f"an earlier {name} is leaving {plane}")]
    if copy is not None and copy.spec.resources != original.spec.resources:
        reason = "its resources are those of an earlier type"
        return [Delete(plane, INSTANCE_TYPE, ref_of(copy), copy.metadata.uid, reason)]
    lifecycle = _next(original.spec.lifecycle, copy.spec.lifecycle if copy else None)
    desired = InstanceType(
        metadata=ObjectMeta(name=name),
        spec=msgspec.structs.replace(original.spec, lifecycle=lifecycle),
    )
    return plan_object(plane, INSTANCE_TYPE, desired, copy, "as operators keep it")


def plan_removal(plane: PlaneName, copy: InstanceType | None) -> list[Action]:
    """Of a copy without an original."""
    if copy is None or copy.is_terminating or plane_role(plane) == "cell":
        return []
    return [Delete(plane, INSTANCE_TYPE, ref_of(copy), copy.metadata.uid, "it is gone")]


def _next(
    wanted: InstanceTypeLifecycle, present: InstanceTypeLifecycle | None
) -> InstanceTypeLifecycle:
    """The wanted lifecycle, or the step towards it that may be taken now; never a step back."""
    if present is None:
        return InstanceTypeLifecycle()
    goal, here = _PHASES.index(wanted.phase), _PHASES.index(present.phase)
    phase = _PHASES[here + 1] if goal > here else _PHASES[here]
    return msgspec.structs.replace(wanted, phase=phase)
