"""InstanceType of the platform plane -> its status. Copies elsewhere say nothing of their own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta import ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.instancetypes import type_status
from datum_compute.planning.objects import plan_status
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    types = context.planes.require(key.plane).read(INSTANCE_TYPE)
    found = types.get(key.ref)
    if found is None or found.is_terminating:
        return Done()
    by_name = {one.metadata.name: one for one in types.all()}
    status = type_status(found, by_name, context.now())
    return await carry_out(
        context.planes, Plan(tuple(plan_status(key.plane, INSTANCE_TYPE, found, status)))
    )


def from_replacement(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Those that name it as what to use instead."""
    name = change.latest.metadata.name
    for one in view.cached(INSTANCE_TYPE).all():
        if one.spec.lifecycle.replacement_instance_type == name:
            yield Key(view.plane, ref_of(one))


CONTROLLER = Controller(
    name="instancetype",
    role="platform",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE_TYPE),
        watches(INSTANCE_TYPE, from_replacement),
    ),
)
