"""The deployments of a Workload, and the order in which its objects are created and deleted."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import (
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
)
from datum_compute.api.kinds import (
    CLAIM,
    DEPLOYMENT,
    REVISION,
    WORKLOAD,
)
from datum_compute.api.meta.objects import owner_reference
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.api.planes import project_plane
from datum_compute.api.quota import GRANTED, ResourceClaim, ResourceClaimStatus
from datum_compute.planning.plan import Action, Create, Delete, Patch, PatchStatus, Wait
from datum_compute.planning.quota.workload_claims import EXPECTED_DECISION_S, plan_workload_claim
from datum_compute.planning.workload.city_order import plan_city_templates
from datum_compute.planning.workload.deployments import (
    WorkloadObjects,
    desired_deployments,
    plan_workload,
    plan_workload_lifecycle,
)
from datum_compute.planning.workload.fallback import CityAssignment
from datum_compute.planning.workload.revisions import plan_revisions
from datum_compute.planning.workload.status import Decisions, workload_status
from testkit.builders import NOW, a_workload, an_attachment

PROJECT = project_plane("default")


def stored(workload: Workload, **status: object) -> list[WorkloadDeployment]:
    """Return the deployments of a workload as stored objects."""
    return [
        msgspec.structs.replace(
            d,
            metadata=msgspec.structs.replace(
                d.metadata, uid=f"uid-{d.metadata.name}", resource_version="3", generation=1
            ),
            status=WorkloadDeploymentStatus(**status),  # type: ignore[arg-type]
        )
        for d in desired_deployments(workload)
    ]


def test_one_deployment_for_every_city() -> None:
    plan = plan_workload(PROJECT, a_workload(cities=("DFW", "ord")), [], NOW)
    created = [a.object for a in plan.actions if isinstance(a, Create)]
    assert sorted(d.spec.city_code for d in created) == ["DFW", "ORD"]  # type: ignore[attr-defined]


def test_the_first_status_of_a_workload_is_written_after_its_deployments() -> None:
    new = a_workload()
    assert [type(a) for a in plan_workload(PROJECT, new, [], NOW).actions] == [Create]
    (stored_status,) = plan_workload(PROJECT, new, stored(new), NOW).actions
    assert isinstance(stored_status, PatchStatus)
    known = msgspec.structs.replace(new, status=workload_status(new, stored(new), NOW))
    assert [type(a) for a in plan_workload(PROJECT, known, [], NOW).actions] == [
        Create,
        PatchStatus,
    ]


def test_a_deployment_is_created_with_its_finalizer() -> None:
    (deployment,) = desired_deployments(a_workload())
    assert deployment.metadata.finalizers == [labels.FEDERATOR_FINALIZER]


def test_the_finalizer_comes_before_any_deployment() -> None:
    bare = a_workload()
    bare = msgspec.structs.replace(
        bare, metadata=msgspec.structs.replace(bare.metadata, finalizers=[])
    )
    (only,) = plan_workload(PROJECT, bare, [], NOW).actions
    assert isinstance(only, Patch)
    assert only.patch["metadata"]["finalizers"] == [labels.WORKLOAD_FINALIZER]


def test_the_deployment_of_a_removed_city_is_deleted() -> None:
    observed = stored(a_workload(cities=("DFW", "ORD")))
    plan = plan_workload(PROJECT, a_workload(cities=("DFW",)), observed, NOW)
    (delete,) = [a for a in plan.actions if isinstance(a, Delete)]
    gone = next(d for d in observed if d.spec.city_code == "ORD")
    assert (gone.metadata.name, gone.metadata.uid) == (delete.ref.name, delete.uid)


def test_a_deployment_waits_until_a_removed_one_has_released_its_name() -> None:
    """Placement ``a`` in city ``B-C`` is replaced by placement ``a-b`` in city ``C``."""
    before = with_placement(a_workload(cities=("B-C",)), "a")
    after = with_placement(a_workload(cities=("C",)), "a-b")
    plan = plan_workload(PROJECT, after, stored(before), NOW)
    assert summarize(plan.actions)[:2] == ["Delete WorkloadDeployment", "Wait"]
    assert not [a for a in plan.actions if isinstance(a, Create | Patch)]
    assert plan.requeue_after_s is not None
    created = [a for a in plan_workload(PROJECT, after, [], NOW).actions if isinstance(a, Create)]
    assert [a.object.metadata.name for a in created] == ["web-a-b-c"]


def test_a_deployment_of_an_earlier_release_keeps_its_name() -> None:
    workload = a_workload()
    (found,) = stored(workload)
    metadata = msgspec.structs.replace(found.metadata, name="web-79b0697b5d")
    earlier = msgspec.structs.replace(found, metadata=metadata)
    plan = plan_workload(PROJECT, workload, [earlier], NOW)
    assert not [a for a in plan.actions if isinstance(a, Create | Delete | Patch)]


def with_placement(workload: Workload, name: str) -> Workload:
    placements = [msgspec.structs.replace(workload.spec.placements[0], name=name)]
    spec = msgspec.structs.replace(workload.spec, placements=placements)
    return msgspec.structs.replace(workload, spec=spec)


def test_a_new_image_is_a_patch_of_that_field_only() -> None:
    plan = plan_workload(PROJECT, a_workload("web:2"), stored(a_workload("web:1")), NOW)
    (patch,) = [a for a in plan.actions if isinstance(a, Patch)]
    containers = [{"name": "app", "image": "web:2"}]
    template = {"spec": {"runtime": {"sandbox": {"containers": containers}}}}
    assert {"template": template} == patch.patch["spec"]
    assert patch.patch["metadata"]["resourceVersion"] == "3"


def test_a_settled_workload_causes_no_writes() -> None:
    workload = a_workload()
    observed = stored(workload)
    rollout = plan_city_templates(
        workload, {"default": [CityAssignment("DFW", ("DFW",))]}, observed
    )
    status = workload_status(workload, observed, NOW, None, Decisions({}, rollout.rollout))
    settled = msgspec.structs.replace(workload, status=status)
    assert plan_workload(PROJECT, settled, observed, "2026-02-02T00:00:00Z").is_settled


def test_removal_waits_for_the_last_deployment() -> None:
    workload = a_workload(terminating=True)
    plan = plan_workload(PROJECT, workload, stored(workload), NOW)
    delete, report, wait = plan.actions
    assert isinstance(delete, Delete)
    assert delete.kind is DEPLOYMENT
    assert isinstance(report, PatchStatus)
    assert isinstance(wait, Wait)
    (release,) = plan_workload(PROJECT, workload, [], NOW).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


def test_a_status_write_names_the_version_it_was_computed_from() -> None:
    workload = a_workload()
    (write,) = plan_workload(PROJECT, workload, stored(workload), NOW).actions
    assert isinstance(write, PatchStatus)
    assert workload.metadata.resource_version == write.version


def test_a_pause_applies_to_every_city() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    paused = msgspec.structs.replace(
        workload, spec=msgspec.structs.replace(workload.spec, paused=True)
    )
    assert [d.spec.paused for d in desired_deployments(paused)] == [True, True]


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
        pytest.param("", "", 0, [], EXPECTED_DECISION_S, id="new-and-undecided"),
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


def test_the_workload_planner_keeps_the_attachment() -> None:
    workload = a_workload()
    (made,) = desired_deployments(workload)
    spec = msgspec.structs.replace(made.spec, network_attachment=an_attachment())
    again = plan_workload(
        PROJECT, workload, [msgspec.structs.replace(made, spec=spec)], NOW
    ).actions
    assert [a for a in again if isinstance(a, Patch)] == []


# --- suspension and stop


def stop(workload: Workload) -> Workload:
    spec = msgspec.structs.replace(workload.spec, stopped=True)
    return msgspec.structs.replace(workload, spec=spec)


def patches(actions: tuple[Action, ...]) -> list[dict[str, Any]]:
    return [a.patch["spec"] for a in actions if isinstance(a, Patch)]


def test_a_suspension_changes_no_other_field_of_the_deployments() -> None:
    workload = a_workload(cities=("DFW", "LHR"))
    found = stored(workload)
    plan = plan_workload(PROJECT, workload, found, NOW, is_suspended=True)
    assert patches(plan.actions) == [{"suspended": True}] * 2
    assert not [a for a in plan.actions if isinstance(a, Delete)]
    plan = plan_workload(PROJECT, stop(workload), found, NOW)
    assert patches(plan.actions) == [{"stopped": True}] * 2


def test_a_workload_reports_the_halt_when_each_city_has_confirmed_it() -> None:
    workload = a_workload(cities=("DFW", "LHR"))
    running = stored(workload)

    def reason_of(deployments: list[WorkloadDeployment]) -> tuple[str, str]:
        plan = plan_workload(PROJECT, stop(workload), deployments, NOW)
        (status,) = [a.status for a in plan.actions if isinstance(a, PatchStatus)]
        found = {c["type"]: c["reason"] for c in status["conditions"]}
        return found["Available"], found["Progressing"]

    assert reason_of(running) == ("Stopping", "Stopped")
    confirmed = [
        msgspec.structs.replace(
            d,
            spec=msgspec.structs.replace(d.spec, stopped=True),
            status=WorkloadDeploymentStatus(
                observed_generation=d.metadata.generation,
                conditions=[Condition(type="Available", status="False", reason="Stopped")],
            ),
        )
        for d in running
    ]
    assert reason_of([running[0], confirmed[1]]) == ("Stopping", "Stopped")
    assert reason_of(confirmed) == ("Stopped", "Stopped")
