"""ResourceRegistration -> whether it counts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.kinds import REGISTRATION
from datum_compute.api.meta import ref_of
from datum_compute.api.resourceregistration import ResourceRegistrationStatus
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import Plan
from datum_compute.planning.objects import plan_status
from datum_compute.planning.quota import ACTIVE, registration_verdict
from datum_compute.planning.verdicts import with_verdicts
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_, watches
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    found = context.planes.require(key.plane).read(REGISTRATION)
    registration = found.get(key.ref)
    if registration is None:
        return Done()
    generation = registration.metadata.generation
    told = with_verdicts(
        registration.status.conditions,
        {ACTIVE: registration_verdict(registration, found.all())},
        generation=generation,
        now=context.now(),
    )
    status = ResourceRegistrationStatus(conditions=told, observed_generation=generation)
    plan = Plan(tuple(plan_status(key.plane, REGISTRATION, registration, status)))
    return await carry_out(context.planes, plan)


def from_other(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """When one goes, the next for its type counts."""
    if change.new is None:
        kind = change.latest.spec.resource_type
        for registration in view.cached(REGISTRATION).all():
            if registration.spec.resource_type == kind:
                yield Key(view.plane, ref_of(registration))


CONTROLLER = Controller(
    name="registration",
    role="platform",
    reconcile=reconcile,
    edges=(
        for_(REGISTRATION),
        watches(REGISTRATION, from_other),
    ),
)
