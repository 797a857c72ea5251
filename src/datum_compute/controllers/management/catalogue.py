"""InstanceType of the platform plane -> its copy on every project and cell."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PLATFORM, plane_role
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Action, Plan
from datum_compute.planning.catalogue import plan_copy
from datum_compute.planning.spread import spread
from datum_compute.runtime.controller import Controller, for_, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View

COPIED_TO = ("project", "cell")
# A plane that joins later has the built-in sizes at once and the others after so long at most.
RESYNC_S = 300.0


async def reconcile(context: Context, key: Key) -> Outcome:
    original = context.planes.need(key.plane).read(INSTANCE_TYPE).get(key.ref)
    if original is None or original.is_terminating:
        return Done()
    actions: list[Action] = []
    for plane in context.planes.engaged():
        if plane_role(plane) in COPIED_TO:
            copy = context.planes.need(plane).read(INSTANCE_TYPE).get(key.ref)
            actions += plan_copy(plane, original, copy)
    plan = Plan(tuple(actions), requeue_after_s=spread(RESYNC_S, key.ref))
    return await carry_out(context.planes, plan)


def to_original(_view: View, change: Change[Any]) -> Iterable[Key]:
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
