"""The deployments of a Workload and its aggregated status."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import (
    ObservedSource,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.api.compute.workload import BlockedReplicas, Workload
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    ConditionStatus,
    ConditionValue,
    find_condition,
    make_condition,
)
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, REVISION, WORKLOAD
from datum_compute.api.meta.objects import owner_reference
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.api.planes import project_plane
from datum_compute.api.quota import GRANTED, ResourceClaim, ResourceClaimStatus
from datum_compute.planning.plan import Action, Create, Delete, Patch, PatchStatus, Wait
from datum_compute.planning.quota.workload_claims import EXPECTED_DECISION_S, plan_workload_claim
from datum_compute.planning.workload.deployments import (
    WorkloadObjects,
    desired_deployments,
    plan_workload,
    plan_workload_lifecycle,
)
from datum_compute.planning.workload.revisions import plan_revisions
from datum_compute.planning.workload.status import workload_status
from datum_compute.planning.workload.templates import template_hash
from testkit.builders import NOW, a_workload

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
    settled = msgspec.structs.replace(workload, status=workload_status(workload, observed, NOW))
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


def test_counts_add_up_over_cities() -> None:
    workload = a_workload(cities=("DFW", "ORD"), replicas=2)
    status = workload_status(
        workload, stored(workload, replicas=2, ready_replicas=1, desired_replicas=2), NOW
    )
    assert (status.replicas, status.ready_replicas, status.desired_replicas) == (4, 2, 4)
    assert status.deployments == 2
    assert workload.metadata.generation == status.observed_generation


@pytest.mark.parametrize(("reported", "expected"), [(1, 2), (0, 0), (None, 4)])
def test_available_replicas_add_up_also_over_cells_that_do_not_report_them(
    reported: int | None, expected: int
) -> None:
    """Of a cell of an older release, ready replicas count as available."""
    workload = a_workload(cities=("DFW", "ORD"), replicas=2)
    counts = {"replicas": 2, "ready_replicas": 2, "desired_replicas": 2}
    deployments = stored(workload, **counts, available_replicas=reported)
    status = workload_status(workload, deployments, NOW)
    assert (status.ready_replicas, status.available_replicas) == (4, expected)
    assert [p.available_replicas for p in status.placements] == [expected]


def test_without_available_cities_the_worst_one_is_reported() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    reasons = (("InstancesProvisioning", "soon"), ("ImageUnavailable", "no such image web:1"))
    deployments = [
        msgspec.structs.replace(
            d,
            status=WorkloadDeploymentStatus(
                conditions=[
                    make_condition(
                        "Available", ConditionValue(FALSE, *words), generation=1, now=NOW
                    )
                ]
            ),
        )
        for d, words in zip(stored(workload), reasons, strict=True)
    ]
    available = find_condition(workload_status(workload, deployments, NOW).conditions, "Available")
    assert available is not None
    assert (
        available.status,
        available.reason,
        available.message,
    ) == (FALSE, "ImageUnavailable", "no such image web:1")


def test_one_available_city_makes_the_workload_available() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    first, second = stored(workload)
    good = make_condition(
        "Available", ConditionValue(TRUE, "StableInstanceFound", ""), generation=1, now=NOW
    )
    first = msgspec.structs.replace(first, status=WorkloadDeploymentStatus(conditions=[good]))
    status = workload_status(workload, [first, second], NOW)
    available = find_condition(status.conditions, "Available")
    assert available is not None
    assert available.status == TRUE


def test_a_status_write_names_the_version_it_was_computed_from() -> None:
    workload = a_workload()
    (write,) = plan_workload(PROJECT, workload, stored(workload), NOW).actions
    assert isinstance(write, PatchStatus)
    assert workload.metadata.resource_version == write.version


def test_a_new_template_is_not_updated_before_a_city_reports_it() -> None:
    """Regression: the first status after an image change counted all replicas as updated."""
    old, new = a_workload("web:1"), a_workload("web:2")
    counts = {"replicas": 1, "updated_replicas": 1, "current_replicas": 1, "ready_replicas": 1}
    counts["observed_generation"] = 1
    source = ObservedSource(generation=1, template_hash=template_hash(old.spec.template))
    status = workload_status(new, stored(old, **counts, observed_source=source), NOW)
    assert (status.updated_replicas, status.current_replicas, status.ready_replicas) == (0, 0, 1)
    unchanged = workload_status(old, stored(old, **counts, observed_source=source), NOW)
    assert unchanged.updated_replicas == 1


def test_a_move_is_not_complete_before_the_new_city_reports() -> None:
    """Regression: replicas of the old city counted as updated ones of the new city."""
    before, after = a_workload(cities=("IAD",)), a_workload(cities=("DFW",))
    counts = {"replicas": 1, "updated_replicas": 1, "ready_replicas": 1, "observed_generation": 1}
    status = workload_status(after, stored(before, **counts), NOW)
    assert (status.replicas, status.ready_replicas, status.updated_replicas) == (1, 1, 0)


def test_a_scale_is_not_complete_before_the_city_reports_it() -> None:
    """Regression: after scaling down and up again, the earlier counts were used."""
    workload = a_workload(replicas=2)
    counts = {"replicas": 2, "updated_replicas": 2, "ready_replicas": 2, "observed_generation": 1}
    (deployment,) = stored(workload, **counts)
    newer = msgspec.structs.replace(deployment.metadata, generation=3)
    deployment = msgspec.structs.replace(deployment, metadata=newer)
    assert workload_status(workload, [deployment], NOW).updated_replicas == 0


def test_a_scale_is_not_complete_before_the_deployment_has_it() -> None:
    """Regression: two earlier replicas counted as the updated replicas of two cities."""
    before, after = a_workload(replicas=2), a_workload(replicas=1)
    counts = {"replicas": 2, "updated_replicas": 2, "ready_replicas": 2, "observed_generation": 1}
    assert workload_status(after, stored(before, **counts), NOW).updated_replicas == 0
    assert workload_status(before, stored(before, **counts), NOW).updated_replicas == 2


def test_desired_replicas_follow_the_spec_of_the_workload() -> None:
    workload = a_workload(cities=("DFW", "ORD"), replicas=3)
    assert workload_status(workload, [], NOW).desired_replicas == 6


def reporting(
    deployment: WorkloadDeployment,
    reason: str,
    status: ConditionStatus = TRUE,
    message: str = "",
) -> WorkloadDeployment:
    """Return the deployment of a city with this Progressing condition for the current template."""
    progressing = make_condition(
        "Progressing",
        ConditionValue(status, reason, message),
        generation=1,
        now=NOW,
    )
    source = ObservedSource(generation=1, template_hash=template_hash(deployment.spec.template))
    return msgspec.structs.replace(
        deployment,
        status=WorkloadDeploymentStatus(
            conditions=[progressing],
            observed_generation=deployment.metadata.generation,
            observed_source=source,
        ),
    )


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("RolloutComplete", "RolloutComplete", "RolloutComplete"),
        ("RolloutComplete", "RollingOut", "RollingOut"),
        ("ProgressDeadlineExceeded", "RollingOut", "ProgressDeadlineExceeded"),
        ("RollingOut", "RolloutPaused", "RolloutPaused"),
    ],
)
def test_the_rollout_of_a_workload_is_that_of_its_worst_city(
    first: str, second: str, expected: str
) -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    dfw, ord_ = stored(workload)
    cities = [reporting(dfw, first), reporting(ord_, second)]
    progress = find_condition(workload_status(workload, cities, NOW).conditions, "Progressing")
    assert progress is not None
    assert progress.reason == expected


def test_a_city_without_a_report_leaves_the_rollout_unknown() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    dfw, silent = stored(workload)
    status = workload_status(workload, [reporting(dfw, "RolloutComplete"), silent], NOW)
    progress = find_condition(status.conditions, "Progressing")
    assert progress is not None
    assert (progress.status, progress.message) == ("Unknown", "No report yet from ORD")


def test_blocked_replicas_add_up_over_cities_by_reason() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    dfw, ord_ = (
        msgspec.structs.replace(d, status=WorkloadDeploymentStatus(blocked=blocked))
        for d, blocked in zip(
            stored(workload),
            (
                [BlockedReplicas(reason="PendingQuota", replicas=2, message="11 of 10")],
                [
                    BlockedReplicas(reason="ImageUnavailable", replicas=1),
                    BlockedReplicas(reason="PendingQuota", replicas=3, message="later"),
                ],
            ),
            strict=True,
        )
    )
    blocked = workload_status(workload, [ord_, dfw], NOW).blocked
    assert [(b.reason, b.replicas) for b in blocked] == [
        ("ImageUnavailable", 1),
        ("PendingQuota", 5),
    ]


def test_the_status_does_not_depend_on_the_order_of_cities() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    cities = [reporting(d, "RollingOut", message=d.spec.city_code) for d in stored(workload)]
    assert workload_status(workload, cities, NOW) == workload_status(workload, cities[::-1], NOW)


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
