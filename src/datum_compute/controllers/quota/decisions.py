"""Claims and grants of a project -> who gets what, and what its buckets show.

One key for each project, so that its claims are decided one pass after the other and never two
passes at once. Granted claims are counted by an index and not looked at: what a decision costs
depends on who waits, not on who has.

Report whether a ResourceRegistration is active.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from datum_compute.api.kinds import BUCKET, CLAIM, GRANT, REGISTRATION
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.plane import PLATFORM, member_name
from datum_compute.api.quotametrics import QUOTA_NAMESPACE, consumer_of
from datum_compute.api.resourceclaim import ResourceClaim
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.quota.buckets import (
    WAITING,
    QuotaState,
    active_registrations,
    claim_group_key,
    plan_buckets,
    plan_decisions,
    plan_registration,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Debounce,
    Done,
    Key,
    Outcome,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange

THE_PROJECT = Ref("", "quota")
BY_STATE = "quota-state"
# Claims come in crowds: one decision for many of them, and the buckets when the crowd is through.
DECIDED = Debounce(idle_s=0.002, max_s=0.05)
SHOWN = Debounce(idle_s=0.1, max_s=1.0)


async def reconcile(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    plan = plan_decisions(key.plane, _observe_quota(context, view), context.now())
    return replace(await carry_out(context.planes, plan), debounce=DECIDED)


async def show(context: Context, key: Key) -> Outcome:
    view = context.planes.require(key.plane)
    buckets = {b.metadata.name: b for b in view.read(BUCKET).in_namespace(QUOTA_NAMESPACE)}
    plan = plan_buckets(key.plane, _observe_quota(context, view), buckets, context.now())
    return replace(await carry_out(context.planes, plan), debounce=SHOWN)


def _observe_quota(context: Context, view: CachedClient) -> QuotaState:
    registrations = context.planes.require(PLATFORM).read(REGISTRATION).all()
    claims = view.read(CLAIM)
    counts = claims.counts(BY_STATE)
    counts.pop(WAITING, None)
    return QuotaState(
        consumer=consumer_of(member_name(view.plane)),
        registered=active_registrations(registrations),
        grants=view.read(GRANT).all(),
        waiting=claims.indexed(BY_STATE, WAITING),
        granted=counts,
    )


def by_state(claim: ResourceClaim) -> Iterable[str]:
    return (claim_group_key(claim),)


def to_project(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Everything but a new status: that is our own, or changes nothing."""
    old, new = change.old, change.new
    if old is None or new is None or old.metadata.generation != new.metadata.generation:
        yield Key(view.plane, THE_PROJECT)


def any_change(view: CachedClient, _change: ObjectChange[Any]) -> Iterable[Key]:
    """Buckets show what is on record, so a status that says granted is news to them."""
    yield Key(view.plane, THE_PROJECT)


INDEX = Index(CLAIM, BY_STATE, by_state)

DECIDER = Controller(
    name="quota",
    role="project",
    reconcile=reconcile,
    edges=(
        watches(CLAIM, to_project),
        watches(GRANT, to_project),
        reads(REGISTRATION, on="platform"),
    ),
    indexes=(INDEX,),
)

BUCKETS = Controller(
    name="bucket",
    role="project",
    reconcile=show,
    edges=(
        watches(CLAIM, any_change),
        watches(GRANT, any_change),
        watches(BUCKET, any_change),
        reads(REGISTRATION, on="platform"),
    ),
    indexes=(INDEX,),
)

DECISION_CONTROLLERS = (DECIDER, BUCKETS)


BY_RESOURCE_TYPE = "resource-type"


async def reconcile_registration(context: Context, key: Key) -> Outcome:
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


REGISTRATION_CONTROLLER = Controller(
    name="registration",
    role="platform",
    reconcile=reconcile_registration,
    edges=(
        for_(REGISTRATION),
        watches(REGISTRATION, from_other),
    ),
    indexes=(Index(REGISTRATION, BY_RESOURCE_TYPE, lambda found: (found.spec.resource_type,)),),
)
