"""The rank of causes, and the reason of a cause on each kind of object."""

from __future__ import annotations

import pytest

from datum_compute.api.compute.instance import QUOTA_GRANTED
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionStatus,
    ConditionValue,
    Reason,
)
from datum_compute.planning.reasons import (
    QUOTA_DENIED,
    as_deployment_reason,
    as_quota_granted_reason,
    as_replicas_ready_reason,
    worst_cause,
)
from datum_compute.planning.rollout.gates import find_quota_denial


@pytest.mark.parametrize(
    ("claim_reason", "expected"),
    [
        ("QuotaExceeded", Reason.QUOTA_EXCEEDED),
        ("ValidationFailed", Reason.VALIDATION_FAILED),
        ("QuotaNoBudget", Reason.QUOTA_NO_BUDGET),
        ("DeniedByPolicyOfAnother", Reason.QUOTA_EXCEEDED),
    ],
)
def test_quota_granted_has_the_reason_of_the_claim(claim_reason: str, expected: Reason) -> None:
    assert as_quota_granted_reason(claim_reason) == expected


@pytest.mark.parametrize(
    ("instance_reason", "deployment_reason", "replicas_ready_reason"),
    [
        ("PendingQuota", "QuotaNotGranted", "QuotaExceeded"),
        ("AwaitingPropagation", "ReferencedDataNotReady", "AwaitingPropagation"),
        ("Resolving", "ReferencedDataNotReady", "Resolving"),
        ("ReferencedDataNotReady", "ReferencedDataNotReady", "ReferencedDataNotReady"),
        ("ImageUnavailable", "ImageUnavailable", "ImageUnavailable"),
        ("SchedulingGatesPresent", "SchedulingGatesPresent", "SchedulingGatesPresent"),
        *((reason, reason, reason) for reason in ("Stopped", "Provisioning", "Unschedulable")),
        ("NetworkNotFound", "NetworkNotFound", "NetworkNotFound"),
        ("Stopping", "Stopping", "Stopping"),
        ("ReasonOfAnotherDriver", "ReasonOfAnotherDriver", "ReasonOfAnotherDriver"),
    ],
)
def test_a_deployment_reports_the_reason_of_its_instance(
    instance_reason: str, deployment_reason: str, replicas_ready_reason: str
) -> None:
    assert as_deployment_reason(instance_reason) == deployment_reason
    assert as_replicas_ready_reason(instance_reason) == replicas_ready_reason


@pytest.mark.parametrize(
    "ascending",
    [
        ("Pending", "InstancesProvisioning", "PendingProgramming", "Starting", "Provisioning"),
        ("Starting", "Unschedulable", "PendingQuota", "Resolving", "Stopped", "NetworkNotFound"),
        ("ReasonOfAnotherDriver", "NotReady", "QuotaNotGranted", "ImageUnavailable"),
        ("InstanceCrashing", "CellUnreachable", "NetworkFailedToCreate"),
    ],
)
def test_the_cause_of_the_highest_rank_is_the_worst(ascending: tuple[str, ...]) -> None:
    causes = [ConditionValue(FALSE, reason, "") for reason in ascending]
    for number, expected in enumerate(causes):
        assert worst_cause(causes[: number + 1]) == expected
        assert worst_cause(reversed(causes[: number + 1])) == expected


def test_the_first_of_equal_causes_is_the_worst() -> None:
    first, second = ConditionValue(FALSE, "Stopped", "a"), ConditionValue(FALSE, "Stopped", "b")
    assert worst_cause([first, second]) == first
    assert worst_cause([]) is None


def test_the_reasons_of_a_denied_quota_are_part_of_the_api() -> None:
    assert {"PendingQuota", "QuotaNotGranted", "QuotaExceeded"} == QUOTA_DENIED


@pytest.mark.parametrize(("status", "denied"), [(TRUE, False), (FALSE, True), (UNKNOWN, False)])
def test_only_false_denies_a_quota(status: ConditionStatus, denied: bool) -> None:
    quota = Condition(type=QUOTA_GRANTED, status=status, reason="QuotaExceeded")
    found = find_quota_denial([Condition(type="Ready", status=FALSE, reason="Pending"), quota])
    assert found == (quota if denied else None)
    assert find_quota_denial([]) is None


def test_a_missing_budget_denies_a_quota() -> None:
    quota = Condition(type=QUOTA_GRANTED, status=UNKNOWN, reason="QuotaNoBudget")
    assert find_quota_denial([quota]) == quota
