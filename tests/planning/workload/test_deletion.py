"""The deletion of a Workload: order, and the status while objects remain."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment, WorkloadDeploymentStatus
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import FALSE, find_condition
from datum_compute.api.kinds import CLAIM, DEPLOYMENT
from datum_compute.api.meta.codec import from_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import project_plane
from datum_compute.planning.plan import Delete, Patch, PatchStatus, Wait
from datum_compute.planning.workload.deletion import (
    RECHECK_S,
    deletion_status,
    plan_deployment_deletions,
    plan_workload_deletion,
)
from testkit.builders import NOW, a_deployment, a_workload

PROJECT = project_plane("shop")
LATER = "2026-01-01T00:01:00Z"
FOREIGN = "example.com/backup"
CLAIM_DELETION = Delete(PROJECT, CLAIM, Ref("default", "workload-web"), "uid-claim", "released")


def deleted_workload(*more_finalizers: str) -> Workload:
    workload = a_workload(terminating=True)
    finalizers = [labels.WORKLOAD_FINALIZER, *more_finalizers]
    metadata = msgspec.structs.replace(workload.metadata, finalizers=finalizers)
    return msgspec.structs.replace(workload, metadata=metadata)


def in_city(city: str, *, replicas: int = 0, terminating: bool = False) -> WorkloadDeployment:
    name = f"web-{city.lower()}"
    deployment = a_deployment(city=city, name=name, terminating=terminating)
    status = WorkloadDeploymentStatus(replicas=replicas, ready_replicas=replicas)
    return msgspec.structs.replace(deployment, status=status)


def recorded(workload: Workload, status: Any) -> Workload:
    """Return the workload after the status write."""
    assert isinstance(status, PatchStatus)
    body = {"conditions": status.status["conditions"], "observedGeneration": 1}
    return msgspec.structs.replace(workload, status=from_json(body, type(workload.status)))


def test_each_deployment_is_deleted_once() -> None:
    dfw, ord_ = in_city("DFW"), in_city("ORD", terminating=True)
    assert plan_deployment_deletions(PROJECT, [dfw, ord_], "gone") == [
        Delete(PROJECT, DEPLOYMENT, Ref("default", "web-dfw"), "uid-of-web-dfw", "gone")
    ]


def test_claim_and_finalizer_stay_while_deployments_remain() -> None:
    deployments = [in_city("DFW", terminating=True), in_city("ORD", terminating=True)]
    plan = plan_workload_deletion(PROJECT, deleted_workload(), deployments, NOW, [CLAIM_DELETION])
    report, wait = plan.actions
    assert isinstance(report, PatchStatus)
    assert wait == Wait("2 deployments remain")
    assert plan.requeue_after_s == RECHECK_S


def test_the_claim_is_deleted_before_the_finalizer_is_removed() -> None:
    plan = plan_workload_deletion(PROJECT, deleted_workload(), [], NOW, [CLAIM_DELETION])
    claim, release = plan.actions
    assert claim == CLAIM_DELETION
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


def test_a_foreign_finalizer_is_reported_before_ours_is_removed() -> None:
    workload = deleted_workload(FOREIGN)
    (report,) = plan_workload_deletion(PROJECT, workload, [], NOW).actions
    assert isinstance(report, PatchStatus)
    assert "metadata" not in report.status
    (release,) = plan_workload_deletion(PROJECT, recorded(workload, report), [], LATER).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == [FOREIGN]


@pytest.mark.parametrize(
    ("finalizers", "cities", "reason", "message"),
    [
        pytest.param((), (), "Removing", "Being deleted: no instances are left", id="empty"),
        pytest.param(
            (FOREIGN,),
            ("ORD", "DFW"),
            "Removing",
            "Being deleted: waiting for DFW, ORD to confirm that its instances are gone",
            id="cities-remain",
        ),
        pytest.param(
            (FOREIGN,),
            (),
            "HeldByFinalizer",
            f"Being deleted: nothing is left on reachable cells; held by {FOREIGN}",
            id="foreign-finalizer",
        ),
    ],
)
def test_the_conditions_name_what_the_deletion_waits_for(
    finalizers: tuple[str, ...], cities: tuple[str, ...], reason: str, message: str
) -> None:
    deployments = [in_city(city) for city in cities]
    status = deletion_status(deleted_workload(*finalizers), deployments, NOW)
    for type_ in ("Available", "Progressing"):
        condition = find_condition(status.conditions, type_)
        assert condition is not None
        assert (condition.status, condition.reason) == (FALSE, reason)
        assert condition.message == message


def test_replicas_count_until_their_city_is_gone_but_none_is_ready_or_desired() -> None:
    deployments = [in_city("DFW", replicas=2), in_city("ORD", replicas=3)]
    status = deletion_status(deleted_workload(), deployments, NOW)
    assert (status.deployments, status.replicas) == (2, 5)
    assert (status.ready_replicas, status.desired_replicas) == (0, 0)
    assert status.observed_generation == 1


def test_the_deletion_keeps_its_transition_time() -> None:
    workload = deleted_workload()
    first = deletion_status(workload, [in_city("DFW"), in_city("ORD")], NOW)
    workload = msgspec.structs.replace(workload, status=first)
    second = find_condition(
        deletion_status(workload, [in_city("DFW")], LATER).conditions, "Available"
    )
    assert second is not None
    assert second.last_transition_time == NOW
