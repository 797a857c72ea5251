"""Instance -> the quota claim of its slot, in its project."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.errors import AlreadyExists, Forbidden, Invalid, NotFound
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import CLAIM, INSTANCE, INSTANCE_TYPE, NAMESPACE
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.instance_quota import from_claim, home_of, size_on
from datum_compute.planning.quota.claims import (
    REFUSED_S,
    claim_ref,
    needs_claim,
    plan_claim,
    plan_claim_error,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    MANY_WORKERS,
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    reads,
    spec_or_metadata_changed,
    watches,
)
from datum_compute.runtime.informer import ObjectChange


async def reconcile(context: Context, key: Key) -> Outcome:
    instance = context.planes.require(key.plane).read(INSTANCE).get(key.ref)
    if instance is None or instance.is_terminating or not needs_claim(instance):
        return Done()
    home = home_of(context, key)
    if home is None:
        return Requeue(REFUSED_S)
    claim = context.planes.require(home.plane).read(CLAIM).get(claim_ref(home, key.ref.name))
    plan = plan_claim(home, instance, claim, size_on(context, key, instance))
    try:
        return await carry_out(context.planes, plan)
    except (AlreadyExists, Forbidden, Invalid, NotFound) as error:
        if claim is not None:
            raise
        now, unix_s = context.now(), context.unix_s()
        report = plan_claim_error(key.plane, home, instance, error, now, unix_s)
        return await carry_out(context.planes, report)


def concerns_claim(old: Instance, new: Instance) -> bool:
    """Return True if the update changes whether a claim is needed, or its size."""
    return needs_claim(old) != needs_claim(new) or old.spec.runtime != new.spec.runtime


def from_known_claim(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a claim to its instance, except a new claim: this controller created it.

    If the new claim has another creator, our request to create one fails and is retried.
    """
    return from_claim(view, change) if change.old is not None else ()


CONTROLLER = Controller(
    name="claim",
    role="cell",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE, update_filter=concerns_claim),
        watches(CLAIM, from_known_claim, on="project", update_filter=spec_or_metadata_changed),
        reads(NAMESPACE),
        reads(INSTANCE_TYPE),
    ),
    workers=MANY_WORKERS,
)
