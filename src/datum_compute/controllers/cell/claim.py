"""Instance -> the quota claim of its slot, in its project."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api.codec import plain
from datum_compute.api.conditions import FALSE, TRUE, Verdict, find_condition
from datum_compute.api.errors import AlreadyExists, ApiError, Forbidden, Invalid, NotFound
from datum_compute.api.instance import QUOTA_GRANTED, Instance
from datum_compute.api.kinds import CLAIM, INSTANCE, INSTANCE_TYPE, NAMESPACE
from datum_compute.api.meta import ref_of
from datum_compute.api.reasons import Reason
from datum_compute.controllers.cell.quotagate import from_claim, home_of, size_on, waiting_s
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.actions import PatchStatus, Plan
from datum_compute.planning.claims import (
    ClaimHome,
    claim_ref,
    is_for,
    pending_requeue_s,
    plan_claim,
)
from datum_compute.planning.gates import QUOTA, gate_names
from datum_compute.planning.verdicts import with_verdicts
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

REFUSED_S = 60.0


async def reconcile(context: Context, key: Key) -> Outcome:
    instance = context.planes.require(key.plane).read(INSTANCE).get(key.ref)
    if instance is None or instance.is_terminating or not _needs_claim(instance):
        return Done()
    home = home_of(context, key)
    if home is None:
        return Requeue(REFUSED_S)
    claim = context.planes.require(home.plane).read(CLAIM).get(claim_ref(home, key.ref.name))
    if claim is not None and (QUOTA not in gate_names(instance) and is_for(claim, home, instance)):
        return Done()  # granted once and for good, whatever its size
    plan = plan_claim(home, instance, claim, size_on(context, key, instance))
    try:
        return await carry_out(context.planes, plan)
    except (AlreadyExists, Forbidden, Invalid, NotFound) as error:
        if claim is not None:
            raise
        soon = isinstance(error, AlreadyExists)  # most often of the cell that had it before
        tier_s = pending_requeue_s(waiting_s(context, instance), instance.metadata.uid)
        again_s = tier_s if soon else REFUSED_S
        return await _refused(context, key, instance, _trouble(home, error), again_s)


def _needs_claim(instance: Instance) -> bool:
    """While it waits, and afterwards: a claim that somebody removed is made again."""
    granted = find_condition(instance.status.conditions, QUOTA_GRANTED)
    running = granted is not None and granted.status == TRUE
    return QUOTA in gate_names(instance) or running


def concerns_claim(old: Instance, new: Instance) -> bool:
    """Whether it is needed, and how large it is."""
    return _needs_claim(old) != _needs_claim(new) or old.spec.runtime != new.spec.runtime


def from_known_claim(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """A claim that appears is the one that was asked for; whoever finds another in the way of it is
    refused, and asks again."""
    return from_claim(view, change) if change.old is not None else ()


def _trouble(home: ClaimHome, error: ApiError) -> Verdict:
    if isinstance(error, NotFound):
        message = f"Project {home.project} has no namespace {home.namespace}: {error}"
        return Verdict(FALSE, Reason.QUOTA_NAMESPACE_NOT_FOUND, message)
    message = f"Project {home.project} does not take the claim: {error}"
    return Verdict(FALSE, Reason.QUOTA_MISCONFIGURED, message)


async def _refused(
    context: Context, key: Key, instance: Instance, verdict: Verdict, again_s: float
) -> Outcome:
    """Said here, because without a claim the gate knows nothing of it."""
    told = with_verdicts(
        instance.status.conditions,
        {QUOTA_GRANTED: verdict},
        generation=instance.metadata.generation,
        now=context.now(),
    )
    if told == instance.status.conditions or QUOTA not in gate_names(instance):
        return Requeue(again_s)
    version, status = instance.metadata.resource_version, {"conditions": plain(told)}
    report = PatchStatus(key.plane, INSTANCE, ref_of(instance), version, status, verdict.reason)
    return await carry_out(context.planes, Plan((report,), requeue_after_s=again_s))


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
