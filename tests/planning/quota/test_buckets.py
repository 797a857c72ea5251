"""Quota decisions: all or nothing, oldest first, never beyond the limit, never revoked."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from datum_compute.api.kinds import BUCKET, CLAIM, GRANT
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.fields import TypedObjectReference
from datum_compute.api.meta.objects import ApiObject, ObjectMeta
from datum_compute.api.planes import PLATFORM, project_plane
from datum_compute.api.quota import (
    INSTANCES,
    METRICS,
    VCPUS,
    Allowance,
    AllowanceBucket,
    AllowanceBucketStatus,
    GrantedBucket,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimStatus,
    ResourceGrant,
    ResourceGrantSpec,
    ResourceRegistration,
    ResourceRequest,
    consumer_of,
)
from datum_compute.planes.catalogue import registration_of as a_registration
from datum_compute.planning.plan import Create, PatchStatus, Plan
from datum_compute.planning.quota.buckets import (
    WAITING,
    QuotaState,
    active_registrations,
    bucket_name,
    claim_group_key,
    compute_balance,
    decide_claims,
    grant_verdict,
    plan_buckets,
    plan_decisions,
    plan_registration,
    registration_verdict,
)
from datum_compute.planning.quota.claims import is_granted
from testkit.builders import NOW
from testkit.sim.checks.quota import Totals, quota_problem, quota_totals

PLANE = project_plane("shop")
PROJECT = consumer_of("shop")
REGISTERED = active_registrations([a_registration(metric) for metric in METRICS])


def a_claim(
    name: str,
    *,
    instances: int = 1,
    vcpus: int = 0,
    created: int = 0,
    consumer: TypedObjectReference = PROJECT,
    resource: TypedObjectReference = PROJECT,
) -> ResourceClaim:
    asked = {INSTANCES.resource_type: instances, VCPUS.resource_type: vcpus}
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-of-{name}",
            resource_version="1",
            generation=1,
            creation_timestamp=f"2026-01-01T00:{created // 60:02}:{created % 60:02}Z",
        ),
        spec=ResourceClaimSpec(
            consumer_ref=consumer,
            resource_ref=resource,
            requests=[
                ResourceRequest(resource_type=type_, amount=amount)
                for type_, amount in asked.items()
                if amount
            ],
        ),
    )


def a_grant(name: str = "all", *, instances: int = 10, vcpus: int = 40_000) -> ResourceGrant:
    amounts = {INSTANCES.resource_type: instances, VCPUS.resource_type: vcpus}
    return ResourceGrant(
        metadata=ObjectMeta(name=name, namespace="milo-system", generation=1, resource_version="1"),
        spec=ResourceGrantSpec(
            consumer_ref=PROJECT,
            allowances=[
                Allowance(resource_type=type_, buckets=[GrantedBucket(amount=amount)])
                for type_, amount in amounts.items()
            ],
        ),
    )


def state(*objects: ResourceGrant | ResourceClaim) -> QuotaState:
    claims = [o for o in objects if isinstance(o, ResourceClaim)]
    sorts = Counter(claim_group_key(claim) for claim in claims)
    return QuotaState(
        PROJECT,
        REGISTERED,
        [o for o in objects if isinstance(o, ResourceGrant)],
        [claim for claim in claims if claim_group_key(claim) == WAITING],
        {sort: count for sort, count in sorts.items() if sort != WAITING},
    )


def claim_statuses(plan: Plan) -> dict[str, ResourceClaimStatus]:
    """Return the statuses that a plan writes on claims, by name."""
    return {
        a.ref.name: msgspec.convert(a.status, ResourceClaimStatus)
        for a in plan.actions
        if isinstance(a, PatchStatus) and a.kind is CLAIM
    }


def after(claim: ResourceClaim, plan: Plan) -> ResourceClaim:
    status = claim_statuses(plan).get(claim.metadata.name)
    return claim if status is None else msgspec.structs.replace(claim, status=status)


def granted(*objects: ResourceGrant | ResourceClaim) -> list[str]:
    found = decide_claims(state(*objects))
    return [r.claim.metadata.name for r in found if r.verdict.status == "True"]


def test_free_quota_goes_to_the_oldest_claim() -> None:
    young, old = a_claim("young", created=9), a_claim("old", created=1)
    assert granted(a_grant(instances=1), young, old) == ["old"]


def test_a_claim_gets_all_or_nothing() -> None:
    claim = a_claim("big", instances=1, vcpus=50_000)
    plan = plan_decisions(PLANE, state(a_grant(), claim), NOW)
    status = claim_statuses(plan)["big"]
    assert [(a.status, a.allocated_amount) for a in status.allocations] == [
        ("Pending", 0),
        ("Denied", 0),
    ]
    (condition,) = status.conditions
    assert (condition.status, condition.reason) == ("False", "QuotaExceeded")
    assert condition.message == "Processor quota of 40 vCPU has no room for 50 vCPU more"
    assert compute_balance(state(a_grant(), after(claim, plan))).used == {}


def test_the_denial_of_a_full_quota_contains_its_usage_and_limit() -> None:
    held = a_claim("held", created=1)
    verdict = decide_claims(state(a_grant(instances=1), held, a_claim("next", created=2)))[
        1
    ].verdict
    assert verdict.message == "Instance quota is full (1 of 1)"


def test_a_large_claim_does_not_hold_up_a_small_one_that_fits() -> None:
    large, small = a_claim("large", instances=11, created=1), a_claim("small", created=2)
    assert granted(a_grant(), large, small) == ["small"]


def test_a_denied_claim_is_granted_when_quota_is_released() -> None:
    denied = a_claim("b", created=2)
    denied = after(denied, plan_decisions(PLANE, state(a_grant(instances=0), denied), NOW))
    assert not is_granted(denied)
    assert granted(a_grant(instances=0), a_grant("more", instances=1), denied) == ["b"]


def test_a_lower_grant_keeps_claims_and_stops_new_ones() -> None:
    first = a_claim("a")
    first = after(first, plan_decisions(PLANE, state(a_grant(), first), NOW))
    lowered = state(a_grant(instances=1), first, a_claim("b"))
    plan = plan_decisions(PLANE, lowered, NOW)
    assert "a" not in claim_statuses(plan)
    assert claim_statuses(plan)["b"].conditions[0].reason == "QuotaExceeded"


@pytest.mark.parametrize("grants", [[], [a_grant(instances=0)]], ids=["no grant", "limit of 0"])
def test_a_claim_without_any_quota_has_no_budget(grants: list[ResourceGrant]) -> None:
    (decision,) = decide_claims(state(*grants, a_claim("a")))
    assert (decision.verdict.status, decision.verdict.reason) == ("False", "QuotaNoBudget")
    assert decision.verdict.message == "Instance quota is not granted to this project"


def test_nothing_is_written_when_nothing_changed() -> None:
    grant, claims = a_grant(instances=1), [a_claim("a"), a_claim("b")]
    plan = plan_decisions(PLANE, state(grant, *claims), NOW)
    (of_grant,) = [a for a in plan.actions if isinstance(a, PatchStatus) and a.kind is GRANT]
    status = msgspec.convert(of_grant.status, type(grant.status))
    settled = [after(claim, plan) for claim in claims]
    later = "2026-02-02T00:00:00Z"
    again = state(msgspec.structs.replace(grant, status=status), *settled)
    assert plan_decisions(PLANE, again, later).actions == ()


@pytest.mark.parametrize(
    ("claim", "words"),
    [
        (a_claim("x", consumer=consumer_of("other")), "is not the consumer of this project"),
        (a_claim("x", resource=TypedObjectReference(kind="Pod", name="p")), "for a Pod"),
        (
            msgspec.structs.replace(
                a_claim("x"),
                spec=ResourceClaimSpec(
                    consumer_ref=PROJECT,
                    resource_ref=PROJECT,
                    requests=[ResourceRequest(resource_type="gold", amount=1)],
                ),
            ),
            "gold is not registered",
        ),
    ],
)
def test_an_invalid_claim_reports_why(claim: ResourceClaim, words: str) -> None:
    (ruling,) = decide_claims(state(a_grant(), claim))
    assert ruling.verdict.reason == "ValidationFailed"
    assert words in ruling.verdict.message


def test_a_grant_for_an_unregistered_resource_has_no_effect() -> None:
    odd = msgspec.structs.replace(
        a_grant(),
        spec=ResourceGrantSpec(
            consumer_ref=PROJECT,
            allowances=[Allowance(resource_type="gold", buckets=[GrantedBucket(amount=1)])],
        ),
    )
    assert grant_verdict(state(odd), odd).reason == "ValidationFailed"
    assert compute_balance(state(odd)).limits == {}


def test_of_two_registrations_for_one_type_the_older_counts() -> None:
    def registration(name: str, created: str) -> ResourceRegistration:
        metadata = ObjectMeta(name=name, uid=name, creation_timestamp=created)
        return msgspec.structs.replace(a_registration(INSTANCES), metadata=metadata)

    old, new = registration("b", "2026-01-01T00:00:00Z"), registration("a", "2026-01-02T00:00:00Z")
    assert registration_verdict(old, [new, old]).status == "True"
    assert "already registered by b" in registration_verdict(new, [new, old]).message
    (write,) = plan_registration(PLATFORM, new, [new, old], NOW).actions
    assert isinstance(write, PatchStatus)
    (condition,) = write.status["conditions"]
    assert (condition["type"], condition["status"]) == ("Active", "False")


def made_buckets(plan: Plan) -> dict[str, AllowanceBucket]:
    made = [a.object for a in plan.actions if isinstance(a, Create) and a.kind is BUCKET]
    return {b.metadata.name: b for b in made if isinstance(b, AllowanceBucket)}


def test_buckets_report_recorded_grants_and_change_only_with_them() -> None:
    claim = a_claim("a", vcpus=1000)
    claim = after(claim, plan_decisions(PLANE, state(a_grant(), claim), NOW))
    record = state(a_grant(), claim)
    made = made_buckets(plan_buckets(PLANE, record, {}, NOW))
    written = plan_buckets(PLANE, record, made, NOW).actions
    shown = {a.ref.name: a.status for a in written if isinstance(a, PatchStatus)}
    vcpus = shown[bucket_name(PROJECT, VCPUS.resource_type)]
    assert (vcpus["limit"], vcpus["allocated"], vcpus["available"]) == (40_000, 1000, 39_000)
    settled = {
        name: msgspec.structs.replace(
            bucket, status=msgspec.convert(shown[name], AllowanceBucketStatus)
        )
        for name, bucket in made.items()
    }
    assert plan_buckets(PLANE, record, settled, "2026-02-02T00:00:00Z").actions == ()


class AnyHistory(RuleBasedStateMachine):
    """Claims and grants are created and deleted in any order, and the decider runs at any time.

    Only a part of its decisions may be written, because it crashed or a claim was deleted.
    """

    def __init__(self) -> None:
        super().__init__()
        self.claims: dict[str, ResourceClaim] = {}
        self.grants: dict[str, ResourceGrant] = {}
        self.seen: Totals = {}
        self.time = 0

    @rule(instances=st.integers(1, 4), vcpus=st.integers(0, 4))
    def create_claim(self, instances: int, vcpus: int) -> None:
        self.time += 1
        name = f"c{self.time}"
        self.claims[name] = a_claim(name, instances=instances, vcpus=vcpus, created=self.time % 3)

    @rule(name=st.sampled_from("ab"), instances=st.integers(0, 6), vcpus=st.integers(0, 6))
    def an_operator_grants(self, name: str, instances: int, vcpus: int) -> None:
        self.grants[name] = a_grant(name, instances=instances, vcpus=vcpus)
        self.check()

    @rule(data=st.data())
    def delete_claim(self, data: st.DataObject) -> None:
        if self.claims:
            del self.claims[data.draw(st.sampled_from(sorted(self.claims)))]
            self.check()

    @rule(data=st.data())
    def the_decider_runs(self, data: st.DataObject) -> None:
        plan = plan_decisions(PLANE, self.state(), NOW)
        assert plan == plan_decisions(PLANE, self.state(), NOW)
        for name, status in claim_statuses(plan).items():
            if data.draw(st.booleans()):
                claim = self.claims[name]
                self.claims[name] = msgspec.structs.replace(claim, status=status)
            self.check()

    @rule()
    def the_decider_runs_undisturbed(self) -> None:
        plan = plan_decisions(PLANE, self.state(), NOW)
        self.claims = {name: after(claim, plan) for name, claim in self.claims.items()}
        self.check()
        balance = compute_balance(self.state())
        for claim in self.claims.values():
            fits = not any(balance.is_short_of(request) for request in claim.spec.requests)
            assert is_granted(claim) or not fits, "no claim that fits is left"

    @invariant()
    def the_balance_is_what_the_rows_say(self) -> None:
        balance = compute_balance(self.state())
        rows = {key[2]: total for key, total in self.totals().items()}
        assert {n: a for n, a in balance.used.items() if a} == {
            n: used for n, (used, _) in rows.items() if used
        }

    def state(self) -> QuotaState:
        return state(*self.grants.values(), *self.claims.values())

    def totals(self) -> Totals:
        def row(kind: str, obj: ApiObject) -> tuple[str, dict[str, object]]:
            return str(PLANE), {**to_json(obj), "kind": kind}

        return quota_totals(
            [
                *(row(CLAIM.kind, claim) for claim in self.claims.values()),
                *(row(GRANT.kind, grant) for grant in self.grants.values()),
            ]
        )

    def check(self) -> None:
        now = self.totals()
        assert quota_problem(self.seen, now) == ""
        self.seen = now


AnyHistory.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestAnyHistory = AnyHistory.TestCase


def test_the_invariant_sees_a_grant_beyond_the_limit() -> None:
    limit = {("p", "Project/shop", "x"): (1, 1)}
    assert quota_problem(limit, {("p", "Project/shop", "x"): (2, 1)}).startswith("I2")
    assert quota_problem(limit, {("p", "Project/shop", "x"): (1, 0)}) == ""
