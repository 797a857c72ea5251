"""The quota claim of a Workload: name, creation, release, and the reason for a block."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.compute.workload import Workload, WorkloadStatus
from datum_compute.api.conditions import FALSE, TRUE, Condition, ConditionValue
from datum_compute.api.kinds import CLAIM, WORKLOAD
from datum_compute.api.meta.objects import OwnerReference, Ref, owner_reference
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.api.planes import project_plane
from datum_compute.api.quota import GRANTED, WORKLOADS, ResourceClaim, ResourceClaimStatus
from datum_compute.planning.plan import Create, Delete
from datum_compute.planning.quota.workload_claims import (
    EXPECTED_DECISION_S,
    QUOTA_PENDING,
    is_recent_claim,
    plan_workload_claim,
    quota_block_reason,
    release_workload_claim,
    workload_claim_ref,
    workload_of_claim,
)
from testkit.builders import NOW, a_deployment, a_workload

PROJECT = project_plane("shop")
WEB = a_workload()
OWNER = owner_reference(WEB, WORKLOAD)
EARLIER = owner_reference(a_workload(uid="earlier-uid"), WORKLOAD)


def new_claim() -> ResourceClaim:
    (create,) = plan_workload_claim(PROJECT, WEB, None)
    assert isinstance(create, Create)
    assert isinstance(create.object, ResourceClaim)
    return create.object


def a_claim(
    *owners: OwnerReference,
    granted: Any = "",
    reason: str = "",
    terminating: bool = False,
    finalizers: tuple[str, ...] = (),
) -> ResourceClaim:
    claim = new_claim()
    condition = Condition(type=GRANTED, status=granted, reason=reason, message="11 of 10")
    metadata = msgspec.structs.replace(
        claim.metadata,
        uid="uid-claim",
        resource_version="9",
        owner_references=list(owners),
        finalizers=list(finalizers),
        creation_timestamp=NOW,
        deletion_timestamp=NOW if terminating else None,
    )
    status = ResourceClaimStatus(conditions=[condition] if granted else [])
    return msgspec.structs.replace(claim, metadata=metadata, status=status)


DELETED_VERSION = ("uid-claim", "9")


def test_a_missing_claim_requests_one_workload_from_the_project() -> None:
    claim = new_claim()
    assert (claim.metadata.namespace, claim.metadata.name) == ("default", "workload-web")
    assert [owner.uid for owner in claim.metadata.owner_references] == ["workload-uid"]
    assert claim.spec.consumer_ref.name == "shop"
    (request,) = claim.spec.requests
    assert (request.resource_type, request.amount) == (WORKLOADS.resource_type, 1)


@pytest.mark.parametrize(
    ("claim", "deleted"),
    [
        pytest.param(a_claim(OWNER), False, id="own"),
        pytest.param(a_claim(EARLIER), False, id="of-another-owner"),
        pytest.param(a_claim(terminating=True), False, id="terminating"),
        pytest.param(a_claim(), True, id="without-owner"),
    ],
)
def test_only_a_claim_without_an_owner_is_replaced(claim: ResourceClaim, deleted: bool) -> None:
    actions = plan_workload_claim(PROJECT, WEB, claim)
    found = [(a.uid, a.version) for a in actions if isinstance(a, Delete)]
    assert found == ([DELETED_VERSION] if deleted else [])
    assert len(actions) == len(found)


@pytest.mark.parametrize(
    ("claim", "deleted"),
    [
        pytest.param(None, False, id="absent"),
        pytest.param(a_claim(OWNER, terminating=True), False, id="terminating"),
        pytest.param(a_claim(EARLIER), False, id="of-another-workload"),
        pytest.param(a_claim(), True, id="without-owner"),
        pytest.param(a_claim(OWNER), True, id="own"),
    ],
)
def test_a_deleted_workload_releases_its_own_claim(
    claim: ResourceClaim | None, deleted: bool
) -> None:
    actions = release_workload_claim(PROJECT, WEB, claim)
    found = [(a.kind, a.uid, a.version) for a in actions if isinstance(a, Delete)]
    assert found == ([(CLAIM, *DELETED_VERSION)] if deleted else [])


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        pytest.param(None, "PendingEvaluation", id="absent"),
        pytest.param(a_claim(OWNER), "PendingEvaluation", id="undecided"),
        pytest.param(
            a_claim(OWNER, granted=FALSE, reason="PendingEvaluation"),
            "PendingEvaluation",
            id="being-evaluated",
        ),
        pytest.param(
            a_claim(OWNER, granted=FALSE, reason="QuotaExceeded"), "QuotaNotGranted", id="denied"
        ),
        pytest.param(a_claim(EARLIER, granted=TRUE), "QuotaMisconfigured", id="of-another-owner"),
        pytest.param(a_claim(granted=TRUE), "PendingEvaluation", id="left-over"),
        pytest.param(
            a_claim(OWNER, terminating=True, granted=TRUE), "PendingEvaluation", id="terminating"
        ),
        pytest.param(
            a_claim(OWNER, terminating=True, finalizers=("x/y",)),
            "QuotaMisconfigured",
            id="held-by-finalizer",
        ),
        pytest.param(a_claim(OWNER, granted=TRUE), None, id="granted"),
    ],
)
def test_the_first_deployment_waits_for_the_grant(
    claim: ResourceClaim | None, reason: str | None
) -> None:
    found = quota_block_reason(WEB, claim, [])
    assert (found.reason if found else None) == reason


def test_a_denial_has_the_message_of_the_claim() -> None:
    found = quota_block_reason(WEB, a_claim(OWNER, granted=FALSE, reason="QuotaExceeded"), [])
    assert found is not None
    assert (found.status, found.message) == (FALSE, "11 of 10")


def test_a_claim_of_another_owner_is_named_with_that_owner() -> None:
    found = quota_block_reason(WEB, a_claim(EARLIER), [])
    message = "ResourceClaim workload-web belongs to Workload web (uid earlier-uid)"
    assert found == ConditionValue(FALSE, "QuotaMisconfigured", message)


def test_a_workload_with_deployments_is_not_blocked() -> None:
    assert quota_block_reason(WEB, None, []) == QUOTA_PENDING
    assert quota_block_reason(WEB, None, [a_deployment()]) is None
    reported: Workload = msgspec.structs.replace(WEB, status=WorkloadStatus(deployments=1))
    assert quota_block_reason(reported, None, []) is None


@pytest.mark.parametrize(
    ("age_s", "recent"), [(0, True), (1, True), (EXPECTED_DECISION_S, False), (60, False)]
)
def test_a_decision_is_overdue_after_the_expected_time(age_s: float, recent: bool) -> None:
    now = timestamp(parse_timestamp(NOW) + age_s)
    assert is_recent_claim(a_claim(OWNER), now) == recent
    assert not is_recent_claim(None, now)
    assert not is_recent_claim(new_claim(), now), "it is not stored yet"


NAMES = st.from_regex(r"[a-z]([-a-z]{0,240}[a-z])?", fullmatch=True)


@given(NAMES)
def test_a_claim_leads_to_its_workload(name: str) -> None:
    workload = Ref("default", name)
    assert workload_of_claim(workload_claim_ref(workload)) == workload


def test_claims_of_other_kinds_lead_to_no_workload() -> None:
    assert workload_of_claim(Ref("default", "instance-web-dfw-0")) is None


def test_long_names_of_workloads_give_different_valid_names_of_claims() -> None:
    first, second = (workload_claim_ref(Ref("default", "a" * 250 + end)) for end in ("b", "c"))
    assert first != second
    assert len(first.name) == len(second.name) == 253
