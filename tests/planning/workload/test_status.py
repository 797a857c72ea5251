"""The status of a Workload, aggregated from the deployments of its cities."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.compute.deployment import (
    ObservedSource,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.api.compute.workload import BlockedReplicas, Workload, WorkloadStatus
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    ConditionStatus,
    ConditionValue,
    find_condition,
    make_condition,
)
from datum_compute.planning.workload.status import workload_status
from datum_compute.planning.workload.templates import template_hash
from testkit.builders import NOW, a_workload
from tests.planning.workload.test_deployments import stored


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


def scaled_before_its_report(replicas: int, updated: int) -> WorkloadStatus:
    """Return the status of a workload whose only city has not reported the new scale yet."""
    workload = a_workload(replicas=replicas)
    counts = {
        "replicas": updated,
        "updated_replicas": updated,
        "ready_replicas": updated,
        "observed_generation": 1,
        "observed_source": ObservedSource(generation=1, template_hash=hash_of(workload)),
    }
    (deployment,) = stored(workload, **counts)
    newer = msgspec.structs.replace(deployment.metadata, generation=3)
    return workload_status(workload, [msgspec.structs.replace(deployment, metadata=newer)], NOW)


def hash_of(workload: Workload) -> str:
    return template_hash(workload.spec.template)


@pytest.mark.parametrize("replicas", [1, 2, 3])
def test_a_change_of_only_the_scale_keeps_the_updated_replicas(replicas: int) -> None:
    status = scaled_before_its_report(replicas, updated=2)
    assert (status.updated_replicas, status.desired_replicas) == (2, replicas)


def test_a_scale_is_not_complete_before_the_city_reports_it() -> None:
    """Regression: after scaling down and up again, the earlier report counted as complete."""
    progressing = find_condition(scaled_before_its_report(2, updated=2).conditions, "Progressing")
    assert progressing is not None
    assert (progressing.status, progressing.reason) == (UNKNOWN, "AwaitingPropagation")


def test_a_scale_is_not_complete_before_the_deployment_has_it() -> None:
    before, after = a_workload(replicas=2), a_workload(replicas=1)
    source = ObservedSource(generation=1, template_hash=hash_of(before))
    counts = {"replicas": 2, "updated_replicas": 2, "ready_replicas": 2, "observed_generation": 1}
    deployments = stored(before, **counts, observed_source=source)
    progressing = find_condition(workload_status(after, deployments, NOW).conditions, "Progressing")
    assert progressing is not None
    assert (progressing.status, progressing.reason) == (UNKNOWN, "AwaitingPropagation")
    assert workload_status(before, deployments, NOW).updated_replicas == 2


def test_replicas_of_an_earlier_template_are_not_updated() -> None:
    workload = a_workload(replicas=2)
    counts = {"replicas": 2, "updated_replicas": 2, "observed_generation": 1}
    source = ObservedSource(generation=1, template_hash="earlier")
    deployments = stored(workload, **counts, observed_source=source)
    assert workload_status(workload, deployments, NOW).updated_replicas == 0


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


def test_surge_instances_add_up_and_a_city_without_them_is_named() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    value = ConditionValue(FALSE, "SurgeUnavailable", "the limit is used up")
    condition = make_condition("SurgeAvailable", value, generation=1, now=NOW)
    dallas, chicago = stored(workload, surge_replicas=1, covered_replicas=1)
    dallas = msgspec.structs.replace(
        dallas, status=msgspec.structs.replace(dallas.status, conditions=[condition])
    )
    status = workload_status(workload, [dallas, chicago], NOW)
    assert (status.surge_replicas, status.placements[0].surge_replicas) == (2, 2)
    assert (status.covered_replicas, status.placements[0].covered_replicas) == (2, 2)
    reported = find_condition(status.conditions, "SurgeAvailable")
    assert reported is not None
    assert (reported.status, reported.reason) == (FALSE, "SurgeUnavailable")
    assert reported.message == f"{dallas.spec.city_code}: the limit is used up"
    later = msgspec.structs.replace(workload, status=status)
    after = workload_status(later, [chicago, chicago], NOW)
    assert find_condition(after.conditions, "SurgeAvailable") is None
