"""Quota decisions of a project: which claims are granted, and what buckets and grants report.

- The status of a claim is the only record of a grant. Usage is always computed from it; buckets
  only report it.
- A claim is granted all that it requests, or nothing.
- Free quota goes to the oldest claim that fits, whether the claim is new or was denied before.
  After a pass no claim is left that would fit.
- A granted claim stays granted. A lower limit only prevents new grants.
- A claim for a resource without any limit has no budget. That is another reason than a limit that
  is used up, because only an operator can solve it.
- An invalid claim or grant is rejected with the reason, and checked again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, ConditionValue, Reason, set_conditions
from datum_compute.api.kinds import BUCKET, CLAIM, GRANT, REGISTRATION
from datum_compute.api.meta.codec import decode_as, encode, to_json
from datum_compute.api.meta.fields import TypedObjectReference
from datum_compute.api.meta.objects import ObjectMeta, ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.api.quota import (
    GRANTED,
    METRICS,
    QUOTA_NAMESPACE,
    AllowanceBucket,
    AllowanceBucketSpec,
    AllowanceBucketStatus,
    ContributingGrant,
    QuotaMetric,
    RequestAllocation,
    ResourceClaim,
    ResourceClaimStatus,
    ResourceGrant,
    ResourceGrantStatus,
    ResourceRegistration,
    ResourceRegistrationStatus,
    ResourceRequest,
)
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.plan import Action, Delete, Plan
from datum_compute.planning.quota.claims import is_granted

ACTIVE = "Active"
# A new registration on the platform causes no event in a project.
RECHECK_S = 30.0
WAITING = "waiting"
_METRICS = {metric.resource_type: metric for metric in METRICS}


@dataclass(frozen=True, slots=True)
class QuotaState:
    """The objects that decide the quota of one consumer.

    ``registered`` are the active registrations by resource type. ``waiting`` are the claims that
    are not granted. ``granted`` counts the granted claims by group: all claims with equal requests
    form one group, so the cost of a decision does not depend on the number of granted claims.
    """

    consumer: TypedObjectReference
    registered: Mapping[str, ResourceRegistration]
    grants: Sequence[ResourceGrant]
    waiting: Sequence[ResourceClaim]
    granted: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class QuotaBalance:
    """Limit and usage of each resource, in base units."""

    limits: Mapping[str, int]
    used: dict[str, int]

    def is_short_of(self, request: ResourceRequest) -> bool:
        name = request.resource_type
        return request.amount > self.limits.get(name, 0) - self.used.get(name, 0)

    def allocate(self, requests: Iterable[ResourceRequest], times: int = 1) -> None:
        for request in requests:
            name = request.resource_type
            self.used[name] = self.used.get(name, 0) + request.amount * times


@dataclass(frozen=True, slots=True)
class ClaimDecision:
    claim: ResourceClaim
    verdict: ConditionValue
    short_of: tuple[str, ...] = ()


def claim_group_key(claim: ResourceClaim) -> str:
    """Return the group of a granted claim, which is its encoded requests; otherwise WAITING."""
    return encode(to_json(claim.spec.requests)).decode() if is_granted(claim) else WAITING


@lru_cache(maxsize=1024)
def group_requests(group: str) -> tuple[ResourceRequest, ...]:
    return tuple(decode_as(group.encode(), list[ResourceRequest]))


def compute_balance(state: QuotaState) -> QuotaBalance:
    """Add up the limits of the active grants, and the usage of the granted claims."""
    limits: dict[str, int] = {}
    for grant in state.grants:
        if grant_verdict(state, grant).status == TRUE and not grant.is_terminating:
            for name, amount in _amounts(grant).items():
                limits[name] = limits.get(name, 0) + amount
    balance = QuotaBalance(limits, {})
    # A terminating claim uses its quota until it is deleted.
    for group, claims in state.granted.items():
        balance.allocate(group_requests(group), claims)
    return balance


def decide_claims(state: QuotaState) -> list[ClaimDecision]:
    """Decide every claim that is not granted, oldest first."""
    balance = compute_balance(state)
    found = []
    for claim in sorted((c for c in state.waiting if not c.is_terminating), key=_age):
        decision = _decide_claim(state, balance, claim)
        if decision.verdict.status == TRUE:
            balance.allocate(claim.spec.requests)
        found.append(decision)
    return found


def _age(claim: ResourceClaim) -> tuple[str, str, str]:
    metadata = claim.metadata
    return metadata.creation_timestamp or "", metadata.namespace, metadata.name


def _decide_claim(state: QuotaState, balance: QuotaBalance, claim: ResourceClaim) -> ClaimDecision:
    problem = claim_problem(state, claim)
    if problem:
        return ClaimDecision(claim, ConditionValue(FALSE, "ValidationFailed", problem))
    short_of = [request for request in claim.spec.requests if balance.is_short_of(request)]
    if not short_of:
        return ClaimDecision(claim, ConditionValue(TRUE, "QuotaAvailable", "Quota is available"))
    parts = [_shortage(state, balance, request) for request in short_of]
    names = tuple(request.resource_type for request in short_of)
    has_budget = all(balance.limits.get(name, 0) > 0 for name in names)
    reason = Reason.QUOTA_EXCEEDED if has_budget else Reason.QUOTA_NO_BUDGET
    return ClaimDecision(claim, ConditionValue(FALSE, reason, "; ".join(parts)), names)


def _shortage(state: QuotaState, balance: QuotaBalance, request: ResourceRequest) -> str:
    """Return the message of a denial: "Instance quota is full (10 of 10)".

    A quota that is not full has too little for this request. Its usage is left out, so that the
    message of a waiting claim seldom changes.
    """
    name = request.resource_type
    metric = _METRICS.get(name)
    label = metric.label if metric else name.rpartition("/")[2].capitalize()
    limit, used = balance.limits.get(name, 0), balance.used.get(name, 0)
    if limit <= 0:
        return f"{label} quota is not granted to this project"
    unit = _display_unit(state.registered[name], metric)
    if used >= limit:
        amounts = f"{_in_unit(used, metric)} of {_in_unit(limit, metric)}{unit}"
        return f"{label} quota is full ({amounts})"
    missing = f"{_in_unit(request.amount, metric)}{unit}"
    return f"{label} quota of {_in_unit(limit, metric)}{unit} has no room for {missing} more"


def _display_unit(registration: ResourceRegistration, metric: QuotaMetric | None) -> str:
    unit = metric.display_unit if metric else registration.spec.base_unit
    return "" if unit == "1" else f" {unit}"


def _in_unit(amount: int, metric: QuotaMetric | None) -> str:
    return f"{amount / (metric.factor if metric else 1):.3f}".rstrip("0").rstrip(".")


def claim_problem(state: QuotaState, claim: ResourceClaim) -> str:
    """Return why the claim is invalid, or the empty string."""
    spec = claim.spec
    if not _is_same(spec.consumer_ref, state.consumer):
        return (
            f"{spec.consumer_ref.kind} {spec.consumer_ref.name} is not the consumer of this project"
        )
    requested = [request.resource_type for request in spec.requests]
    duplicates = sorted({name for name in requested if requested.count(name) > 1})
    if duplicates:
        return f"{', '.join(duplicates)} is requested more than once"
    for name in requested:
        registration = state.registered.get(name)
        if registration is None:
            return f"{name} is not registered; an operator has to create a ResourceRegistration"
        if not _may_claim(registration, spec.resource_ref):
            return f"{name} cannot be claimed for a {spec.resource_ref.kind}"
    return ""


def _is_same(one: TypedObjectReference, other: TypedObjectReference) -> bool:
    return (one.api_group, one.kind, one.name) == (other.api_group, other.kind, other.name)


def _may_claim(registration: ResourceRegistration, resource: TypedObjectReference) -> bool:
    wanted = (resource.api_group, resource.kind.lower())
    allowed = registration.spec.claiming_resources
    return any((kind.api_group, kind.kind.lower()) == wanted for kind in allowed)


# --- grants


def grant_verdict(state: QuotaState, grant: ResourceGrant) -> ConditionValue:
    consumer = grant.spec.consumer_ref
    if not _is_same(consumer, state.consumer):
        return ConditionValue(
            FALSE,
            "ValidationFailed",
            f"{consumer.kind} {consumer.name} is not the consumer of this project",
        )
    unknown = [a.resource_type for a in grant.spec.allowances]
    unknown = [name for name in unknown if name not in state.registered]
    if unknown:
        return ConditionValue(FALSE, "ValidationFailed", f"{', '.join(unknown)} is not registered")
    return ConditionValue(TRUE, "GrantActive", "The grant is active")


def _amounts(grant: ResourceGrant) -> dict[str, int]:
    return {a.resource_type: sum(b.amount for b in a.buckets) for a in grant.spec.allowances}


# --- claims and grants


def plan_decisions(plane: PlaneName, state: QuotaState, now: str) -> Plan:
    """Plan the status of grants and claims.

    The order of the writes does not matter: if some of them fail, the others still stay within the
    limits.
    """
    actions: list[Action] = []
    has_invalid = False
    for grant in state.grants:
        verdict = grant_verdict(state, grant)
        has_invalid = has_invalid or verdict.status != TRUE
        generation = grant.metadata.generation
        conditions = set_conditions(
            grant.status.conditions, {ACTIVE: verdict}, generation=generation, now=now
        )
        status = ResourceGrantStatus(conditions=conditions, observed_generation=generation)
        actions += plan_status(plane, GRANT, grant, status)
    for decision in decide_claims(state):
        has_invalid = has_invalid or decision.verdict.reason == "ValidationFailed"
        status_of_claim = _claim_status(decision, now)
        actions += plan_status(
            plane, CLAIM, decision.claim, status_of_claim, decision.verdict.reason
        )
    recheck_s = RECHECK_S if has_invalid else None
    return Plan(tuple(actions), requeue_after_s=recheck_s)


def _claim_status(decision: ClaimDecision, now: str) -> ResourceClaimStatus:
    claim = decision.claim
    generation, before = claim.metadata.generation, claim.status
    conditions = set_conditions(
        before.conditions, {GRANTED: decision.verdict}, generation=generation, now=now
    )
    earlier = {allocation.resource_type: allocation for allocation in before.allocations}
    allocations = []
    for request in claim.spec.requests:
        new = _allocation(decision, request, now)
        old = earlier.get(new.resource_type)
        if old is not None and old.status == new.status:
            since = old.last_transition_time
            new = msgspec.structs.replace(new, last_transition_time=since)
        allocations.append(new)
    return ResourceClaimStatus(
        conditions=conditions, allocations=allocations, observed_generation=generation
    )


def _allocation(decision: ClaimDecision, request: ResourceRequest, now: str) -> RequestAllocation:
    name = request.resource_type
    if decision.verdict.status == TRUE:
        consumer = decision.claim.spec.consumer_ref
        return RequestAllocation(
            resource_type=name,
            status="Granted",
            reason="QuotaAvailable",
            allocated_amount=request.amount,
            allocating_bucket=bucket_name(consumer, name),
            last_transition_time=now,
        )
    if name in decision.short_of or decision.verdict.reason == "ValidationFailed":
        reason = decision.verdict.reason
        return RequestAllocation(
            resource_type=name, status="Denied", reason=reason, last_transition_time=now
        )
    return RequestAllocation(
        resource_type=name,
        status="Pending",
        reason="PendingEvaluation",
        message="Waiting for the other requests of the claim",
        last_transition_time=now,
    )


# --- buckets


def bucket_name(consumer: TypedObjectReference, resource_type: str) -> str:
    """Return the name that Milo computes for the bucket."""
    text = f"{resource_type}{consumer.kind}{consumer.name}"
    return f"bucket-{hashlib.sha256(text.encode()).hexdigest()}"


def plan_buckets(
    plane: PlaneName, state: QuotaState, buckets: Mapping[str, AllowanceBucket], now: str
) -> Plan:
    """Plan a bucket for each resource that is granted or used, or that has a bucket already.

    ``buckets`` are the existing buckets by name. A resource whose grants are deleted has limit 0.
    """
    balance = compute_balance(state)
    actions: list[Action] = []
    existing = {
        b.spec.resource_type for b in buckets.values() if b.spec.consumer_ref == state.consumer
    }
    for name in sorted({*balance.limits, *balance.used, *existing}):
        desired = _bucket(state.consumer, name)
        found = buckets.get(desired.metadata.name)
        actions += plan_object(plane, BUCKET, desired, found, name)
        if found is not None:
            status = _bucket_status(state, balance, name, found, now)
            actions += plan_status(plane, BUCKET, found, status, name)
    return Plan(tuple(actions))


def plan_bucket_removal(
    plane: PlaneName, consumer: TypedObjectReference, buckets: Iterable[AllowanceBucket]
) -> Plan:
    """Delete the buckets of a project whose quota is not enforced, so that none shows a limit."""
    reason = "quota is not enforced"
    return Plan(
        tuple(
            Delete(plane, BUCKET, ref_of(bucket), bucket.metadata.uid, reason)
            for bucket in buckets
            if bucket.spec.consumer_ref == consumer and not bucket.is_terminating
        )
    )


def _bucket(consumer: TypedObjectReference, resource_type: str) -> AllowanceBucket:
    return AllowanceBucket(
        metadata=ObjectMeta(
            name=bucket_name(consumer, resource_type),
            namespace=QUOTA_NAMESPACE,
            labels={labels.CONSUMER_KIND: consumer.kind, labels.CONSUMER_NAME: consumer.name},
        ),
        spec=AllowanceBucketSpec(consumer_ref=consumer, resource_type=resource_type),
    )


def _bucket_status(
    state: QuotaState, balance: QuotaBalance, name: str, bucket: AllowanceBucket, now: str
) -> AllowanceBucketStatus:
    limit, used = balance.limits.get(name, 0), balance.used.get(name, 0)
    claim_count = sum(
        claims for group, claims in state.granted.items() if _has_request(group, name)
    )
    contributing = [
        ContributingGrant(
            name=grant.metadata.name,
            namespace=grant.metadata.namespace,
            amount=_amounts(grant)[name],
            last_observed_generation=grant.metadata.generation,
        )
        for grant in state.grants
        if name in _amounts(grant)
        and grant_verdict(state, grant).status == TRUE
        and not grant.is_terminating
    ]
    status = AllowanceBucketStatus(
        limit=limit,
        allocated=used,
        available=max(0, limit - used),
        claim_count=claim_count,
        grant_count=len(contributing),
        contributing_grant_refs=sorted(
            contributing, key=lambda grant: (grant.namespace, grant.name)
        ),
        last_reconciliation=bucket.status.last_reconciliation,
        observed_generation=bucket.metadata.generation,
    )
    if status == bucket.status:
        return status
    return msgspec.structs.replace(status, last_reconciliation=now)


def _has_request(group: str, name: str) -> bool:
    return any(request.resource_type == name for request in group_requests(group))


# --- registrations


def active_registrations(
    registrations: Sequence[ResourceRegistration],
) -> dict[str, ResourceRegistration]:
    """Return the active registrations by resource type: the oldest one of each type."""
    found: dict[str, ResourceRegistration] = {}
    ordered = sorted(
        registrations,
        key=lambda registration: (
            registration.metadata.creation_timestamp or "",
            registration.metadata.name,
        ),
    )
    for registration in ordered:
        if not registration.is_terminating:
            found.setdefault(registration.spec.resource_type, registration)
    return found


def plan_registration(
    plane: PlaneName,
    registration: ResourceRegistration,
    same_type: Sequence[ResourceRegistration],
    now: str,
) -> Plan:
    """Report whether the registration is active.

    ``same_type`` are all registrations of its resource type.
    """
    generation = registration.metadata.generation
    conditions = set_conditions(
        registration.status.conditions,
        {ACTIVE: registration_verdict(registration, same_type)},
        generation=generation,
        now=now,
    )
    status = ResourceRegistrationStatus(conditions=conditions, observed_generation=generation)
    return Plan(tuple(plan_status(plane, REGISTRATION, registration, status)))


def registration_verdict(
    registration: ResourceRegistration, registrations: Sequence[ResourceRegistration]
) -> ConditionValue:
    active = active_registrations(registrations).get(registration.spec.resource_type)
    if active is None or active.metadata.uid == registration.metadata.uid:
        return ConditionValue(
            TRUE, "RegistrationActive", "The resource type can be granted and claimed"
        )
    other = active.metadata.name
    message = f"{registration.spec.resource_type} is already registered by {other}"
    return ConditionValue(FALSE, "ValidationFailed", message)
