"""Copies of the InstanceTypes of the platform plane, on projects and cells.

- A copy is created Active and follows its original one step of the lifecycle at a time. The API
  allows no other change of the lifecycle.
- The resources of an InstanceType cannot be changed. If they differ, the copy is of an earlier
  original: it is deleted and created again.
- When the original is deleted, the copies on projects are deleted. Those on cells stay, because
  instances there may still have that size.
"""

from __future__ import annotations

import msgspec

from datum_compute.api.instancetype import InstanceType, InstanceTypeLifecycle
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.plane import PlaneName, plane_role
from datum_compute.planning.federation.mirror import (
    Marks,
    desired_copy,
    plan_copy_deletion,
    plan_mirror,
)
from datum_compute.planning.plan import Action

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
