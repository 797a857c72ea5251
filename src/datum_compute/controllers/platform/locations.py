"""Controllers of the conditions of Locations (Ready) and of LocationBindings (Available).

They handle only the bindings that users create. The controller of an entitlement handles its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

from datum_compute.api.kinds import CLUSTER, LOCATION, LOCATION_BINDING
from datum_compute.api.meta.objects import Ref
from datum_compute.api.networking.location import LocationBinding
from datum_compute.api.planes import PLATFORM, PlaneName
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import apply_plan, for_each_plane
from datum_compute.planning.plan import Plan
from datum_compute.planning.platform.locations import (
    city_of_cell,
    location_of,
    plan_availability,
    plan_location,
    same_availability,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    location = context.planes.require(key.plane).read(LOCATION).get(key.ref)
    if location is None or location.is_terminating:
        return Done()
    clusters = context.planes.hub.read(CLUSTER).all()
    return await apply_plan(context.planes, plan_location(location, clusters, context.now()))


def map_cluster(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a cell whose reachability, drain state or city changed to the locations of its cities."""
    versions = [cluster for cluster in (change.old, change.new) if cluster is not None]
    cities = dict.fromkeys(city_of_cell(cluster) for cluster in versions)
    if len(cities) > 1 or not same_availability(change.old, change.new):
        yield from (Key(PLATFORM, Ref("", location_of(city))) for city in cities)


LOCATION_CONTROLLER = Controller(
    name="location",
    role="platform",
    reconcile=reconcile,
    edges=(for_(LOCATION), watches(CLUSTER, map_cluster, on="hub")),
    workers=1,
    modes=(FEDERATED,),
)


# --- bindings

BY_LOCATION = "location"


async def reconcile_binding(context: Context, key: Key, *, single_cluster: bool) -> Outcome:
    location = context.planes.require(key.plane).read(LOCATION).get(key.ref)

    async def report(plane: PlaneName) -> None:
        bindings = context.planes.require(plane).read(LOCATION_BINDING)
        for binding in bindings.list_by_index(BY_LOCATION, key.ref.name):
            actions = plan_availability(
                plane, binding, location, context.now(), single_cluster=single_cluster
            )
            await apply_plan(context.planes, Plan(tuple(actions)))

    await for_each_plane(context.planes, ("project",), report)
    return Done()


def map_binding_to_location(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(PLATFORM, Ref("", change.latest.spec.location_ref.name))


def _index_location(binding: LocationBinding) -> tuple[str]:
    return (binding.spec.location_ref.name,)


def controller(*, single_cluster: bool) -> Controller[Context]:
    """Return the controller of bindings.

    ``single_cluster`` is True if one API server serves all planes.
    """
    return Controller(
        name="locationbinding",
        role="platform",
        reconcile=partial(reconcile_binding, single_cluster=single_cluster),
        edges=(for_(LOCATION), watches(LOCATION_BINDING, map_binding_to_location, on="project")),
        indexes=(Index(LOCATION_BINDING, BY_LOCATION, _index_location, on="project"),),
        workers=1,
    )


BINDING_CONTROLLER = controller(single_cluster=False)
