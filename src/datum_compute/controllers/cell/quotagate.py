"""The Quota gate of an instance: cleared when the claim of its slot is granted.

What the claim says is read from the cache, also while its project does not answer: a slot that has
its claim needs nobody's consent for the next instance in it. A cell that starts anew while the
project is away goes by its own record (``planning/grantedslots.py``).

A live read confirms a claim that was granted a while ago before it clears a gate. The hub releases
the claims of a cell that was forced to leave, and the cache and the record of that cell still have
them when it comes back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import EPOCH, TRUE, UNKNOWN, Verdict, find_condition
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.instance import QUOTA_GRANTED, Instance
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE_TYPE, NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.reasons import Reason
from datum_compute.api.resourceclaim import GRANTED, ResourceClaim
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.controllers.context import Context
from datum_compute.planning.claims import (
    ClaimHome,
    claim_home,
    claim_ref,
    instance_of,
    is_for,
    is_granted,
    pending_requeue_s,
    quota_verdict,
)
from datum_compute.planning.gates import QUOTA, Decision, gate_names
from datum_compute.planning.grantedslots import is_granted_before
from datum_compute.planning.ordinals import ordinal
from datum_compute.planning.sizing import Size, size_of
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Edge, Key, reads, watches
from datum_compute.runtime.informer import ObjectChange

# A project that was never seen is on its way for so long; then the instance says what is wrong.
FRESH_S = 30.0
# A grant this recent needs no live read: a cell that was forced to leave was silent for longer.
RECENT_GRANT_S = 20.0
# A project that does not answer within this time counts as unreachable.
CONFIRM_TIMEOUT_S = 3.0
_TOO_MANY_REQUESTS = 429
RECORDED = Verdict(TRUE, Reason.QUOTA_AVAILABLE, "Quota was granted to the slot before")
# Reasons that the maker of claims (controllers/cell/claim.py) has for making none.
TROUBLES = (Reason.QUOTA_NAMESPACE_NOT_FOUND, Reason.QUOTA_MISCONFIGURED)


def decide_quota(context: Context, key: Key, instance: Instance) -> Decision | None:
    if QUOTA not in gate_names(instance) or instance.is_terminating:
        return None
    home = home_of(context, key)
    waited_s = waiting_s(context, instance)
    claim = None
    if home is not None and not _is_readable(context, home):
        recorded = _is_recorded(context, key, instance)
        if not recorded and waited_s < FRESH_S:
            raise NotSynced(f"{home.plane} has not been seen yet")
        verdict = RECORDED if recorded else _unreachable(home, instance)
    else:
        claim = claim_of(context, home, instance)
        verdict = quota_verdict(home, instance, claim, size_on(context, key, instance))
    old = find_condition(instance.status.conditions, QUOTA_GRANTED)
    if old is not None and claim is None and old.reason in TROUBLES:
        verdict = Verdict(old.status, old.reason, old.message)
    granted = verdict.status == TRUE
    requeue_s = None if granted else pending_requeue_s(waited_s, instance.metadata.uid)
    return Decision(QUOTA, QUOTA_GRANTED, verdict, requeue_s)


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
    if cached is not None and _is_recent(context, cached):
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


def _is_recent(context: Context, claim: ResourceClaim) -> bool:
    """Whether the claim was just granted. The clocks of cell and project may disagree."""
    granted = find_condition(claim.status.conditions, GRANTED)
    if granted is None or granted.status != TRUE:
        return False
    since_s = context.unix_s() - parse_timestamp(granted.last_transition_time)
    return abs(since_s) < RECENT_GRANT_S


def waiting_s(context: Context, instance: Instance) -> float:
    """Since it was made; a condition that nobody has touched says 1970."""
    return context.unix_s() - parse_timestamp(instance.metadata.creation_timestamp or EPOCH)


def _is_readable(context: Context, home: ClaimHome) -> bool:
    view = context.planes.get(home.plane)
    return view is not None and view.declare(CLAIM).synced


def _is_recorded(context: Context, key: Key, instance: Instance) -> bool:
    name = instance.metadata.labels.get(labels.DEPLOYMENT_NAME, "")
    owner = Ref(key.ref.namespace, name)
    deployment = context.planes.require(key.plane).read(DEPLOYMENT).get(owner)
    if deployment is None or deployment.is_terminating:
        return False
    return is_granted_before(deployment, ordinal(instance), size_on(context, key, instance))


def home_of(context: Context, key: Key) -> ClaimHome | None:
    namespaces = context.planes.require(key.plane).read(NAMESPACE)
    namespace = namespaces.get(Ref("", key.ref.namespace))
    return claim_home(key.plane, namespace, context.single_project)


def claim_of(context: Context, home: ClaimHome | None, instance: Instance) -> ResourceClaim | None:
    """The claim of the instance's name, unless it is about to be released.

    While a write to the project has no answer, nobody can say whether a claim is missing. One that
    was granted is there all the same: only this cell releases it, and it says so first.
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
    leaving = context.leaving.get(Key(home.plane, ref))
    return None if claim is not None and claim.metadata.uid == leaving else claim


def size_on(context: Context, key: Key, instance: Instance) -> Size | None:
    types = context.planes.require(key.plane).read(INSTANCE_TYPE)
    return size_of(instance.spec.runtime, lambda name: types.get(Ref("", name)))


def _unreachable(home: ClaimHome, instance: Instance) -> Verdict:
    """What was said before is still the best that is known."""
    old = find_condition(instance.status.conditions, QUOTA_GRANTED)
    if old is not None and old.reason not in (Reason.PENDING, Reason.PENDING_EVALUATION):
        return Verdict(old.status, old.reason, old.message)
    message = f"The quota of project {home.project} cannot be read"
    return Verdict(UNKNOWN, Reason.QUOTA_BACKEND_UNAVAILABLE, message)


def from_claim(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """The instance that the claim is for; claims of others are nobody's here."""
    found = instance_of(change.latest)
    if found is not None:
        yield Key(*found)


def from_decided_claim(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """As above, but for a new claim: as long as it is undecided, it says what no claim says."""
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
