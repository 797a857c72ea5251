"""Decisions about consumers by approval, mode of the service and earlier state."""

from __future__ import annotations

import pytest

from datum_compute.api.conditions import Condition
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.services import (
    Approval,
    EnablementPolicy,
    Service,
    ServiceConsumer,
    ServiceConsumerSpec,
    ServiceConsumerStatus,
    ServiceOwner,
    ServiceSpec,
)
from datum_compute.planning.plan import PatchStatus, Plan
from datum_compute.planning.platform.services import plan_consumer

NOW, BEFORE = "2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"


def a_service(mode: str = "SelfService", phase: str = "Published") -> Service:
    return Service(
        metadata=ObjectMeta(name="compute"),
        spec=ServiceSpec(
            service_name="compute.datumapis.com",
            phase=phase,  # type: ignore[arg-type]
            owner=ServiceOwner(producer_project_ref=LocalReference(name="datum-cloud")),
            enablement_policy=EnablementPolicy(mode=mode),  # type: ignore[arg-type]
        ),
    )


def a_consumer(
    decision: str = "",
    *,
    entitled: bool = False,
    previous_reason: str = "",
    suspended: bool = False,
) -> ServiceConsumer:
    """``previous_reason`` is the reason that Ready had until now."""
    ready = (
        [Condition(type="Ready", status="True", reason=previous_reason)] if previous_reason else []
    )
    return ServiceConsumer(
        metadata=ObjectMeta(name="sc", generation=1, resource_version="7"),
        spec=ServiceConsumerSpec(
            service_ref=LocalReference(name="compute"),
            consumer_project_ref=LocalReference(name="shop"),
            approval=Approval(decision=decision) if decision else None,  # type: ignore[arg-type]
            suspended=suspended,
        ),
        status=ServiceConsumerStatus(
            entitled_at=BEFORE if entitled else None, conditions=list(ready)
        ),
    )


def reported(plan: Plan) -> dict[str, str]:
    (action,) = plan.actions
    assert isinstance(action, PatchStatus)
    ready = next(c for c in action.status["conditions"] if c["type"] == "Ready")
    return {"phase": action.status["phase"], "reason": ready["reason"], "status": ready["status"]}


GATED = "GatedByProvider"
FREE = "SelfService"


@pytest.mark.parametrize(
    ("mode", "consumer", "phase", "reason"),
    [
        (FREE, a_consumer(), "Active", "EntitlementActive"),
        (GATED, a_consumer(), "PendingApproval", "EntitlementPendingApproval"),
        (GATED, a_consumer("Approved"), "Active", "ConsumerApproved"),
        (FREE, a_consumer("Approved"), "Active", "ConsumerApproved"),
        (GATED, a_consumer("Denied"), "Denied", "ConsumerDenied"),
        (FREE, a_consumer("Denied"), "Denied", "ConsumerDenied"),
        (
            GATED,
            a_consumer(entitled=True, previous_reason="ConsumerApproved"),
            "Denied",
            "ConsumerDenied",
        ),
        (
            GATED,
            a_consumer(entitled=True, previous_reason="EntitlementActive"),
            "Active",
            "EntitlementActive",
        ),
    ],
)
def test_a_decision(mode: str, consumer: ServiceConsumer, phase: str, reason: str) -> None:
    status = reported(plan_consumer(consumer, a_service(mode), NOW))
    assert (status["phase"], status["reason"]) == (phase, reason)
    assert (status["status"] == "True") == (phase == "Active")


def test_a_retired_service_is_denied_to_all_projects() -> None:
    plan = plan_consumer(a_consumer("Approved"), a_service(phase="Retired"), NOW)
    assert reported(plan)["reason"] == "ServiceNotPublished"


def test_the_first_entitlement_time_is_kept() -> None:
    (first,) = plan_consumer(a_consumer(), a_service(), NOW).actions
    (again,) = plan_consumer(a_consumer(entitled=True), a_service(), NOW).actions
    assert isinstance(first, PatchStatus)
    assert isinstance(again, PatchStatus)
    assert first.status["entitledAt"] == NOW
    assert again.status.get("entitledAt", BEFORE) == BEFORE


def test_the_decision_stays_without_a_service() -> None:
    assert plan_consumer(a_consumer("Denied"), None, NOW).is_settled


def test_suspension_is_reported_next_to_the_decision() -> None:
    (action,) = plan_consumer(a_consumer(suspended=True), a_service(), NOW).actions
    assert isinstance(action, PatchStatus)
    statuses = {c["type"]: (c["status"], c["reason"]) for c in action.status["conditions"]}
    assert statuses["Suspended"] == ("True", "ProjectSuspended")
