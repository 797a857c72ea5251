"""The Quota gate of an instance: cleared when the claim of its slot is granted.

The claim is read from the cache, also while its project cannot be reached: a slot that has its
claim needs no new decision for its next instance. A cell that restarts while the project cannot be
reached uses its own record (``planning/grantedslots.py``).

A live read confirms a claim that was granted a while ago before it clears a gate. The hub releases
the claims of a cell that was forced to leave, and the cache and the record of that cell still have
them when it comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import TRUE, find_condition
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE_TYPE, NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.reasons import Reason
from datum_compute.api.resourceclaim import GRANTED, ResourceClaim
from datum_compute.controllers.context import Context
from datum_compute.controllers.instance_quota import from_claim, home_of, size_on
from datum_compute.planning.grantedslots import is_granted_before
from datum_compute.planning.quota.claims import (
    ClaimHome,
    ObservedQuota,
    claim_ref,
    decide_quota_gate,
    is_for,
    is_granted,
    is_recent_grant,
)
from datum_compute.planning.rollout.gates import QUOTA, Decision, gate_names
from datum_compute.planning.rollout.slots import ordinal
from datum_compute.planning.sizing import Size
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Edge, Key, reads, watches
from datum_compute.runtime.informer import ObjectChange

# A project that does not answer within this time counts as unreachable.
CONFIRM_TIMEOUT_S = 3.0
_TOO_MANY_REQUESTS = 429


def decide_quota(context: Context, key: Key, instance: Instance) -> Decision | None:
    if QUOTA not in gate_names(instance) or instance.is_terminating:
        return None
    observed = _observe_quota(context, key, instance)
    decision = decide_quota_gate(instance, observed, context.unix_s())
    if decision is None:
        plane = observed.home.plane if observed.home is not None else key.plane
        raise NotSynced(f"{plane} has not been seen yet")
    return decision


def _observe_quota(context: Context, key: Key, instance: Instance) -> ObservedQuota:
    home, size = home_of(context, key), size_on(context, key, instance)
    if home is not None and not _is_readable(context, home):
        recorded = _is_recorded(context, key, instance, size)
        return ObservedQuota(home, None, size, is_readable=False, is_recorded=recorded)
    return ObservedQuota(home, claim_of(context, home, instance), size)


def clears_gate(decision: Decision) -> bool:
    return decision.gate == QUOTA and decision.verdict.status == TRUE


async def confirm_grant(context: Context, key: Key, instance: Instance) -> None:
    """Read from the project that the slot still has its granted claim; raise NotSynced if not.

    If the project cannot be reached, the cell relies on its cache. If the project refuses the read,
    because the cell is no longer a member, the error is raised and retried.
    """
    home = home_of(context, key)
    view = context.planes.get(home.plane) if home is not None else None
    if home is None or view is None:
        return
    ref = claim_ref(home, instance.metadata.name)
    cached = view.cached(CLAIM).get(ref)
    if cached is not None and is_recent_grant(cached, context.unix_s()):
        return
    try:
        async with asyncio.timeout(CONFIRM_TIMEOUT_S):
            claim = await view.get_uncached(CLAIM, ref)
    except (Unreachable, TimeoutError):
        return
    except ApiError as error:
        if error.code >= 500 or error.code == _TOO_MANY_REQUESTS:
            return
        raise
    if claim is None or not is_granted(claim) or not is_for(claim, home, instance):
        await view.declare(CLAIM).refresh()
        raise NotSynced(f"{home.plane}: the claim of {key.ref} is gone, and the cache is behind")


def _is_readable(context: Context, home: ClaimHome) -> bool:
    view = context.planes.get(home.plane)
    return view is not None and view.declare(CLAIM).synced


def _is_recorded(context: Context, key: Key, instance: Instance, size: Size | None) -> bool:
    name = instance.metadata.labels.get(labels.DEPLOYMENT_NAME, "")
    owner = Ref(key.ref.namespace, name)
    deployment = context.planes.require(key.plane).read(DEPLOYMENT).get(owner)
    if deployment is None or deployment.is_terminating:
        return False
    return is_granted_before(deployment, ordinal(instance), size)


def claim_of(context: Context, home: ClaimHome | None, instance: Instance) -> ResourceClaim | None:
    """Return the claim of the instance's name, unless it is being released.

    While a write to the project is unanswered, the cache cannot prove that a claim is missing. A
    granted claim in the cache still exists: only this cell releases it, and it records that first.
    """
    if home is None:
        return None
    view, ref = context.planes.require(home.plane), claim_ref(home, instance.metadata.name)
    try:
        claim = view.read(CLAIM).get(ref)
    except NotSynced:
        claim = view.cached(CLAIM).get(ref)
        if claim is None or claim.is_terminating or not is_granted(claim):
            raise
    leaving = context.state.claims_being_released.get(Key(home.plane, ref))
    return None if claim is not None and claim.metadata.uid == leaving else claim


def from_decided_claim(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a claim to its instance. A new undecided claim is treated as no claim."""
    if change.old is None and change.new is not None:
        granted = find_condition(change.new.status.conditions, GRANTED)
        if granted is None or granted.reason == Reason.PENDING_EVALUATION:
            return ()
    return from_claim(view, change)


EDGES: tuple[Edge, ...] = (
    watches(CLAIM, from_decided_claim, on="project"),
    reads(NAMESPACE),
    reads(DEPLOYMENT),
    reads(INSTANCE_TYPE),
)
