"""Status of unreachable cells: Unknown in the project until the cell is reachable again."""

from __future__ import annotations

import msgspec

from datum_compute.api.compute.deployment import ObservedSource, WorkloadDeploymentStatus
from datum_compute.api.compute.instance import AVAILABLE, PROGRAMMED, READY, InstanceStatus
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionStatus,
    ConditionValue,
    Reason,
    find_condition,
    make_condition,
)
from datum_compute.api.karmada import Cluster, ClusterStatus
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.planning.federation.deployment import HubState, project_status_from_hub
from datum_compute.planning.federation.unreachable import (
    UnreachableCell,
    find_unreachable,
    mark_deployment_unknown,
    mark_instance_unknown,
    same_reachability,
)
from datum_compute.planning.workload.status import workload_status
from testkit.builders import NOW, a_deployment, a_workload

SINCE, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:05:00Z"
UNREACHABLE = UnreachableCell("dfw", SINCE)
SERVING = WorkloadDeploymentStatus(
    conditions=[
        make_condition(
            type_, ConditionValue(TRUE, "Fine", "As it should be"), generation=1, now=NOW
        )
        for type_ in (AVAILABLE, "ReplicasReady", "Progressing")
    ],
    replicas=2,
    ready_replicas=2,
    available_replicas=2,
    updated_replicas=2,
    desired_replicas=2,
    observed_source=ObservedSource(generation=1),
)


def a_cluster(status: ConditionStatus | None = None, since: str = SINCE) -> Cluster:
    conditions = []
    if status is not None:
        verdict = ConditionValue(status, "Probed", "")
        conditions = [make_condition("Ready", verdict, generation=1, now=since)]
    return Cluster(metadata=ObjectMeta(name="dfw"), status=ClusterStatus(conditions=conditions))


def words(conditions: list[Condition], type_: str) -> tuple[str, str]:
    found = find_condition(conditions, type_)
    assert found is not None
    return found.status, found.reason


def test_a_cell_is_unreachable_when_a_probe_failed() -> None:
    assert find_unreachable(a_cluster(FALSE)) == UNREACHABLE
    assert find_unreachable(a_cluster(UNKNOWN)) == UNREACHABLE
    assert find_unreachable(a_cluster(TRUE)) is None
    assert find_unreachable(a_cluster()) is None
    assert find_unreachable(None) is None


def test_only_a_change_of_reachability_matters() -> None:
    assert same_reachability(a_cluster(TRUE), a_cluster(TRUE, LATER))
    assert same_reachability(a_cluster(FALSE), a_cluster(FALSE))
    assert not same_reachability(a_cluster(TRUE), a_cluster(FALSE))
    assert not same_reachability(a_cluster(), a_cluster(TRUE))
    assert not same_reachability(None, a_cluster(TRUE))


def test_nothing_on_an_unreachable_cell_counts_as_ready() -> None:
    status = mark_deployment_unknown(SERVING, SERVING, UNREACHABLE, LATER)
    for type_ in (AVAILABLE, "ReplicasReady", "Progressing"):
        assert words(status.conditions, type_) == (UNKNOWN, Reason.CELL_UNREACHABLE)
    assert (status.replicas, status.ready_replicas, status.available_replicas) == (2, 0, 0)
    assert status.last_known is not None
    assert (status.last_known.ready_replicas, status.last_known.as_of) == (2, SINCE)
    (blocked,) = status.blocked
    assert (blocked.reason, blocked.replicas) == (Reason.CELL_UNREACHABLE, 2)
    assert blocked.message == f"Cell dfw has not answered since {SINCE}"


def test_an_unreachable_cell_is_reported_once() -> None:
    first = mark_deployment_unknown(SERVING, SERVING, UNREACHABLE, LATER)
    assert mark_deployment_unknown(SERVING, first, UNREACHABLE, "2026-01-01T09:00:00Z") == first


def test_the_report_of_the_cell_returns_when_it_is_reachable() -> None:
    shown = msgspec.structs.replace(
        a_deployment(), status=mark_deployment_unknown(SERVING, SERVING, UNREACHABLE, LATER)
    )
    on_hub = msgspec.structs.replace(a_deployment(), status=SERVING)
    silent = project_status_from_hub(
        shown, HubState(None, on_hub, None, unreachable=UNREACHABLE), LATER
    )
    assert words(silent.conditions, AVAILABLE)[0] == UNKNOWN
    reachable = project_status_from_hub(shown, HubState(None, on_hub, None), LATER)
    assert (reachable.conditions, reachable.ready_replicas) == (SERVING.conditions, 2)
    assert reachable.last_known is None


def test_an_unreachable_cell_without_a_report_is_reported() -> None:
    on_hub = a_deployment()
    state = HubState(None, on_hub, None, unreachable=UNREACHABLE)
    status = project_status_from_hub(a_deployment(), state, LATER)
    assert words(status.conditions, AVAILABLE) == (UNKNOWN, Reason.CELL_UNREACHABLE)


def test_a_workload_on_unreachable_cells_only_is_not_available() -> None:
    workload = a_workload()
    silent = msgspec.structs.replace(
        a_deployment(), status=mark_deployment_unknown(SERVING, SERVING, UNREACHABLE, LATER)
    )
    status = workload_status(workload, [silent], LATER)
    assert words(status.conditions, AVAILABLE) == (UNKNOWN, Reason.CELL_UNREACHABLE)
    assert (status.ready_replicas, status.available_replicas) == (0, 0)


def test_an_instance_on_an_unreachable_cell_stays_programmed_with_unknown_readiness() -> None:
    good = ConditionValue(TRUE, "Fine", "As it should be")
    types = (PROGRAMMED, AVAILABLE, READY)
    last_report = InstanceStatus(
        conditions=[make_condition(t, good, generation=1, now=NOW) for t in types]
    )
    status = mark_instance_unknown(last_report, last_report, UNREACHABLE, LATER)
    assert words(status.conditions, PROGRAMMED) == (TRUE, "Fine")
    for type_ in (AVAILABLE, READY):
        assert words(status.conditions, type_) == (UNKNOWN, Reason.CELL_UNREACHABLE)
    assert mark_instance_unknown(last_report, status, UNREACHABLE, "2026-01-01T09:00:00Z") == status
