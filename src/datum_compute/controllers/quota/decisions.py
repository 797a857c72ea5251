"""Controllers of quota decisions: claims and grants of a project, its buckets, and registrations.

All claims of a project share one key, so two passes never decide them concurrently. An index
counts the granted claims, so the cost of a decision depends only on the waiting claims.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from datum_compute.api.kinds import BUCKET, CLAIM, GRANT, REGISTRATION
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import PLATFORM, member_name
from datum_compute.api.quota import QUOTA_NAMESPACE, ResourceClaim, consumer_of
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.quota.buckets import (
    WAITING,
    QuotaState,
    active_registrations,
    claim_group_key,
    plan_bucket_removal,
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
from datum_compute.runtime.predicates import generation_changed

PROJECT_REF = Ref("", "quota")
BY_STATE = "quota-state"
# Claims arrive in bursts: decide many of them in one pass, and update the buckets after the burst.
DECISION_DEBOUNCE = Debounce(idle_s=0.002, max_s=0.05)
BUCKET_DEBOUNCE = Debounce(idle_s=0.1, max_s=1.0)


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    plan = plan_decisions(key.plane, _observe_quota(context, client), context.now())
    return replace(await apply_plan(context.planes, plan), debounce=DECISION_DEBOUNCE)


async def reconcile_buckets(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    buckets = {b.metadata.name: b for b in client.read(BUCKET).list_in_namespace(QUOTA_NAMESPACE)}
    if not context.enforces_quota:
        consumer = consumer_of(member_name(key.plane))
        return await apply_plan(
            context.planes, plan_bucket_removal(key.plane, consumer, buckets.values())
        )
    plan = plan_buckets(key.plane, _observe_quota(context, client), buckets, context.now())
    return replace(await apply_plan(context.planes, plan), debounce=BUCKET_DEBOUNCE)


def _observe_quota(context: Context, client: CachedClient) -> QuotaState:
    registrations = context.planes.require(PLATFORM).read(REGISTRATION).all()
    claims = client.read(CLAIM)
    counts = claims.counts(BY_STATE)
    counts.pop(WAITING, None)
    return QuotaState(
        consumer=consumer_of(member_name(client.plane)),
        registered=active_registrations(registrations),
        grants=client.read(GRANT).all(),
        waiting=claims.list_by_index(BY_STATE, WAITING),
        granted=counts,
    )


def _index_state(claim: ResourceClaim) -> Iterable[str]:
    return (claim_group_key(claim),)


def map_to_project(client: CachedClient, _change: ObjectChange[Any]) -> Iterable[Key]:
    """Map every change to the key of the project."""
    yield Key(client.plane, PROJECT_REF)


INDEX = Index(CLAIM, BY_STATE, _index_state)

CLAIM_DECISION_CONTROLLER = Controller(
    name="quota",
    role="project",
    reconcile=reconcile,
    edges=(
        watches(CLAIM, map_to_project, update_filter=generation_changed),
        watches(GRANT, map_to_project, update_filter=generation_changed),
        reads(REGISTRATION, on="platform"),
    ),
    indexes=(INDEX,),
)

BUCKET_CONTROLLER = Controller(
    name="bucket",
    role="project",
    reconcile=reconcile_buckets,
    edges=(
        watches(CLAIM, map_to_project),
        watches(GRANT, map_to_project),
        watches(BUCKET, map_to_project),
        reads(REGISTRATION, on="platform"),
    ),
    indexes=(INDEX,),
)

DECISION_CONTROLLERS = (CLAIM_DECISION_CONTROLLER, BUCKET_CONTROLLER)


# --- registrations

BY_RESOURCE_TYPE = "resource-type"


async def reconcile_registration(context: Context, key: Key) -> Outcome:
    found = context.planes.require(key.plane).read(REGISTRATION)
    registration = found.get(key.ref)
    if registration is None:
        return Done()
    same_type = found.list_by_index(BY_RESOURCE_TYPE, registration.spec.resource_type)
    plan = plan_registration(key.plane, registration, same_type, context.now())
    return await apply_plan(context.planes, plan)


def map_deleted_registration(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted registration to the others of its resource type, as one becomes active."""
    if change.new is None:
        resource_type = change.latest.spec.resource_type
        for registration in client.read_unsynced(REGISTRATION).list_by_index(
            BY_RESOURCE_TYPE, resource_type
        ):
            yield Key(client.plane, ref_of(registration))


REGISTRATION_CONTROLLER = Controller(
    name="registration",
    role="platform",
    reconcile=reconcile_registration,
    edges=(
        for_(REGISTRATION),
        watches(REGISTRATION, map_deleted_registration),
    ),
    indexes=(Index(REGISTRATION, BY_RESOURCE_TYPE, lambda found: (found.spec.resource_type,)),),
)
