"""When a rollout is done, and what blocks it."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.compute.deployment import ObservedSource, WorkloadDeployment
from datum_compute.api.compute.instance import Instance, InstanceControlStatus
from datum_compute.cli.workload.rollout import (
    Phase,
    RolloutCause,
    StallTimer,
    assess_rollout,
    settling_s,
)
from datum_compute.planning.workload.names import Place
from datum_compute.planning.workload.templates import template_hash
from tests.cli.objects import condition, deployment, instance, workload

DFW, ORD = Place("default", "DFW"), Place("default", "ORD")


@pytest.mark.parametrize(
    ("deployments", "phase"),
    [
        pytest.param([deployment("DFW")], Phase.DONE, id="all counts equal"),
        pytest.param([deployment("DFW", (3, 3, 3, 3))], Phase.DONE, id="scaled beyond the minimum"),
        pytest.param([deployment("dfw")], Phase.DONE, id="city in lower case"),
        pytest.param([], Phase.WAITING, id="no deployment yet"),
        pytest.param([deployment("ORD")], Phase.WAITING, id="deployment of another city only"),
        pytest.param(
            [deployment("DFW", placement="other")], Phase.WAITING, id="of another placement only"
        ),
        pytest.param(
            [deployment("DFW", generation=2, observed=1)], Phase.UPDATING, id="stale status"
        ),
        pytest.param([deployment("DFW", observed=0)], Phase.UPDATING, id="status never written"),
        pytest.param(
            [deployment("DFW", (0, 0, 0, 0))], Phase.UPDATING, id="zero desired is not reported yet"
        ),
        pytest.param(
            [deployment("DFW", (1, 1, 2, 1))], Phase.UPDATING, id="one old replica left over"
        ),
        pytest.param([deployment("DFW", (1, 2, 2, 2))], Phase.UPDATING, id="one not updated"),
        pytest.param([deployment("DFW", (2, 1, 2, 2))], Phase.UPDATING, id="one not ready"),
        pytest.param([deployment("DFW", (1, 1, 1, 2))], Phase.UPDATING, id="one missing"),
        pytest.param(
            [deployment("DFW", (2, 2, 2, 2), available_replicas=2)],
            Phase.DONE,
            id="all available",
        ),
        pytest.param(
            [deployment("DFW", (2, 2, 2, 2), available_replicas=1)],
            Phase.UPDATING,
            id="one ready and not available yet",
        ),
        pytest.param(
            [deployment("DFW", (2, 2, 2, 2), available_replicas=None)],
            Phase.DONE,
            id="a cell of an older release does not report availability",
        ),
        pytest.param(
            [deployment("DFW", (2, 2, 2, 1))], Phase.UPDATING, id="scale down not finished"
        ),
        pytest.param(
            [deployment("DFW", terminating=True)], Phase.WAITING, id="old deployment still going"
        ),
        pytest.param(
            [deployment("DFW", terminating=True, name="a"), deployment("DFW", name="b")],
            Phase.DONE,
            id="its successor already exists",
        ),
    ],
)
def test_a_city_is_done_only_by_its_own_status(
    deployments: list[WorkloadDeployment], phase: Phase
) -> None:
    progress = assess_rollout(workload("DFW"), deployments, [])
    assert [p.phase for p in progress.places] == [phase]
    assert progress.done == (phase is Phase.DONE)


def test_a_workload_status_of_an_older_generation_is_not_done() -> None:
    stale = workload("DFW", generation=2, observed=1)
    progress = assess_rollout(stale, [deployment("DFW")], [])
    assert (progress.observed, progress.done) == (False, False)


def test_a_read_older_than_the_write_is_not_done() -> None:
    old = workload("DFW", generation=1, observed=1)
    assert not assess_rollout(old, [deployment("DFW")], [], generation=2).done


def test_a_later_generation_counts_as_well() -> None:
    newer = workload("DFW", generation=5, observed=5)
    assert assess_rollout(newer, [deployment("DFW")], [], generation=3).done


def test_every_city_of_the_spec_is_expected_whatever_exists() -> None:
    progress = assess_rollout(workload("ORD", "DFW"), [deployment("DFW")], [])
    assert [(p.place, p.phase) for p in progress.places] == [
        (DFW, Phase.DONE),
        (ORD, Phase.WAITING),
    ]
    assert not progress.done


def test_a_removed_city_is_shown_and_does_not_delay_the_rollout() -> None:
    progress = assess_rollout(workload("DFW"), [deployment("DFW"), deployment("ORD")], [])
    assert [(p.place, p.phase) for p in progress.removing] == [(ORD, Phase.REMOVING)]
    assert progress.done


def test_a_missing_deployment_shows_the_replicas_of_the_spec() -> None:
    (place,) = assess_rollout(workload("DFW", minimum=4), [], []).places
    assert (place.ready, place.desired) == (0, 4)


@pytest.mark.parametrize(
    ("available", "ready", "cause"),
    [
        pytest.param(None, None, RolloutCause(), id="no condition"),
        pytest.param(
            condition("Available", "False", "NoMatchingLocation", "no cell"),
            None,
            RolloutCause("NoMatchingLocation", "no cell"),
            id="the deployment knows",
        ),
        pytest.param(
            condition("Available", "False", "InstancesProvisioning"),
            condition("Ready", "False", "ImageUnavailable", "no such tag"),
            RolloutCause("ImageUnavailable", "no such tag"),
            id="the instance knows better than a pointer",
        ),
        pytest.param(
            condition("Available", "False", "NetworkNotFound", "no network"),
            condition("Ready", "False", "SchedulingGatesPresent"),
            RolloutCause("NetworkNotFound", "no network"),
            id="a cause above beats a pointer below",
        ),
        pytest.param(
            condition("Available", "False", "NetworkNotFound"),
            condition("Ready", "Unknown", "CellUnreachable", "silent"),
            RolloutCause("CellUnreachable", "silent"),
            id="of two causes the deeper one",
        ),
        pytest.param(
            condition("Available", "False", "InstancesProvisioning", "0/1"),
            condition("Ready", "True", "Available"),
            RolloutCause("InstancesProvisioning", "0/1"),
            id="a ready instance explains nothing",
        ),
    ],
)
def test_the_reason_is_the_deepest_cause_unchanged(
    available: dict[str, str] | None, ready: dict[str, str] | None, cause: RolloutCause
) -> None:
    found = deployment("DFW", (1, 0, 1, 1), available=available)
    instances = [instance("web-dfw-0", "DFW", ready)]
    assert assess_rollout(workload("DFW"), [found], instances).places[0].cause == cause


def test_instances_of_another_city_or_placement_are_no_cause() -> None:
    broken = condition("Ready", "False", "ImageUnavailable")
    elsewhere = [
        instance("web-ord-0", "ORD", broken),
        instance("other-dfw-0", "DFW", broken, placement="other"),
    ]
    progress = assess_rollout(workload("DFW"), [deployment("DFW", (1, 0, 1, 1))], elsewhere)
    assert progress.places[0].cause == RolloutCause()


def test_a_city_with_a_cause_is_the_blocker_before_one_with_a_reference() -> None:
    deployments = [
        deployment("DFW", (0, 0, 0, 1), available=condition("Available", "False", "PendingQuota")),
        deployment("ORD", (0, 0, 0, 1), available=condition("Available", "False", "QuotaExceeded")),
    ]
    progress = assess_rollout(workload("DFW", "ORD"), deployments, [])
    assert progress.blocker == (ORD, RolloutCause("QuotaExceeded"))


def test_the_condition_of_the_workload_is_used_if_no_city_has_a_cause() -> None:
    refused = condition("Available", "False", "NoMatchingLocations", "no cell serves DFW")
    progress = assess_rollout(workload("DFW", conditions=[refused]), [], [])
    assert progress.blocker == (None, RolloutCause("NoMatchingLocations", "no cell serves DFW"))


def test_without_any_reason_the_blocker_is_the_first_city_that_is_not_done() -> None:
    progress = assess_rollout(workload("DFW", "ORD"), [deployment("DFW")], [])
    assert progress.blocker == (ORD, RolloutCause())


# --- instances that are up to date


def with_template_hash(reported: str) -> WorkloadDeployment:
    """Return a deployment with a new spec and a status that counts an old one."""
    stale = deployment("DFW", (3, 3, 3, 3), generation=2, observed=1)
    source = ObservedSource(generation=1, template_hash=reported)
    return msgspec.structs.replace(
        stale, status=msgspec.structs.replace(stale.status, observed_source=source)
    )


def with_observed_hash(name: str, observed: str) -> Instance:
    found = instance(name, "DFW")
    control = InstanceControlStatus(observed_template_hash=observed)
    return msgspec.structs.replace(
        found, status=msgspec.structs.replace(found.status, controller=control)
    )


def updated(found: WorkloadDeployment, *instances: Instance) -> int:
    (place,) = assess_rollout(workload("DFW"), [found], instances).places
    assert place.phase is Phase.UPDATING
    return place.updated


def test_a_scale_leaves_instances_up_to_date() -> None:
    current = template_hash(deployment("DFW").spec.template)
    assert updated(with_template_hash(current)) == 3
    assert updated(with_template_hash("other")) == 0


def test_without_a_federation_the_instances_show_whether_they_are_up_to_date() -> None:
    current = template_hash(deployment("DFW").spec.template)
    instances = [with_observed_hash("web-0", current), with_observed_hash("web-1", "other")]
    assert updated(with_template_hash(""), *instances) == 1


# --- how long it may take no step although nothing is wrong

STOPPING = instance("web-0", "DFW", condition("Ready", "False", "Stopping"))
CRASHING = instance("web-1", "DFW", condition("Ready", "False", "InstanceCrashing"))


def test_the_grace_period_of_a_stopping_instance_is_progress() -> None:
    """Also when it is over: a stall begins with the end of the announced wait."""
    timer = StallTimer()
    timer.record("counts", [CRASHING], 100.0)
    timer.record("counts", [CRASHING], 110.0)
    assert timer.progressed_at_s == 100.0
    timer.record("counts", [CRASHING, STOPPING], 110.0)
    timer.record("counts", [CRASHING, STOPPING], 139.0)
    assert (timer.progressed_at_s, timer.is_waiting) == (139.0, True)
    timer.record("counts", [CRASHING], 141.0)
    assert (timer.progressed_at_s, timer.is_waiting) == (139.0, False)
    timer.record("other counts", [CRASHING], 142.0)
    assert timer.progressed_at_s == 142.0


def test_an_instance_that_exceeds_its_grace_period_is_no_progress() -> None:
    timer = StallTimer()
    timer.record("counts", [STOPPING], 100.0)
    timer.record("counts", [STOPPING], 190.0)
    timer.record("counts", [], 191.0)
    timer.record("counts", [STOPPING], 192.0)
    assert timer.progressed_at_s == 130.0


@pytest.mark.parametrize(("setting", "expected"), [(None, 5), (60, 60), (0, 0)])
def test_a_ready_instance_is_given_time_to_become_available(
    setting: int | None, expected: int
) -> None:
    settled = deployment("DFW", (2, 2, 2, 2), available_replicas=2, min_ready_s=setting)
    settling = deployment("DFW", (2, 2, 2, 2), available_replicas=1, min_ready_s=setting)
    assert settling_s([settled]) == 0
    assert settling_s([settled, settling]) == expected


# --- cities in order


def a_rollout(**states: str) -> dict[str, object]:
    cities = [
        {
            "placement": "default",
            "city": city,
            "state": state,
            "templateHash": "old" if state == "Waiting" else "new",
            **({"reason": "ImageUnavailable", "message": "no web:2"} if state == "Failed" else {}),
        }
        for city, state in states.items()
    ]
    return {"templateHash": "new", "cities": cities}


@pytest.mark.parametrize(
    ("state", "phase", "updated"),
    [
        ("Waiting", Phase.WAITING, 0),
        ("Failed", Phase.FAILED, 1),
        ("Skipped", Phase.SKIPPED, 1),
        ("RollingOut", Phase.DONE, 1),
        ("Done", Phase.DONE, 1),
    ],
)
def test_a_city_has_the_state_that_the_platform_reports(
    state: str, phase: Phase, updated: int
) -> None:
    observed = workload("DFW", "ORD", rollout=a_rollout(DFW="Done", ORD=state))
    progress = assess_rollout(observed, [deployment("DFW"), deployment("ORD")], [])
    assert [p.phase for p in progress.places] == [Phase.DONE, phase]
    assert progress.places[1].updated == updated
    assert progress.done is (phase is Phase.DONE)


def test_a_failed_city_has_the_cause_that_the_platform_reports() -> None:
    observed = workload("DFW", "ORD", rollout=a_rollout(DFW="Failed", ORD="Waiting"))
    progress = assess_rollout(observed, [deployment("DFW"), deployment("ORD")], [])
    assert progress.failed_places[0].cause == RolloutCause("ImageUnavailable", "no web:2")


def test_the_state_of_a_city_does_not_count_when_it_is_of_an_older_generation() -> None:
    older = workload("DFW", generation=2, observed=1, rollout=a_rollout(DFW="Failed"))
    assert assess_rollout(older, [deployment("DFW")], []).failed_places == []


def test_a_rollback_is_not_done_although_every_city_is_complete() -> None:
    rolled_back = {**a_rollout(DFW="Done"), "failedRevision": 2, "runningRevision": 1}
    progress = assess_rollout(workload("DFW", rollout=rolled_back), [deployment("DFW")], [])
    assert progress.restored_revision == 1
    assert not progress.done
