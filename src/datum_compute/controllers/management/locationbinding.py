"""Sets the Available condition of the LocationBindings in projects that name a Location.

Only for LocationBindings that people write. Entitlements set the condition of those they create.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from datum_compute.api.kinds import LOCATION, LOCATION_BINDING
from datum_compute.api.meta import Ref
from datum_compute.api.plane import PLATFORM, PlaneName
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out, for_each_plane
from datum_compute.planning.locationbindings import plan_availability
from datum_compute.planning.plan import Plan
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key, *, alone: bool) -> Outcome:
    location = context.planes.require(key.plane).read(LOCATION).get(key.ref)

    async def report(plane: PlaneName) -> None:
        for binding in context.planes.require(plane).read(LOCATION_BINDING).all():
            if binding.spec.location_ref.name == key.ref.name:
                actions = plan_availability(plane, binding, location, context.now(), alone=alone)
                await carry_out(context.planes, Plan(tuple(actions)))

    await for_each_plane(context.planes, ("project",), report)
    return Done()


def to_location(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(PLATFORM, Ref("", change.latest.spec.location_ref.name))


def controller(*, alone: bool) -> Controller[Context]:
    """``alone``: all planes are one API server."""
    return Controller(
        name="locationbinding",
        role="platform",
        reconcile=partial(reconcile, alone=alone),
        edges=(for_(LOCATION), watches(LOCATION_BINDING, to_location, on="project")),
        workers=1,
    )


CONTROLLER = controller(alone=False)
