"""In which order the finalizer, the quota claim and the deployments of a Workload are written."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, Condition
from datum_compute.api.kinds import CLAIM, REVISION, WORKLOAD
from datum_compute.api.meta import owner_reference
from datum_compute.api.plane import project_plane
from datum_compute.api.resourceclaim import GRANTED, ResourceClaim, ResourceClaimStatus
from datum_compute.api.timestamps import parse_timestamp, timestamp
from datum_compute.api.workload import Workload
from datum_compute.planning.plan import Action, Create, Delete, Patch, PatchStatus, Wait
from datum_compute.planning.quota.workload_claims import DECIDED_WITHIN_S, plan_workload_claim
from datum_compute.planning.workload.deployments import (
    WorkloadObjects,
    desired_deployments,
    plan_workload_lifecycle,
)
from datum_compute.planning.workload.revisions import plan_revisions
from testkit.builders import NOW, a_workload

PROJECT = project_plane("default")


def a_claim(
    workload: Workload, *, granted: Any = "", reason: str = "", age_s: float = 0
) -> ResourceClaim:
    """The stored claim of the workload. `granted` is the status of its Granted condition."""
    (create,) = plan_workload_claim(PROJECT, workload, None)
    assert isinstance(create, Create)
    claim: Any = create.object
    conditions = [Condition(type=GRANTED, status=granted, reason=reason)] if granted else []
    metadata = msgspec.structs.replace(
        claim.metadata,
        uid="uid-claim",
        owner_references=[owner_reference(workload, WORKLOAD)],
        creation_timestamp=timestamp(parse_timestamp(NOW) - age_s),
    )
    status = ResourceClaimStatus(conditions=conditions)
    stored: ResourceClaim = msgspec.structs.replace(claim, metadata=metadata, status=status)
    return stored


def observe(workload: Workload, **found: Any) -> WorkloadObjects:
    objects: dict[str, Any] = {
        "deployments": (),
        "claim": None,
        "revisions": (),
        "instance_type": None,
    }
    return WorkloadObjects(workload, **(objects | found))


def summarize(actions: tuple[Action, ...]) -> list[str]:
    return [
        type(a).__name__ if isinstance(a, Wait) else f"{type(a).__name__} {a.kind.kind}"
        for a in actions
    ]


def with_finalizers(workload: Workload, *finalizers: str) -> Workload:
    metadata = msgspec.structs.replace(workload.metadata, finalizers=list(finalizers))
    return msgspec.structs.replace(workload, metadata=metadata)


def terminating(workload: Workload) -> Workload:
    metadata = msgspec.structs.replace(workload.metadata, deletion_timestamp=NOW)
    return msgspec.structs.replace(workload, metadata=metadata)


def test_a_new_workload_gets_its_finalizer_and_its_claim_and_nothing_else() -> None:
    plan = plan_workload_lifecycle(PROJECT, observe(with_finalizers(a_workload())), NOW)
    assert summarize(plan.actions) == ["Patch Workload", "Create ResourceClaim"]
    assert plan.requeue_after_s is None


def test_a_workload_without_deployments_waits_for_the_claim_that_it_creates() -> None:
    plan = plan_workload_lifecycle(PROJECT, observe(a_workload()), NOW)
    assert summarize(plan.actions) == ["Create ResourceClaim"]


@pytest.mark.parametrize(
    ("granted", "reason", "age_s", "expected", "requeue_after_s"),
    [
        pytest.param("", "", 0, [], DECIDED_WITHIN_S, id="new-and-undecided"),
        pytest.param("", "", 5, ["PatchStatus Workload", "Wait"], 60, id="old-and-undecided"),
        pytest.param(
            FALSE, "QuotaExceeded", 0, ["PatchStatus Workload", "Wait"], 60, id="denied-at-once"
        ),
        pytest.param(TRUE, "QuotaAvailable", 0, ["Create WorkloadDeployment"], None, id="granted"),
    ],
)
def test_deployments_are_created_when_the_claim_is_granted(
    granted: str, reason: str, age_s: float, expected: list[str], requeue_after_s: float | None
) -> None:
    workload = a_workload(cities=("DFW",))
    claim = a_claim(workload, granted=granted, reason=reason, age_s=age_s)
    plan = plan_workload_lifecycle(PROJECT, observe(workload, claim=claim), NOW)
    assert summarize(plan.actions) == expected
    assert plan.requeue_after_s == requeue_after_s


def test_a_workload_with_deployments_does_not_wait_for_its_claim() -> None:
    """An upgrade creates the claim while instances run."""
    before, after = a_workload("web:1", cities=("DFW",)), a_workload("web:2", cities=("DFW",))
    found = observe(after, deployments=desired_deployments(before))
    plan = plan_workload_lifecycle(PROJECT, found, NOW)
    assert summarize(plan.actions)[:2] == ["Create ResourceClaim", "Patch WorkloadDeployment"]


def test_a_removed_workload_deletes_deployments_then_claim_and_revisions_then_itself() -> None:
    workload = a_workload(cities=("DFW",))
    (create,) = plan_revisions(PROJECT, workload, ()).actions
    assert isinstance(create, Create)
    assert create.kind is REVISION
    found: dict[str, Any] = {
        "claim": a_claim(workload, granted=TRUE),
        "revisions": [create.object],
    }
    gone = terminating(with_finalizers(workload, labels.WORKLOAD_FINALIZER))
    first = plan_workload_lifecycle(
        PROJECT, observe(gone, deployments=desired_deployments(workload), **found), NOW
    )
    kinds = [a.kind for a in first.actions if isinstance(a, Delete)]
    assert CLAIM not in kinds
    assert REVISION not in kinds
    assert any(isinstance(a, PatchStatus) for a in first.actions)
    last = plan_workload_lifecycle(PROJECT, observe(gone, **found), NOW)
    assert [a.kind for a in last.actions if isinstance(a, Delete)] == [CLAIM, REVISION]
    assert isinstance(last.actions[-1], Patch)
