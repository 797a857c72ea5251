"""Surge instances: when they are created, removed and given up, and what their status reports."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance, SchedulingGate
from datum_compute.api.compute.scale_to_zero import ScaleToZero
from datum_compute.api.compute.workload import ScaleSettings
from datum_compute.api.conditions import (
    FALSE,
    Condition,
    ConditionValue,
    find_condition,
    make_condition,
)
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.api.planes import cell_plane
from datum_compute.planning.plan import Create, Delete, Plan, is_deferred
from datum_compute.planning.rollout.slots import ServiceState, service_state
from datum_compute.planning.rollout.status import deployment_status, is_complete, plan_deployment
from datum_compute.planning.rollout.surge import (
    SURGE_AVAILABLE,
    SURGE_WAIT_MAX_S,
    surge_max,
    unavailable_max,
)
from testkit.builders import NOW, a_deployment, a_template, an_instance, refused_by_quota

CELL = cell_plane("dfw")


def at(seconds: float) -> str:
    return timestamp(parse_timestamp(NOW) + seconds)


def with_image(deployment: WorkloadDeployment, image: str) -> WorkloadDeployment:
    """Return the deployment with another template and its next generation."""
    spec = msgspec.structs.replace(deployment.spec, template=a_template(image))
    metadata = msgspec.structs.replace(
        deployment.metadata, generation=deployment.metadata.generation + 1
    )
    return msgspec.structs.replace(deployment, metadata=metadata, spec=spec)


def with_scale(deployment: WorkloadDeployment, **changes: Any) -> WorkloadDeployment:
    scale = msgspec.structs.replace(deployment.spec.scale_settings, **changes)
    spec = msgspec.structs.replace(deployment.spec, scale_settings=scale)
    return msgspec.structs.replace(deployment, spec=spec)


def with_stopped(deployment: WorkloadDeployment, *, stopped: bool) -> WorkloadDeployment:
    spec = msgspec.structs.replace(deployment.spec, stopped=stopped)
    return msgspec.structs.replace(deployment, spec=spec)


@dataclass
class City:
    """A deployment and its instances, of which each pass changes some."""

    deployment: WorkloadDeployment
    instances: dict[int, Instance] = field(default_factory=dict)
    now: str = NOW

    @property
    def image(self) -> str:
        return self.deployment.spec.template.spec.runtime.sandbox.containers[0].image

    def plan(self) -> Plan:
        found = list(self.instances.values())
        return plan_deployment(CELL, self.deployment, found, self.now, simulated=True)

    def reconcile(self) -> list[str]:
        """Apply the plan and return its creates and deletes, in their order."""
        found = list(self.instances.values())
        plan = self.plan()
        status = deployment_status(self.deployment, found, self.now, simulated=True)
        done = []
        for action in plan.actions:
            if not isinstance(action, Create | Delete) or is_deferred(action):
                continue
            if isinstance(action, Create):
                number = _ordinal(action.object.metadata.name)
                assert number not in self.instances
                made = an_instance(number, self.image, ready=False)
                metadata = msgspec.structs.replace(made.metadata, creation_timestamp=self.now)
                self.instances[number] = msgspec.structs.replace(made, metadata=metadata)
                done.append(f"create-{number}")
            else:
                number = _ordinal(action.ref.name)
                leaving = self.instances[number]
                metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp=NOW)
                self.instances[number] = msgspec.structs.replace(leaving, metadata=metadata)
                done.append(f"delete-{number}")
        self.deployment = msgspec.structs.replace(self.deployment, status=status)
        return done

    def let_instances_start_and_stop(self) -> None:
        """Current instances without gates become available, and terminating ones are gone."""
        self.instances = {
            number: self._started(number, instance)
            for number, instance in self.instances.items()
            if not instance.is_terminating
        }

    def _started(self, number: int, instance: Instance) -> Instance:
        is_gated = bool(instance.spec.controller.scheduling_gates)
        current = an_instance(number, self.image)
        is_current = instance.spec.controller.template_hash == current.spec.controller.template_hash
        return current if is_current and not is_gated else instance

    def roll_out(self) -> list[str]:
        """Reconcile until nothing changes. Return all creates and deletes."""
        steps: list[str] = []
        for _ in range(60):
            done = self.reconcile()
            before = dict(self.instances)
            self.let_instances_start_and_stop()
            steps += done
            if not done and before == self.instances and not self.reconcile():
                return steps
        raise AssertionError(f"no end: {steps}")

    @property
    def serving(self) -> list[int]:
        return [
            number
            for number, instance in self.instances.items()
            if service_state(instance) is ServiceState.SERVING
        ]

    def surge_condition(self) -> Condition | None:
        return find_condition(self.deployment.status.conditions, SURGE_AVAILABLE)


def _ordinal(name: str) -> int:
    return int(name.rpartition("-")[2])


def city(replicas: int = 1, **scale: Any) -> City:
    """Return a city that serves web:0 and has web:1 as its new template."""
    settings = ScaleSettings(min_replicas=replicas, **scale)
    found = City(
        a_deployment("web:0", scale=settings), {n: an_instance(n, "web:0") for n in range(replicas)}
    )
    found.reconcile()
    found.deployment = with_image(found.deployment, "web:1")
    return found


def waiting_for_quota(instance: Instance) -> Instance:
    control = msgspec.structs.replace(
        instance.spec.controller, scheduling_gates=[SchedulingGate(name="Quota")]
    )
    spec = msgspec.structs.replace(instance.spec, controller=control)
    return msgspec.structs.replace(instance, spec=spec)


def with_ready_reason(instance: Instance, reason: str) -> Instance:
    value = ConditionValue(FALSE, reason, "0/3 nodes are available")
    status = msgspec.structs.replace(
        instance.status, conditions=[make_condition("Ready", value, generation=1, now=NOW)]
    )
    return msgspec.structs.replace(instance, status=status)


@pytest.mark.parametrize(
    ("replicas", "scale", "surge", "unavailable"),
    [
        (1, {}, 1, 0),
        (1, {"max_surge": 0}, 0, 1),
        (1, {"max_unavailable": 1}, 1, 0),
        (1, {"max_surge": 1, "max_unavailable": 1}, 1, 1),
        (2, {"max_unavailable": 1}, 0, 1),
        (2, {}, 0, 1),
        (2, {"max_surge": 1}, 1, 0),
        (4, {"max_surge": "25%"}, 1, 0),
        (5, {"max_surge": "25%"}, 2, 0),
        (5, {"max_surge": "0%"}, 0, 1),
        (4, {"max_surge": 1, "max_unavailable": "25%"}, 1, 1),
        (2, {"max_surge": 1, "max_unavailable": "25%"}, 1, 0),
        (2, {"max_unavailable": "25%"}, 0, 1),
        (4, {"max_unavailable": 2}, 0, 2),
    ],
)
def test_defaults_depend_on_replicas_and_on_each_other(
    replicas: int, scale: dict[str, Any], surge: int, unavailable: int
) -> None:
    spec = a_deployment(scale=ScaleSettings(min_replicas=replicas, **scale)).spec
    assert (surge_max(spec), unavailable_max(spec, replicas)) == (surge, unavailable)


def test_without_a_surge_instance_one_replica_may_be_unavailable() -> None:
    spec = a_deployment(scale=ScaleSettings(min_replicas=4, max_surge=1, max_unavailable=0)).spec
    assert unavailable_max(spec, 4, without_surge=True) == 1


def test_a_workload_that_can_sleep_has_no_surge() -> None:
    spec = a_deployment().spec
    template_spec = msgspec.structs.replace(spec.template.spec, scale_to_zero=ScaleToZero())
    template = msgspec.structs.replace(spec.template, spec=template_spec)
    spec = msgspec.structs.replace(spec, template=template)
    assert (surge_max(spec), unavailable_max(spec, 1)) == (0, 1)


def test_one_replica_is_replaced_while_a_surge_instance_serves() -> None:
    found = city()
    assert found.roll_out() == ["create-1", "delete-0", "create-0", "delete-1"]


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_as_many_instances_are_replaced_together_as_surge_instances_serve(policy: str) -> None:
    found = city(4, max_surge=2, instance_management_policy=policy)
    assert found.reconcile() == ["create-4", "create-5"]
    assert found.reconcile() == []
    found.let_instances_start_and_stop()
    assert found.reconcile() == ["delete-3", "delete-2"]


def test_surge_slots_do_not_wait_for_desired_slots() -> None:
    found = city(3, max_surge=1)
    del found.instances[1]
    found.instances[0] = an_instance(0, "web:0", ready=False)
    assert "create-3" in found.reconcile()


def test_nothing_is_replaced_before_every_surge_instance_is_available() -> None:
    found = city(4, max_surge=2, max_unavailable=1)
    found.reconcile()
    found.instances[4] = an_instance(4)
    assert found.reconcile() == []


def test_no_surge_instance_is_created_if_no_outdated_instance_serves() -> None:
    found = city()
    found.instances[0] = an_instance(0, "web:0", ready=False)
    assert found.reconcile() == ["delete-0"]


def test_a_paused_rollout_creates_no_surge_instance() -> None:
    found = city()
    spec = msgspec.structs.replace(found.deployment.spec, paused=True)
    found.deployment = msgspec.structs.replace(found.deployment, spec=spec)
    assert found.reconcile() == []


def test_a_failing_image_leaves_the_old_instance_serving() -> None:
    found = city()
    found.reconcile()
    found.now = at(600)
    for reason in ("ImageUnavailable", "InstanceCrashing"):
        found.instances[1] = with_ready_reason(found.instances[1], reason)
        assert found.reconcile() == []
        surge = found.deployment.status.surge
        assert surge is not None
        assert [(b.reason, b.replicas) for b in surge.blocked] == [(reason, 1)]
    assert found.surge_condition() is None
    assert found.serving == [0]


def test_a_surge_instance_that_crashes_later_is_not_replaced() -> None:
    found = city()
    found.reconcile()
    found.let_instances_start_and_stop()
    assert found.reconcile() == ["delete-0"]
    found.instances[1] = with_ready_reason(found.instances[1], "InstanceCrashing")
    assert found.roll_out() == ["create-0", "delete-1"]


def test_a_deleted_surge_instance_is_not_created_again() -> None:
    found = city()
    found.reconcile()
    del found.instances[1]
    assert found.reconcile() == []
    assert found.surge_condition() is not None
    assert found.roll_out() == ["delete-0", "create-0"]


def test_a_denied_claim_is_reported_before_the_rollout_continues() -> None:
    found = city()
    found.reconcile()
    found.instances[1] = refused_by_quota(found.instances[1])
    assert found.reconcile() == ["delete-1"]
    reported = found.surge_condition()
    assert reported is not None
    assert (reported.status, reported.reason) == (FALSE, "SurgeUnavailable")
    assert "web-dfw-1: the limit is used up" in reported.message
    assert found.reconcile() == []  # the refused instance is not gone yet
    found.let_instances_start_and_stop()
    assert found.reconcile() == ["delete-0"]
    assert found.surge_condition() is not None
    assert found.roll_out() == ["create-0"]
    assert found.surge_condition() is None
    assert found.deployment.status.surge is None


def test_an_undecided_claim_is_given_up_after_some_time() -> None:
    found = city()
    found.reconcile()
    found.instances[1] = waiting_for_quota(found.instances[1])
    found.now = at(SURGE_WAIT_MAX_S - 1)
    assert found.plan().requeue_after_s == 1
    assert found.reconcile() == []
    found.now = at(SURGE_WAIT_MAX_S)
    assert found.reconcile() == ["delete-1"]
    assert found.surge_condition() is not None


def test_a_surge_instance_without_a_host_is_given_up_after_some_time() -> None:
    found = city()
    found.reconcile()
    found.instances[1] = with_ready_reason(found.instances[1], "Unschedulable")
    assert found.reconcile() == []
    found.now = at(SURGE_WAIT_MAX_S)
    assert found.reconcile() == ["delete-1"]
    assert found.surge_condition() is not None


def test_a_surge_instance_that_was_stopped_gets_time_to_find_a_host_again() -> None:
    found = city()
    found.reconcile()
    found.now = at(100)
    found.deployment = with_stopped(found.deployment, stopped=True)
    found.reconcile()
    found.now = at(200)
    found.deployment = with_stopped(found.deployment, stopped=False)
    found.instances[1] = with_ready_reason(found.instances[1], "Unschedulable")
    for seconds in (0, SURGE_WAIT_MAX_S - 1):
        found.now = at(200 + seconds)
        assert found.reconcile() == []
    found.now = at(200 + SURGE_WAIT_MAX_S)
    assert found.reconcile() == ["delete-1"]


def test_a_stopped_rollout_does_not_continue_without_surge() -> None:
    found = city()
    found.reconcile()
    found.deployment = with_stopped(found.deployment, stopped=True)
    found.instances[1] = waiting_for_quota(found.instances[1])
    found.now = at(SURGE_WAIT_MAX_S)
    assert found.reconcile() == []
    assert found.surge_condition() is None


def test_a_rollout_continues_with_the_surge_instances_that_have_quota() -> None:
    found = city(4, max_surge=2)
    found.reconcile()
    found.instances[5] = refused_by_quota(found.instances[5])
    assert found.reconcile() == ["delete-5"]
    found.let_instances_start_and_stop()
    assert found.reconcile() == ["delete-3"]


def test_a_surge_instance_makes_way_for_a_slot_without_quota() -> None:
    found = city(3, max_surge=1)
    found.instances[2] = refused_by_quota(an_instance(2, ready=False))
    found.instances[3] = an_instance(3)
    assert found.reconcile() == ["delete-3"]


def test_the_last_serving_surge_instance_does_not_make_way() -> None:
    found = city()
    found.reconcile()
    found.let_instances_start_and_stop()
    found.reconcile()
    found.instances[0] = refused_by_quota(an_instance(0, ready=False))
    for _ in range(3):
        assert found.reconcile() == []
    assert found.serving == [1]


def test_after_an_undo_the_surge_instance_is_removed_first() -> None:
    found = city(3, max_surge=1)
    found.reconcile()
    found.let_instances_start_and_stop()
    found.reconcile()
    found.let_instances_start_and_stop()
    assert found.reconcile() == ["create-2"]
    found.let_instances_start_and_stop()
    found.deployment = with_image(found.deployment, "web:0")
    assert found.reconcile() == ["delete-3"]
    found.let_instances_start_and_stop()
    assert found.roll_out() == ["create-3", "delete-2", "create-2", "delete-3"]


@pytest.mark.parametrize("scale", [{}, {"max_unavailable": 1}], ids=["new", "stored by 0.1.0"])
def test_after_an_undo_the_last_serving_surge_instance_stays(scale: dict[str, int]) -> None:
    found = city(**scale)
    found.reconcile()
    found.let_instances_start_and_stop()
    assert found.reconcile() == ["delete-0"]
    found.deployment = with_image(found.deployment, "web:0")
    assert found.reconcile() == []
    assert found.serving == [1]
    assert found.roll_out() == ["create-0", "delete-1"]


def test_after_an_undo_a_broken_surge_instance_is_removed() -> None:
    found = city()
    found.reconcile()
    found.deployment = with_image(found.deployment, "web:0")
    assert found.roll_out() == ["delete-1"]
    assert found.deployment.status.surge is None


def test_a_newer_template_replaces_the_surge_instance_first() -> None:
    found = city()
    found.reconcile()
    found.let_instances_start_and_stop()
    found.deployment = with_image(found.deployment, "web:2")
    assert found.roll_out() == [
        *("delete-1", "create-1"),
        *("delete-0", "create-0"),
        "delete-1",
    ]


def test_a_surge_instance_becomes_a_desired_one_when_its_slot_does() -> None:
    found = city()
    found.reconcile()
    found.let_instances_start_and_stop()
    found.deployment = with_scale(found.deployment, min_replicas=2)
    assert found.roll_out() == ["delete-0", "create-0"]
    assert found.deployment.status.surge is None


def test_scaling_down_after_a_rollout_removes_surplus_without_waiting() -> None:
    found = City(a_deployment(replicas=1), {0: an_instance(0, ready=False), 1: an_instance(1)})
    assert found.reconcile() == ["delete-1"]


def test_surge_instances_are_not_part_of_the_other_counts() -> None:
    found = city()
    found.reconcile()
    found.let_instances_start_and_stop()
    found.reconcile()
    status = found.deployment.status
    assert (status.replicas, status.ready_replicas, status.available_replicas) == (1, 1, 1)
    assert (status.updated_replicas, status.desired_replicas) == (0, 1)
    assert (status.surge_replicas, status.covered_replicas) == (1, 0)
    assert status.surge is not None
    assert status.surge.ordinals == "1"


def test_a_deployment_is_available_while_only_its_surge_instance_serves() -> None:
    found = city()
    found.reconcile()
    found.let_instances_start_and_stop()
    assert found.reconcile() == ["delete-0"]
    found.let_instances_start_and_stop()
    assert found.reconcile() == ["create-0"]
    available = find_condition(found.deployment.status.conditions, "Available")
    assert available is not None
    assert available.status == "True"
    assert available.message == "0/1 instances are ready, and 1 surge instance"
    assert found.deployment.status.covered_replicas == 1


def test_a_rollout_is_complete_when_its_surge_instances_are_gone() -> None:
    found = city()
    found.instances = {0: an_instance(0), 1: an_instance(1)}
    found.deployment = msgspec.structs.replace(
        found.deployment,
        status=msgspec.structs.replace(
            city_after_replacement().deployment.status, observed_generation=2
        ),
    )
    assert found.reconcile() == ["delete-1"]
    assert not is_complete(found.deployment.status)
    found.let_instances_start_and_stop()
    found.reconcile()
    assert is_complete(found.deployment.status)


def city_after_replacement() -> City:
    """Return a city whose instance was replaced while the surge instance serves."""
    found = city()
    for _ in range(3):
        found.reconcile()
        found.let_instances_start_and_stop()
    return found


def test_an_available_surge_instance_is_a_step_of_the_rollout() -> None:
    found = city()
    found.reconcile()
    found.now = at(500)
    found.let_instances_start_and_stop()
    found.reconcile()
    assert found.deployment.status.progressed_at == at(500)


@given(
    replicas=st.integers(1, 4),
    surge=st.integers(1, 3) | st.sampled_from(["25%", "100%"]),
    policy=st.sampled_from(["OrderedReady", "Parallel"]),
    images=st.lists(st.sampled_from(["web:1", "web:2", "web:0"]), max_size=3),
    passes=st.lists(st.integers(0, 6), max_size=3),
    starts=st.lists(st.booleans(), max_size=30),
)
def test_no_sequence_of_rollouts_reduces_the_serving_instances(
    replicas: int,
    surge: int | str,
    policy: str,
    images: list[str],
    passes: list[int],
    starts: list[bool],
) -> None:
    """With surge and no unavailable instances, as many as desired serve all the time."""
    found = city(replicas, max_surge=surge, instance_management_policy=policy)
    is_starting = iter(starts)
    for image, count in zip(images, passes, strict=False):
        for _ in range(count):
            found.reconcile()
            assert len(found.serving) >= replicas
            if next(is_starting, True):
                found.let_instances_start_and_stop()
        found.deployment = with_image(found.deployment, image)
    found.roll_out()
    assert sorted(found.instances) == list(range(replicas))
    assert is_complete(found.deployment.status)
    assert found.deployment.status.surge is None
