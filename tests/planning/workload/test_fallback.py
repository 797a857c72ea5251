"""Fallback cities: which deployments are created, and which stay until then."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment, WorkloadDeploymentStatus
from datum_compute.api.compute.workload import BlockedReplicas, CityFloor, Workload
from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN, Condition, Reason
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.api.planes import project_plane
from datum_compute.planning.plan import Create, Delete
from datum_compute.planning.workload.deployments import desired_deployments, plan_workload
from datum_compute.planning.workload.fallback import CityAssignment, assign_cities
from datum_compute.planning.workload.templates import template_hash
from testkit.builders import NOW, a_workload

AFTER_S = 120


def at(seconds: float) -> str:
    return timestamp(parse_timestamp(NOW) + seconds)


def with_fallback(*cities: str, floor: int = 0, **metadata: Any) -> Workload:
    """Return a workload in DFW and LHR with two instances each."""
    workload = a_workload(cities=("DFW", "LHR"), replicas=2)
    (placement,) = workload.spec.placements
    floors = [CityFloor(city_code="DFW", ready_replicas=floor)] if floor else []
    placed = msgspec.structs.replace(
        placement, fallback_city_codes=list(cities), city_floors=floors
    )
    spec = msgspec.structs.replace(workload.spec, placements=[placed])
    changed = msgspec.structs.replace(workload.metadata, **metadata)
    return msgspec.structs.replace(workload, spec=spec, metadata=changed)


def a_deployment_in(
    city: str,
    *,
    ready: int = 2,
    reason: str = "",
    since_s: float = 0.0,
    fallback_for: str = "",
    made_s: float = 0.0,
    deleting: bool = False,
) -> WorkloadDeployment:
    workload = a_workload(cities=(city,), replicas=2)
    (made,) = desired_deployments(workload)
    metadata = msgspec.structs.replace(
        made.metadata,
        creation_timestamp=at(made_s),
        annotations={labels.FALLBACK_FOR: fallback_for} if fallback_for else {},
        deletion_timestamp=NOW if deleting else None,
    )
    up = Condition(type="Available", status=TRUE, reason="StableInstanceFound")
    unreachable = reason == Reason.CELL_UNREACHABLE
    down = Condition(
        type="Available",
        status=UNKNOWN if unreachable else FALSE,
        reason=reason,
        last_transition_time=at(since_s),
    )
    replicas = Condition(
        type="ReplicasReady",
        status=FALSE if ready < 2 else TRUE,
        reason=reason or "ReplicasAvailable",
        last_transition_time=at(since_s),
    )
    blocked = [BlockedReplicas(reason=reason, replicas=2 - ready)] if ready < 2 else []
    status = WorkloadDeploymentStatus(
        conditions=[up if ready else down, replicas], ready_replicas=ready, blocked=blocked
    )
    return msgspec.structs.replace(made, metadata=metadata, status=status)


def assignments(
    workload: Workload, *deployments: WorkloadDeployment, now_s: float = 0.0
) -> list[CityAssignment]:
    (placement,) = workload.spec.placements
    return assign_cities(workload, placement, deployments, at(now_s))


LOST = a_deployment_in("DFW", ready=0, reason=Reason.CELL_UNREACHABLE)
LHR = a_deployment_in("LHR")


def test_without_fallback_cities_nothing_moves() -> None:
    dfw, lhr = assignments(with_fallback(), LOST, LHR, now_s=10_000)
    assert (dfw.wanted, lhr.wanted) == (("DFW",), ("LHR",))
    assert (dfw.status, dfw.due_s) == (None, None)


def test_a_city_counts_as_failed_after_a_delay() -> None:
    dfw, _ = assignments(with_fallback("IAD"), LOST, LHR, now_s=AFTER_S - 20)
    assert (dfw.wanted, dfw.due_s) == (("DFW",), 20.0)


def test_the_first_free_city_takes_over_and_nothing_is_removed_before_it_is_available() -> None:
    workload = with_fallback("IAD", "SYD")
    dfw, lhr = assignments(workload, LOST, LHR, now_s=AFTER_S)
    assert dfw.wanted == ("DFW", "IAD")
    assert lhr.wanted == ("LHR",), "a failed city must not change another city"
    assert dfw.status is not None
    assert (dfw.status.phase, dfw.status.fallback_city_code) == ("Engaging", "IAD")
    coming = a_deployment_in(
        "IAD", ready=0, reason="InstancesProvisioning", fallback_for="DFW", since_s=AFTER_S
    )
    dfw, _ = assignments(workload, LOST, LHR, coming, now_s=AFTER_S + 5)
    assert dfw.wanted == ("DFW", "IAD")
    dfw, _ = assignments(
        workload, LOST, LHR, a_deployment_in("IAD", fallback_for="DFW"), now_s=AFTER_S
    )
    assert dfw.wanted == ("IAD",)
    assert dfw.status is not None
    assert dfw.status.phase == "Engaged"


def test_a_city_that_recovers_in_time_keeps_its_replicas() -> None:
    coming = a_deployment_in("IAD", ready=0, reason="InstancesProvisioning", fallback_for="DFW")
    dfw, _ = assignments(with_fallback("IAD"), a_deployment_in("DFW"), LHR, coming)
    assert (dfw.wanted, dfw.status) == (("DFW",), None)


def test_replicas_stay_in_the_fallback_when_their_city_recovers() -> None:
    moved = a_deployment_in("IAD", fallback_for="DFW")
    dfw, _ = assignments(with_fallback("IAD"), LHR, moved, now_s=10_000)
    assert dfw.wanted == ("IAD",)


def test_replicas_return_on_request_once_their_city_is_available() -> None:
    moved = a_deployment_in("IAD", fallback_for="DFW")
    workload = with_fallback("IAD", annotations={labels.RETURNED_AT: at(60)})
    dfw, _ = assignments(workload, LHR, moved, now_s=61)
    assert dfw.wanted == ("DFW", "IAD")
    assert dfw.status is not None
    assert dfw.status.phase == "Returning"
    coming = a_deployment_in("DFW", ready=0, reason="InstancesProvisioning")
    dfw, _ = assignments(workload, coming, LHR, moved, now_s=62)
    assert dfw.wanted == ("DFW", "IAD")
    dfw, _ = assignments(workload, a_deployment_in("DFW"), LHR, moved, now_s=63)
    assert (dfw.wanted, dfw.status) == (("DFW",), None)


def test_a_fallback_after_the_return_stays() -> None:
    workload = with_fallback("IAD", annotations={labels.RETURNED_AT: at(60)})
    again = a_deployment_in("IAD", fallback_for="DFW", made_s=300)
    dfw, _ = assignments(workload, LHR, again, now_s=400)
    assert dfw.wanted == ("IAD",)


def test_a_failed_fallback_is_followed_by_the_next() -> None:
    workload = with_fallback("IAD", "SYD")
    dead = a_deployment_in("IAD", ready=0, reason=Reason.CELL_UNREACHABLE, fallback_for="DFW")
    dfw, _ = assignments(workload, LOST, LHR, dead, now_s=AFTER_S)
    assert dfw.wanted == ("DFW", "IAD", "SYD")
    next_up = a_deployment_in("SYD", fallback_for="DFW", made_s=130)
    dfw, _ = assignments(workload, LOST, LHR, dead, next_up, now_s=AFTER_S + 20)
    assert dfw.wanted == ("SYD",)


def test_two_cities_never_share_a_fallback() -> None:
    workload = with_fallback("IAD", "SYD")
    both = [LOST, a_deployment_in("LHR", ready=0, reason=Reason.CELL_UNREACHABLE)]
    dfw, lhr = assignments(workload, *both, now_s=AFTER_S)
    assert (dfw.wanted, lhr.wanted) == (("DFW", "IAD"), ("LHR", "SYD"))


def test_without_a_free_city_nothing_moves_and_the_status_reports_it() -> None:
    deleting = a_deployment_in("IAD", deleting=True)
    dfw, _ = assignments(with_fallback("IAD"), LOST, LHR, deleting, now_s=AFTER_S)
    assert dfw.wanted == ("DFW",)
    assert dfw.status is not None
    assert dfw.status.phase == "Exhausted"


@pytest.mark.parametrize(
    "reason",
    [Reason.IMAGE_UNAVAILABLE, Reason.QUOTA_EXCEEDED, Reason.SOURCE_NOT_FOUND],
)
def test_a_cause_in_the_workload_moves_nothing(reason: Reason) -> None:
    stuck = a_deployment_in("DFW", ready=0, reason=reason)
    dfw, _ = assignments(with_fallback("IAD"), stuck, LHR, now_s=10_000)
    assert dfw.wanted == ("DFW",)


def test_a_city_below_its_floor_has_failed() -> None:
    half = a_deployment_in("DFW", ready=1, reason="InstancesProvisioning")
    assert assignments(with_fallback("IAD"), half, LHR, now_s=10_000)[0].wanted == ("DFW",)
    strict = assignments(with_fallback("IAD", floor=2), half, LHR, now_s=10_000)[0]
    assert strict.wanted == ("DFW", "IAD")
    halfway = a_deployment_in(
        "IAD", ready=1, reason="InstancesProvisioning", fallback_for="DFW", since_s=9_999
    )
    dfw, _ = assignments(with_fallback("IAD", floor=2), half, LHR, halfway, now_s=10_000)
    assert dfw.wanted == ("DFW", "IAD"), "the floor applies to the fallback city too"


def test_an_unlisted_fallback_is_removed_when_its_city_is_available() -> None:
    moved = a_deployment_in("IAD", fallback_for="DFW")
    dfw, _ = assignments(with_fallback("SYD"), LHR, moved)
    assert dfw.wanted == ("DFW", "IAD")
    dfw, _ = assignments(with_fallback("SYD"), a_deployment_in("DFW"), LHR, moved)
    assert dfw.wanted == ("DFW",)


def test_the_plan_keeps_the_old_deployment_and_marks_the_new_one() -> None:
    workload = with_fallback("IAD", finalizers=[labels.WORKLOAD_FINALIZER])
    plan = plan_workload(project_plane("shop"), workload, [LOST, LHR], at(AFTER_S))
    assert not [a for a in plan.actions if isinstance(a, Delete)]
    (create,) = [a.object for a in plan.actions if isinstance(a, Create)]
    assert isinstance(create, WorkloadDeployment)
    assert create.metadata.annotations == {labels.FALLBACK_FOR: "DFW"}
    assert create.spec.city_code == "IAD"


def test_adding_fallback_cities_changes_no_deployment() -> None:
    """No instance is recreated because of it."""
    before = desired_deployments(a_workload(cities=("DFW", "LHR"), replicas=2))
    after = desired_deployments(with_fallback("IAD", floor=1))
    assert before == after
    assert [template_hash(d.spec.template) for d in before] == [
        template_hash(d.spec.template) for d in after
    ]


# --- suspended and stopped workloads


def kept(workload: Workload, *deployments: WorkloadDeployment, now_s: float = 0.0) -> list[str]:
    (placement,) = workload.spec.placements
    found = assign_cities(workload, placement, deployments, at(now_s), is_halted=True)
    return [city for assignment in found for city in assignment.wanted]


def test_a_halted_workload_engages_no_fallback_city() -> None:
    assert kept(with_fallback("IAD"), LOST, LHR, now_s=10_000) == ["DFW", "LHR"]
    down = a_deployment_in("DFW", ready=0, reason=Reason.NOT_READY)
    assert kept(with_fallback("IAD"), down, LHR, now_s=10_000) == ["DFW", "LHR"]


def test_a_halted_workload_stays_in_its_fallback_city() -> None:
    engaged = a_deployment_in("IAD", ready=0, reason=Reason.STOPPED, fallback_for="DFW")
    assert kept(with_fallback("IAD", "SYD"), engaged, LHR, now_s=10_000) == ["IAD", "LHR"]
    assert kept(with_fallback("IAD"), LOST, engaged, LHR) == ["DFW", "IAD", "LHR"]


def test_a_resumed_workload_engages_no_fallback_city_because_of_the_halt() -> None:
    """Until the cell reports the resumption, the city still has the reason of the halt."""
    for reason in (Reason.PROJECT_SUSPENDED, Reason.STOPPED, Reason.STOPPING):
        halted = a_deployment_in("DFW", ready=0, reason=reason)
        dfw, _ = assignments(with_fallback("IAD"), halted, LHR, now_s=10_000)
        assert dfw.wanted == ("DFW",)
