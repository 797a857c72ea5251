"""Carries out plans, and tells users what that means. The only file of the room that writes to
planes."""

from __future__ import annotations

from typing import assert_never

from datum_compute.api.meta import ApiObject
from datum_compute.controllers.notices import is_told_about, notices
from datum_compute.planes.planes import Planes
from datum_compute.planning.actions import (
    Action,
    Create,
    Delete,
    Patch,
    PatchStatus,
    Plan,
    Wait,
)
from datum_compute.runtime.outcome import Done, Later, Outcome


async def carry_out(planes: Planes, plan: Plan) -> Outcome:
    """All actions in order; the first failure ends it, and the next pass plans anew."""
    for action in plan.actions:
        observed = _observed(planes, action)
        if await _carry_out(planes, action):
            for notice in notices(action, observed):
                planes.tell(notice)
    return Done() if plan.requeue_after_s is None else Later(plan.requeue_after_s)


async def _carry_out(planes: Planes, action: Action) -> bool:
    """Whether something was done."""
    match action:
        case Wait() | Create(skipped=True) | Delete(skipped=True):
            return False
        case Create(plane, kind, obj):
            await planes.need(plane).create(kind, obj)
        case Delete(plane, kind, ref, uid, _, version):
            await planes.need(plane).delete(kind, ref, uid=uid, version=version)
        case Patch(plane, kind, ref, patch):
            await planes.need(plane).patch(kind, ref, patch)
        case PatchStatus(plane, kind, ref, version, status):
            await planes.need(plane).patch_status(kind, ref, status, version=version)
        case _:
            assert_never(action)
    return True


def _observed(planes: Planes, action: Action) -> ApiObject | None:
    """The object before the action, for those that users are told about."""
    if isinstance(action, Wait | Create) or not is_told_about(action.plane, action.kind):
        return None
    view = planes.find(action.plane)
    if view is None or view.informer(action.kind) is None:
        return None
    observed: ApiObject | None = view.cached(action.kind).get(action.ref)
    return observed
