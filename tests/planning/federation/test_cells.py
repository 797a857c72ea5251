"""One cell for a city: scheduling, the reason if it fails, and the removal of cells.

Conditions of a Cluster by how long its cell has been unreachable.

Claims of a removed cell are deleted first, then their finalizers are removed.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Condition,
    ConditionValue,
    Reason,
    make_condition,
)
from datum_compute.api.core import Namespace
from datum_compute.api.karmada import (
    NO_SCHEDULE,
    Cluster,
    ClusterSpec,
    ClusterStatus,
    Taint,
    Work,
    WorkloadTemplate,
    WorkSpec,
)
from datum_compute.api.kinds import CLUSTER, INSTANCE, NAMESPACE, WORK
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import project_plane
from datum_compute.api.quota import ResourceClaim, ResourceClaimSpec, consumer_of
from datum_compute.planning.federation.cells import (
    REACHABLE_RESULT,
    READY,
    SERVING,
    CellObjects,
    CellProbe,
    not_reachable_result,
    plan_cell_health,
    plan_cluster_removal,
    plan_orphaned_claims,
    schedule_to_all,
    schedule_to_one,
    serving_condition,
    unschedulable_reason,
)
from datum_compute.planning.plan import Delete, Patch, PatchStatus, Plan, Wait
from testkit.builders import NOW, an_instance

DRAINED = Taint(key="compute.datumapis.com/drained", effect="NoSchedule")


def a_cluster(name: str, *taints: Taint) -> Cluster:
    return Cluster(metadata=ObjectMeta(name=name), spec=ClusterSpec(taints=list(taints)))


# Cells that match, those that are drained, present cell, result, reason.
TABLE = [
    (["dfw"], [], [], ("dfw",), "Success"),
    ([], [], [], (), "NoClusterFit"),
    ([], [], ["gone"], (), "NoClusterFit"),
    (["dfw"], ["dfw"], [], (), Reason.CELL_DRAINED),
    (["dfw"], ["dfw"], ["dfw"], ("dfw",), "Success"),
    (["dfw", "two"], [], [], (), Reason.AMBIGUOUS_SERVING_LOCATION),
    (["dfw", "two"], [], ["two"], ("two",), "Success"),
    (["dfw", "two"], ["two"], [], (), Reason.AMBIGUOUS_SERVING_LOCATION),
    (["dfw", "two"], ["dfw", "two"], ["dfw"], ("dfw",), "Success"),
    (["two", "dfw"], [], ["two", "dfw"], ("dfw",), "Success"),
]


@pytest.mark.parametrize(("matching", "drained", "bound", "targets", "reason"), TABLE)
def test_a_deployment_is_scheduled_to_one_cell_or_has_a_reason(
    matching: list[str],
    drained: list[str],
    bound: list[str],
    targets: tuple[str, ...],
    reason: str,
) -> None:
    clusters = [a_cluster(n, *([DRAINED] if n in drained else [])) for n in matching]
    placing = schedule_to_one(clusters, bound)
    assert (placing.targets, placing.verdict.reason) == (targets, reason)
    assert (placing.verdict.status == TRUE) is bool(targets)


def test_namespaces_and_sources_are_scheduled_to_every_cell_including_drained_ones() -> None:
    placing = schedule_to_all([a_cluster("iad"), a_cluster("dfw", DRAINED)])
    assert placing.targets == ("dfw", "iad")


def test_other_taints_do_not_affect_scheduling() -> None:
    cluster = a_cluster("dfw", Taint(key="noted", effect="PreferNoSchedule"))
    assert schedule_to_one([cluster], []).targets == ("dfw",)


def test_a_taint_of_karmada_does_not_drain_a_cell() -> None:
    silent = Taint(key="cluster.karmada.io/not-ready", effect="NoSchedule")
    assert serving_condition(a_cluster("dfw", silent), []).status == TRUE


def test_the_reason_why_no_cell_of_a_city_accepts_deployments() -> None:
    """Karmada's scheduler reports only that no cluster fits."""
    not_ready = Condition(type="Ready", status=FALSE, reason="", last_transition_time=NOW)
    silent = msgspec.structs.replace(a_cluster("dfw"), status=ClusterStatus(conditions=[not_ready]))
    drained = a_cluster("ord", DRAINED)
    assert unschedulable_reason([]) is None
    assert unschedulable_reason([silent, a_cluster("ord")]) is None, "one would"
    reasons = [
        found and found.reason
        for found in (unschedulable_reason([silent]), unschedulable_reason([drained]))
    ]
    assert reasons == [Reason.CELL_UNREACHABLE, Reason.CELL_DRAINED]
    both = unschedulable_reason([drained, silent])
    assert both is not None
    assert "dfw" in both.message, "the one that would take it if it answered"


def test_a_cluster_reports_why_it_accepts_no_new_work() -> None:
    alone, drained = a_cluster("dfw"), a_cluster("dfw", DRAINED)
    assert serving_condition(alone, []).status == TRUE
    assert serving_condition(drained, []).reason == Reason.CELL_DRAINED
    both = serving_condition(drained, [a_cluster("two")])
    assert (both.status, both.reason) == (FALSE, Reason.AMBIGUOUS_SERVING_LOCATION)
    assert "two" in both.message


# --- removal


def leaving(*, forced: bool = False, answers: bool = True) -> Cluster:
    verdict = ConditionValue(TRUE if answers else FALSE, "R", "m")
    ready = make_condition("Ready", verdict, generation=1, now=NOW)
    return Cluster(
        metadata=ObjectMeta(
            name="dfw",
            uid="u",
            resource_version="1",
            deletion_timestamp=NOW,
            finalizers=[labels.CLUSTER_FINALIZER],
            annotations={labels.FORCED_LEAVE: "true"} if forced else {},
        ),
        status=ClusterStatus(conditions=[ready]),
    )


def a_work(*, terminating: bool) -> Work:
    return Work(
        metadata=ObjectMeta(
            name="w",
            namespace="karmada-es-dfw",
            uid="w",
            resource_version="1",
            finalizers=[labels.EXECUTION_FINALIZER],
            deletion_timestamp=NOW if terminating else None,
        ),
        spec=WorkSpec(workload=WorkloadTemplate(manifests=[{"kind": "WorkloadDeployment"}])),
    )


def kinds(plan: Plan) -> list[tuple[str, str]]:
    return [(type(a).__name__, a.kind.kind) for a in plan.actions if isinstance(a, Delete | Patch)]


EMPTY = CellObjects((), (), ())


def test_the_removal_of_a_cell_waits_for_its_works() -> None:
    plan = plan_cluster_removal(leaving(), CellObjects([a_work(terminating=True)], (), ()))
    assert kinds(plan) == []
    assert isinstance(plan.actions[0], Wait)
    assert plan.requeue_after_s is not None


def test_a_forced_leave_releases_the_works_of_an_unreachable_cell() -> None:
    silent = leaving(forced=True, answers=False)
    terminating = plan_cluster_removal(silent, CellObjects([a_work(terminating=True)], (), ()))
    assert kinds(terminating) == [("Patch", WORK.kind)]
    standing = plan_cluster_removal(silent, CellObjects([a_work(terminating=False)], (), ()))
    assert kinds(standing) == [("Delete", WORK.kind)]


def test_a_forced_removal_waits_for_the_works_of_a_reachable_cell() -> None:
    plan = plan_cluster_removal(
        leaving(forced=True), CellObjects([a_work(terminating=True)], (), ())
    )
    assert kinds(plan) == []


def test_a_work_without_binding_is_deleted_with_its_cell() -> None:
    """No other controller deletes a Work created by hand, and the removal waits for it."""
    by_hand, bound = a_work(terminating=False), a_work(terminating=False)
    bound.metadata.labels[labels.BINDING_ID] = "b"
    found = CellObjects([by_hand, bound], (), (), frozenset({"b"}))
    plan = plan_cluster_removal(leaving(), found)
    assert kinds(plan) == [("Delete", WORK.kind)]
    assert isinstance(plan.actions[-1], Wait)
    bound.metadata.labels[labels.BINDING_ID] = "gone"
    assert kinds(plan_cluster_removal(leaving(), found)) == [("Delete", WORK.kind)] * 2


def test_hub_objects_of_a_cell_are_deleted_before_its_finalizer_is_removed() -> None:
    copy: Instance = msgspec.structs.replace(an_instance(0))
    space = Namespace(metadata=ObjectMeta(name="karmada-es-dfw", uid="n"))
    plan = plan_cluster_removal(leaving(), CellObjects((), [copy], [(NAMESPACE, space)]))
    assert kinds(plan) == [("Delete", INSTANCE.kind), ("Delete", NAMESPACE.kind)]
    assert kinds(plan_cluster_removal(leaving(), EMPTY)) == [("Patch", CLUSTER.kind)]


def test_a_cell_that_is_not_being_deleted_is_not_changed() -> None:
    staying = msgspec.structs.replace(
        leaving(), metadata=ObjectMeta(name="dfw", finalizers=[labels.CLUSTER_FINALIZER])
    )
    assert plan_cluster_removal(staying, EMPTY) == Plan()


NOW_S = 1_000_000.0
BEFORE = timestamp(NOW_S - 500)
NO_ROUTE = not_reachable_result("no route")


def a_cluster_cell_health(name: str = "dfw", ready: ConditionValue | None = None) -> Cluster:
    cluster = Cluster(metadata=ObjectMeta(name=name, labels={labels.TOPOLOGY_CITY: "DFW"}))
    if ready is None:
        return cluster
    conditions = [make_condition(READY, ready, generation=0, now=BEFORE)]
    status = msgspec.structs.replace(cluster.status, conditions=conditions)
    return msgspec.structs.replace(cluster, status=status)


def plan_of(
    cluster: Cluster, result: ConditionValue, unreachable_s: float, *others: Cluster
) -> Plan:
    probe = CellProbe(result, unreachable_s, interval_s=10.0, timeout_s=5.0, grace_s=30.0)
    return plan_cell_health(cluster, others, probe, NOW_S)


def written(plan: Plan) -> dict[str, Any]:
    """Return the conditions of the only write, by type."""
    (patch,) = plan.actions
    assert isinstance(patch, PatchStatus)
    return {condition["type"]: condition for condition in patch.status["conditions"]}


@pytest.mark.parametrize(
    ("before", "probe", "unreachable_s", "status", "since_s"),
    [
        pytest.param(None, REACHABLE_RESULT, 0.0, "True", 0.0, id="a new cell answers"),
        pytest.param(None, NO_ROUTE, 0.5, "False", 0.5, id="a new cell does not respond"),
        pytest.param(
            REACHABLE_RESULT, NO_ROUTE, 30.0, "False", 30.0, id="the grace period is over"
        ),
        pytest.param(NO_ROUTE, REACHABLE_RESULT, 0.0, "True", 0.0, id="the cell answers again"),
    ],
)
def test_ready_follows_the_probes(
    before: ConditionValue | None,
    probe: ConditionValue,
    unreachable_s: float,
    status: str,
    since_s: float,
) -> None:
    plan = plan_of(a_cluster_cell_health(ready=before), probe, unreachable_s)
    ready = written(plan)[READY]
    assert (ready["status"], ready["reason"]) == (status, probe.reason)
    assert ready["lastTransitionTime"] == timestamp(NOW_S - since_s)
    assert plan.requeue_after_s == 10.0


@pytest.mark.parametrize(
    ("unreachable_s", "requeue_after_s"), [(5.0, 10.0), (15.0, 10.0), (20.0, 5.0), (25.0, 5.0)]
)
def test_a_ready_cell_stays_ready_during_the_grace_period(
    unreachable_s: float, requeue_after_s: float
) -> None:
    plan = plan_of(a_cluster_cell_health(ready=REACHABLE_RESULT), NO_ROUTE, unreachable_s)
    assert plan == Plan(requeue_after_s=requeue_after_s)


def test_an_unreachable_cell_is_not_written_again() -> None:
    assert plan_of(a_cluster_cell_health(ready=NO_ROUTE), NO_ROUTE, 500.0).actions == ()


def test_serving_is_set_for_a_shared_city_and_kept_when_it_is_true_again() -> None:
    cluster, other = a_cluster_cell_health(ready=REACHABLE_RESULT), a_cluster_cell_health("dfw-2")
    shared = written(plan_of(cluster, REACHABLE_RESULT, 0.0, other))[SERVING]
    assert (shared["status"], shared["reason"]) == ("False", "AmbiguousServingLocation")
    conditions = [*cluster.status.conditions, msgspec.convert(shared, Condition)]
    status = msgspec.structs.replace(cluster.status, conditions=conditions)
    alone = msgspec.structs.replace(cluster, status=status)
    assert written(plan_of(alone, REACHABLE_RESULT, 0.0))[SERVING]["reason"] == "ServesCity"


def test_a_drained_cell_does_not_serve_although_it_is_unreachable() -> None:
    taint = {"key": "example.com/drain", "effect": NO_SCHEDULE}
    spec = msgspec.convert({"taints": [taint]}, type(Cluster().spec))
    drained = msgspec.structs.replace(a_cluster_cell_health(ready=REACHABLE_RESULT), spec=spec)
    conditions = written(plan_of(drained, NO_ROUTE, 5.0))
    assert conditions[SERVING]["reason"] == "CellDrained"
    assert conditions[READY]["status"] == "True"


PROJECT = project_plane("shop")


def a_claim(name: str, *, terminating: bool = False) -> ResourceClaim:
    consumer = consumer_of("shop")
    return ResourceClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-of-{name}",
            finalizers=[labels.CLAIM_FINALIZER],
            deletion_timestamp=NOW if terminating else None,
        ),
        spec=ResourceClaimSpec(consumer_ref=consumer, resource_ref=consumer, requests=[]),
    )


def test_claims_of_a_removed_cell_are_deleted_and_then_released() -> None:
    claims = [a_claim("instance-web-0"), a_claim("instance-web-1", terminating=True)]
    delete, release = plan_orphaned_claims(PROJECT, claims, "cell dfw has left").actions
    assert isinstance(delete, Delete)
    assert (delete.uid, delete.reason) == ("uid-of-instance-web-0", "cell dfw has left")
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []
