"""Location of the platform -> Available of the LocationBindings that name it, in every project.

Only where projects are listed by hand, and with them their bindings: where entitlements make the
bindings, they tell of them too.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import LOCATION, LOCATION_BINDING
from datum_compute.api.location import Location
from datum_compute.api.meta import Ref
from datum_compute.api.plane import PLATFORM, PlaneName, plane_role
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.locationbindings import plan_availability
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key, *, alone: bool) -> Outcome:
    location = context.planes.require(key.plane).read(LOCATION).get(key.ref)
    behind: Exception | None = None
    for plane in context.planes.engaged():
        if plane_role(plane) == "project":
            try:
                await _settle(context, plane, location, key.ref.name, alone=alone)
            except (NotSynced, ApiError, Unreachable) as error:
                behind = behind or error  # one that is away holds up no other
    if behind is not None:
        raise behind
    return Done()


async def _settle(
    context: Context, plane: PlaneName, location: Location | None, name: str, *, alone: bool
) -> None:
    for binding in context.planes.require(plane).read(LOCATION_BINDING).all():
        if binding.spec.location_ref.name == name:
            actions = plan_availability(plane, binding, location, context.now(), alone=alone)
            await carry_out(context.planes, Plan(tuple(actions)))


def to_location(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(PLATFORM, Ref("", change.latest.spec.location_ref.name))


def controller(*, alone: bool) -> Controller[Context]:
    """``alone``: one API server is everything."""
    return Controller(
        name="locationbinding",
        role="platform",
        reconcile=partial(reconcile, alone=alone),
        edges=(for_(LOCATION), watches(LOCATION_BINDING, to_location, on="project")),
        workers=1,
    )


CONTROLLER = controller(alone=False)
