"""Conditions of a Cluster by how long its cell has been unreachable."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.cluster import NO_SCHEDULE, Cluster
from datum_compute.api.conditions import Condition, Verdict, decided
from datum_compute.api.meta import ObjectMeta
from datum_compute.api.timestamps import timestamp
from datum_compute.planning.federation.cells import (
    REACHABLE,
    READY,
    SERVING,
    CellProbe,
    plan_cell_health,
    unreachable,
)
from datum_compute.planning.plan import PatchStatus, Plan

NOW_S = 1_000_000.0
BEFORE = timestamp(NOW_S - 500)
NO_ROUTE = unreachable("no route")


def a_cluster(name: str = "dfw", ready: Verdict | None = None) -> Cluster:
    cluster = Cluster(metadata=ObjectMeta(name=name, labels={labels.TOPOLOGY_CITY: "DFW"}))
    if ready is None:
        return cluster
    conditions = [decided(READY, ready, generation=0, now=BEFORE)]
    status = msgspec.structs.replace(cluster.status, conditions=conditions)
    return msgspec.structs.replace(cluster, status=status)


def plan_of(cluster: Cluster, result: Verdict, unreachable_s: float, *others: Cluster) -> Plan:
    probe = CellProbe(result, unreachable_s, interval_s=10.0, grace_s=30.0)
    return plan_cell_health(cluster, others, probe, NOW_S)


def written(plan: Plan) -> dict[str, Any]:
    """The conditions of the only write, by type."""
    (patch,) = plan.actions
    assert isinstance(patch, PatchStatus)
    return {condition["type"]: condition for condition in patch.status["conditions"]}


@pytest.mark.parametrize(
    ("before", "probe", "unreachable_s", "status", "since_s"),
    [
        pytest.param(None, REACHABLE, 0.0, "True", 0.0, id="a new cell answers"),
        pytest.param(None, NO_ROUTE, 0.5, "False", 0.5, id="a new cell does not answer"),
        pytest.param(REACHABLE, NO_ROUTE, 30.0, "False", 30.0, id="the grace period is over"),
        pytest.param(NO_ROUTE, REACHABLE, 0.0, "True", 0.0, id="the cell answers again"),
    ],
)
def test_ready_follows_the_probes(
    before: Verdict | None, probe: Verdict, unreachable_s: float, status: str, since_s: float
) -> None:
    plan = plan_of(a_cluster(ready=before), probe, unreachable_s)
    ready = written(plan)[READY]
    assert (ready["status"], ready["reason"]) == (status, probe.reason)
    assert ready["lastTransitionTime"] == timestamp(NOW_S - since_s)
    assert plan.requeue_after_s == 10.0


@pytest.mark.parametrize(("unreachable_s", "requeue_after_s"), [(5.0, 10.0), (25.0, 5.0)])
def test_a_ready_cell_stays_ready_during_the_grace_period(
    unreachable_s: float, requeue_after_s: float
) -> None:
    plan = plan_of(a_cluster(ready=REACHABLE), NO_ROUTE, unreachable_s)
    assert plan == Plan(requeue_after_s=requeue_after_s)


def test_an_unreachable_cell_is_not_written_again() -> None:
    assert plan_of(a_cluster(ready=NO_ROUTE), NO_ROUTE, 500.0).actions == ()


def test_serving_is_set_for_a_shared_city_and_kept_when_it_is_true_again() -> None:
    cluster, other = a_cluster(ready=REACHABLE), a_cluster("dfw-2")
    shared = written(plan_of(cluster, REACHABLE, 0.0, other))[SERVING]
    assert (shared["status"], shared["reason"]) == ("False", "AmbiguousServingLocation")
    conditions = [*cluster.status.conditions, msgspec.convert(shared, Condition)]
    status = msgspec.structs.replace(cluster.status, conditions=conditions)
    alone = msgspec.structs.replace(cluster, status=status)
    assert written(plan_of(alone, REACHABLE, 0.0))[SERVING]["reason"] == "ServesCity"


def test_a_drained_cell_does_not_serve_although_it_is_unreachable() -> None:
    taint = {"key": "example.com/drain", "effect": NO_SCHEDULE}
    spec = msgspec.convert({"taints": [taint]}, type(Cluster().spec))
    drained = msgspec.structs.replace(a_cluster(ready=REACHABLE), spec=spec)
    conditions = written(plan_of(drained, NO_ROUTE, 5.0))
    assert conditions[SERVING]["reason"] == "CellDrained"
    assert conditions[READY]["status"] == "True"
