"""Decisions of the scheduling gates: what the instance controller reads and watches for each gate.

Quota is cleared when the claim of the instance's slot is granted:
- The claim is read from the cache, also while its project cannot be reached. So the next instance
  of a slot that has its claim needs no new decision. A cell that restarts while the project cannot
  be reached uses its record of granted slots (``planning/quota/claims.py``).
- Before a claim that was granted a while ago clears a gate, a live read confirms that it still
  exists. The hub releases the claims of a cell that left by force. When that cell returns, its
  cache and its record still contain them.

Network is cleared when the instance has addresses from the attachment of its deployment. Addresses,
condition and gate are written by the same pass.

ReferencedData is cleared when the ConfigMaps and Secrets that the instance references are on its
plane, with every referenced key. Waiting instances are indexed by these sources, so that a new
source only reconciles the instances that wait for it.

This module contains no controller; ``controllers/workload/instance.py`` uses it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from datum_compute.api import labels
from datum_compute.api.compute.instance import NETWORK_READY, REFERENCED_DATA_READY, Instance
from datum_compute.api.compute.referenced_data import references_of
from datum_compute.api.conditions import FALSE, TRUE, ConditionValue, Reason, find_condition
from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE, INSTANCE_TYPE, NAMESPACE, SERVER
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.quota import GRANTED, ResourceClaim
from datum_compute.controllers.context import Context
from datum_compute.controllers.instance_quota import map_claim, observe_claim_location, size_on
from datum_compute.controllers.referenced_data import (
    observe_sources,
    source_edges,
    source_index_values,
    unreadable_kinds,
)
from datum_compute.planning.federation.referenced_objects import (
    data_ready_condition,
    propagated_annotations,
)
from datum_compute.planning.network.addresses import (
    interface_of,
    missing_location_fields,
    network_verdict,
)
from datum_compute.planning.quota.claims import (
    ClaimLocation,
    InstanceSize,
    ObservedQuota,
    claim_ref,
    decide_quota_gate,
    is_claim_of,
    is_granted,
    is_granted_before,
    is_recent_grant,
)
from datum_compute.planning.rollout.gates import (
    FIRST_SYNC_S,
    NETWORK,
    QUOTA,
    REFERENCED_DATA,
    Decision,
    gate_names,
    instance_age_s,
)
from datum_compute.planning.rollout.slots import ordinal
from datum_compute.runtime.cache import Index, NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Edge, Key, reads, watches
from datum_compute.runtime.informer import ObjectChange

_log = logging.getLogger(__name__)

# A project that does not respond within this time counts as unreachable.
CONFIRM_TIMEOUT_S = 3.0
_TOO_MANY_REQUESTS = 429


def decide_quota(context: Context, key: Key, instance: Instance) -> Decision | None:
    if QUOTA not in gate_names(instance) or instance.is_terminating:
        return None
    observed = _observe_quota(context, key, instance)
    decision = decide_quota_gate(instance, observed, context.unix_s())
    if decision is None:
        plane = observed.location.plane if observed.location is not None else key.plane
        raise NotSynced(f"{plane} has not been read yet")
    return decision


def _observe_quota(context: Context, key: Key, instance: Instance) -> ObservedQuota:
    if not context.enforces_quota:
        return ObservedQuota(None, None, None, is_enforced=False)
    location, size = observe_claim_location(context, key), size_on(context, key, instance)
    if location is not None and not _is_readable(context, location):
        recorded = _is_recorded(context, key, instance, size)
        return ObservedQuota(location, None, size, is_readable=False, is_recorded=recorded)
    return ObservedQuota(location, find_claim(context, location, instance), size)


def needs_grant(decision: Decision) -> bool:
    """Return True if the decision clears the Quota gate because of a claim."""
    is_granted_by_claim = decision.value.reason != Reason.QUOTA_DISABLED
    return decision.gate == QUOTA and decision.is_clear and is_granted_by_claim


def log_quota_recheck(context: Context, key: Key, decisions: Sequence[Decision]) -> None:
    """Log how often an instance that waits for quota is checked, whenever the delay changes.

    The delay grows with the age of the instance, in a few tiers.
    """
    logged = context.state.logged_quota_rechecks
    waiting = next((d for d in decisions if d.gate == QUOTA and not d.is_clear), None)
    if waiting is None or waiting.recheck_s is None:
        logged.pop(key, None)
    elif logged.get(key) != waiting.recheck_s:
        logged[key] = waiting.recheck_s
        reason, delay_s = waiting.value.reason, waiting.recheck_s
        _log.info("%s waits for quota (%s), checked every %g s", key, reason, delay_s)


async def confirm_grant(context: Context, key: Key, instance: Instance) -> None:
    """Confirm by a live read that the slot still has its granted claim; raise NotSynced if not.

    If the project cannot be reached, the cell relies on its cache. If the project refuses the read,
    for example because the cell is no longer a member, the error is raised and the reconcile is
    retried.
    """
    location = observe_claim_location(context, key)
    client = context.planes.get(location.plane) if location is not None else None
    if location is None or client is None:
        return
    ref = claim_ref(location, instance.metadata.name)
    cached = client.read_unsynced(CLAIM).get(ref)
    if cached is not None and is_recent_grant(cached, context.unix_s()):
        return
    try:
        async with asyncio.timeout(CONFIRM_TIMEOUT_S):
            claim = await client.get_uncached(CLAIM, ref)
    except (Unreachable, TimeoutError):
        return
    except ApiError as error:
        if error.code >= 500 or error.code == _TOO_MANY_REQUESTS:
            return
        raise
    if claim is None or not is_granted(claim) or not is_claim_of(claim, location, instance):
        await client.declare(CLAIM).refresh()
        raise NotSynced(f"{location.plane}: the claim of {key.ref} is gone, and the cache is stale")


def _is_readable(context: Context, location: ClaimLocation) -> bool:
    client = context.planes.get(location.plane)
    return client is not None and client.declare(CLAIM).is_synced


def _is_recorded(context: Context, key: Key, instance: Instance, size: InstanceSize | None) -> bool:
    name = instance.metadata.labels.get(labels.DEPLOYMENT_NAME, "")
    owner = Ref(key.ref.namespace, name)
    deployment = context.planes.require(key.plane).read(DEPLOYMENT).get(owner)
    if deployment is None or deployment.is_terminating:
        return False
    return is_granted_before(deployment, ordinal(instance), size)


def find_claim(
    context: Context, location: ClaimLocation | None, instance: Instance
) -> ResourceClaim | None:
    """Return the claim of the instance's name, unless it is being released.

    While a write to the project has no response yet, the cache does not prove that a claim is
    missing, and NotSynced is raised. A granted claim in the cache is used anyway: only this cell
    releases it, and it records the release first.
    """
    if location is None:
        return None
    client, ref = (
        context.planes.require(location.plane),
        claim_ref(location, instance.metadata.name),
    )
    try:
        claim = client.read(CLAIM).get(ref)
    except NotSynced:
        claim = client.read_unsynced(CLAIM).get(ref)
        if claim is None or claim.is_terminating or not is_granted(claim):
            raise
    released_uid = context.state.claims_being_released.get(Key(location.plane, ref))
    return None if claim is not None and claim.metadata.uid == released_uid else claim


def map_decided_claim(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a claim to its instance, except a new claim that is not decided yet."""
    if change.old is None and change.new is not None:
        granted = find_condition(change.new.status.conditions, GRANTED)
        if granted is None or granted.reason == Reason.PENDING_EVALUATION:
            return ()
    return map_claim(client, change)


QUOTA_EDGES: tuple[Edge, ...] = (
    watches(CLAIM, map_decided_claim, on="project"),
    reads(NAMESPACE),
    reads(DEPLOYMENT),
    reads(INSTANCE_TYPE),
)


# No event is sent when an address of a full prefix becomes free.
RECHECK_S = 30.0


def decide_network(context: Context, key: Key, instance: Instance) -> Decision | None:
    if NETWORK not in gate_names(instance) or instance.is_terminating:
        return None
    client = context.planes.require(key.plane)
    owner = instance.metadata.labels.get(labels.DEPLOYMENT_NAME, "")
    deployment = client.read(DEPLOYMENT).get(Ref(key.ref.namespace, owner))
    attachment = deployment.spec.network_attachment if deployment is not None else None
    interfaces, status_fields = instance.status.network_interfaces, {}
    if not interfaces and attachment is not None and attachment.prefixes:
        addresses = context.state.addresses.allocate(client, attachment, instance)
        if addresses is not None:
            interfaces = [interface_of(instance, attachment, addresses)]
            status_fields = {"networkInterfaces": to_json(interfaces)}
    value = network_verdict(instance, attachment, interfaces)
    recheck_s = None if value.status == TRUE else RECHECK_S
    spec_fields = missing_location_fields(instance, attachment)
    return Decision(NETWORK, NETWORK_READY, value, recheck_s, status_fields, spec_fields)


def map_network_attachment(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a new attachment to the instances that wait for it."""
    old, new = change.old, change.new
    if new is None:
        return
    if old is not None and old.spec.network_attachment == new.spec.network_attachment:
        return
    for instance in client.read_unsynced(INSTANCE).list_with_label(
        labels.DEPLOYMENT_NAME, new.metadata.name
    ):
        waits = NETWORK in gate_names(instance)
        if waits and instance.metadata.namespace == new.metadata.namespace:
            yield Key(client.plane, ref_of(instance))


NETWORK_EDGES: tuple[Edge, ...] = (
    watches(DEPLOYMENT, map_network_attachment),
    reads(SERVER),
)


def decide_data(context: Context, key: Key, instance: Instance) -> Decision | None:
    if REFERENCED_DATA not in gate_names(instance) or instance.is_terminating:
        return None
    client = context.planes.require(key.plane)
    unread = unreadable_kinds(client, references_of(instance.spec))
    if unread and instance_age_s(instance, context.unix_s()) >= FIRST_SYNC_S:
        message = f"The platform cannot read {' and '.join(unread)} on this plane"
        value = ConditionValue(FALSE, Reason.SOURCE_UNAUTHORIZED, message)
    else:
        value = _data_value(client, instance)
    recheck_s = None if value.status == TRUE else RECHECK_S
    return Decision(REFERENCED_DATA, REFERENCED_DATA_READY, value, recheck_s)


def _data_value(client: CachedClient, instance: Instance) -> ConditionValue:
    namespace, wanted = instance.metadata.namespace, references_of(instance.spec)
    owner = Ref(namespace, instance.metadata.labels.get(labels.DEPLOYMENT_NAME, ""))
    deployment = client.read(DEPLOYMENT).get(owner)
    template = instance.spec.controller.template_hash
    observed = observe_sources(client, namespace, wanted)
    return data_ready_condition(deployment, template, wanted, observed)


def index_sources(instance: Instance) -> Iterable[str]:
    if REFERENCED_DATA in gate_names(instance):
        yield from source_index_values(instance.metadata.namespace, references_of(instance.spec))


def map_propagated_data(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deployment whose resolved sources changed to the instances that wait for them."""
    new = change.new
    if new is None or (
        change.old is not None and propagated_annotations(change.old) == propagated_annotations(new)
    ):
        return
    for instance in client.read_unsynced(INSTANCE).list_with_label(
        labels.DEPLOYMENT_NAME, new.metadata.name
    ):
        waits = REFERENCED_DATA in gate_names(instance)
        if waits and instance.metadata.namespace == new.metadata.namespace:
            yield Key(client.plane, ref_of(instance))


WAITING_FOR_DATA = Index(INSTANCE, "waits-for-data", index_sources)

DATA_EDGES: tuple[Edge, ...] = (
    *source_edges(WAITING_FOR_DATA),
    watches(DEPLOYMENT, map_propagated_data),
)
