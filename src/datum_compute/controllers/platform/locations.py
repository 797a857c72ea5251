"""Location -> Ready, as the cells of its city answer."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import CLUSTER, LOCATION
from datum_compute.api.meta import Ref
from datum_compute.api.plane import PLATFORM
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.platform.locations import (
    are_equally_open,
    city_of_cell,
    location_of,
    plan_location,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    location = context.planes.require(key.plane).read(LOCATION).get(key.ref)
    if location is None or location.is_terminating:
        return Done()
    clusters = context.planes.hub.read(CLUSTER).all()
    return await carry_out(context.planes, plan_location(location, clusters, context.now()))


def from_cluster(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """A cell that comes, goes, falls silent, answers again, is drained or given to another city."""
    seen = [cluster for cluster in (change.old, change.new) if cluster is not None]
    cities = dict.fromkeys(city_of_cell(cluster) for cluster in seen)
    if len(cities) > 1 or not are_equally_open(change.old, change.new):
        yield from (Key(PLATFORM, Ref("", location_of(city))) for city in cities)


CONTROLLER = Controller(
    name="location",
    role="platform",
    reconcile=reconcile,
    edges=(for_(LOCATION), watches(CLUSTER, from_cluster, on="hub")),
    workers=1,
    modes=(FEDERATED,),
)
