"""Report whether a ResourceRegistration is active."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import REGISTRATION
from datum_compute.api.meta import ref_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.quota.buckets import plan_registration
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange

BY_RESOURCE_TYPE = "resource-type"


async def reconcile(context: Context, key: Key) -> Outcome:
    found = context.planes.require(key.plane).read(REGISTRATION)
    registration = found.get(key.ref)
    if registration is None:
        return Done()
    same_type = found.indexed(BY_RESOURCE_TYPE, registration.spec.resource_type)
    plan = plan_registration(key.plane, registration, same_type, context.now())
    return await carry_out(context.planes, plan)


def from_other(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """When a registration is deleted, the next one for its resource type becomes active."""
    if change.new is None:
        resource_type = change.latest.spec.resource_type
        for registration in view.cached(REGISTRATION).indexed(BY_RESOURCE_TYPE, resource_type):
            yield Key(view.plane, ref_of(registration))


CONTROLLER = Controller(
    name="registration",
    role="platform",
    reconcile=reconcile,
    edges=(
        for_(REGISTRATION),
        watches(REGISTRATION, from_other),
    ),
    indexes=(Index(REGISTRATION, BY_RESOURCE_TYPE, lambda found: (found.spec.resource_type,)),),
)
