"""InstanceType of the platform plane -> its copy on every project and cell, and none on projects
when it is gone."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.instancetype import InstanceType
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PLATFORM, PlaneName, plane_role
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.catalogue import plan_copy, plan_removal
from datum_compute.planning.spread import spread
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, for_, watches
from datum_compute.runtime.informer import ObjectChange

COPIED_TO = ("project", "cell")
# A plane that joins later has the built-in sizes at once and the others after so long at most.
RESYNC_S = 300.0


async def reconcile(context: Context, key: Key) -> Outcome:
    original = context.planes.require(key.plane).read(INSTANCE_TYPE).get(key.ref)
    if original is not None and original.is_terminating:
        return Done()
    behind: Exception | None = None
    for plane in context.planes.engaged():
        if plane_role(plane) in COPIED_TO:
            try:
                await _settle(context, plane, original, key)
            except (NotSynced, ApiError, Unreachable) as error:
                behind = behind or error  # one that is away holds up no other
    if behind is not None:
        raise behind
    return Done() if original is None else Requeue(spread(RESYNC_S, key.ref))


async def _settle(
    context: Context, plane: PlaneName, original: InstanceType | None, key: Key
) -> None:
    copy = context.planes.require(plane).read(INSTANCE_TYPE).get(key.ref)
    actions = plan_copy(plane, original, copy) if original else plan_removal(plane, copy)
    await carry_out(context.planes, Plan(tuple(actions)))


def to_original(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(PLATFORM, ref_of(change.latest))


CONTROLLER = Controller(
    name="catalogue",
    role="platform",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE_TYPE),
        *(watches(INSTANCE_TYPE, to_original, on=role) for role in COPIED_TO),
    ),
)
