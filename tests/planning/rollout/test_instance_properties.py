"""Properties of instance plans in generated states: they are safe and they converge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance, RuntimeResources
from datum_compute.api.compute.workload import ScaleSettings
from datum_compute.api.planes import cell_plane
from datum_compute.planning.plan import Create, Delete, Plan, is_deferred
from datum_compute.planning.rollout.instances import (
    can_be_recreated,
    plan_instances,
    slots_waiting_for_quota,
)
from datum_compute.planning.rollout.slots import (
    MinReady,
    ServiceState,
    Slots,
    service_state,
    slots_of,
)
from datum_compute.planning.rollout.surge import unavailable_max
from testkit.builders import NOW, a_deployment, an_instance, refused_by_quota, without_status

CELL = cell_plane("dfw")
MIN_READY = MinReady(5, NOW)
CURRENT = an_instance(0).spec.controller.template_hash


# Recorded readiness: "fresh" is Ready and not available yet, "unknown" was Ready before a restart,
# "unobserved" has no Ready condition, "refused" waits for quota behind its gate.
State = Literal["available", "fresh", "unknown", "not ready", "unobserved", "refused"]
STATES: tuple[State, ...] = (
    "available",
    "fresh",
    "unknown",
    "not ready",
    "unobserved",
    "refused",
)


@dataclass(frozen=True, slots=True)
class Found:
    """The initial instance of a slot."""

    image: str
    state: State
    terminating: bool

    @property
    def is_in_service(self) -> bool:
        """Return True for an outdated instance that may serve, or a new one that is available."""
        if self.terminating:
            return False
        available = self.state == "available"
        return available or (self.image == "web:0" and self.state in ("fresh", "unknown"))


images = st.sampled_from(["web:1", "web:0"])
founds = st.builds(
    Found, images, st.sampled_from([s for s in STATES if s != "refused"]), st.booleans()
) | st.builds(Found, images, st.just("refused"), st.just(value=False))
worlds = st.dictionaries(st.integers(0, 6), founds)
scales = st.builds(
    ScaleSettings,
    min_replicas=st.integers(1, 6),
    instance_management_policy=st.sampled_from(["OrderedReady", "Parallel"]),
    max_unavailable=st.integers(1, 4) | st.integers(1, 100).map(lambda n: f"{n}%"),
    max_surge=st.just(0),
)
deployments = st.builds(lambda scale, paused: a_deployment(scale=scale, paused=paused),
                        scales, st.booleans())  # fmt: skip


def instances_of(world: dict[int, Found]) -> list[Instance]:
    return [_instance_of(number, found) for number, found in world.items()]


def _instance_of(number: int, found: Found) -> Instance:
    ready = {"not ready": False, "unknown": None, "refused": False}.get(found.state, True)
    since = NOW if found.state == "fresh" else None
    made = an_instance(
        number, found.image, ready=ready, ready_since=since, terminating=found.terminating
    )
    if found.state == "refused":
        return refused_by_quota(made)
    return without_status(made) if found.state == "unobserved" else made


def plan(deployment: WorkloadDeployment, instances: list[Instance]) -> Plan:
    return plan_instances(CELL, deployment, instances, MIN_READY)


def slots(instances: list[Instance]) -> Slots:
    return slots_of("web-dfw", instances, MIN_READY)


def removed(deployment: WorkloadDeployment, instances: list[Instance]) -> list[int]:
    """Return the ordinals that the plan removes now."""
    actions = plan(deployment, instances).actions
    deletes = [a for a in actions if isinstance(a, Delete) and not is_deferred(a)]
    return [int(delete.ref.name.rpartition("-")[2]) for delete in deletes]


def after(deployment: WorkloadDeployment, instances: list[Instance]) -> list[Instance]:
    """Return the instances after the plan: created ones are new, deleted ones are terminating."""
    world = {i.metadata.name: i for i in instances}
    for action in plan(deployment, instances).actions:
        if isinstance(action, Delete) and not is_deferred(action):
            leaving = world[action.ref.name]
            metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026")
            world[action.ref.name] = msgspec.structs.replace(leaving, metadata=metadata)
        if isinstance(action, Create) and not is_deferred(action):
            name = action.object.metadata.name
            assert name not in world, "two instances have one ordinal"
            world[name] = an_instance(int(name.rpartition("-")[2]), ready=False)
    return list(world.values())


@given(deployment=deployments, world=worlds)
def test_a_rollout_stays_within_its_budget(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    """Replacements that are not available yet count as out of service."""
    wanted = deployment.spec.scale_settings.min_replicas
    before = instances_of(world)
    waiting = slots_waiting_for_quota(deployment, slots(before), wanted)
    in_service = {n for n, found in world.items() if n < wanted and found.is_in_service}
    allowed = unavailable_max(deployment.spec, wanted - len(waiting))
    out_of_service = wanted - len(waiting) - len(in_service)
    lost = in_service.intersection(removed(deployment, before))
    assert len(lost) <= max(0, allowed - out_of_service)


@given(deployment=deployments, world=worlds)
def test_only_an_instance_observed_as_not_ready_is_replaced_outside_the_budget(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    wanted = deployment.spec.scale_settings.min_replicas
    for number in removed(deployment, instances_of(world)):
        found = world[number]
        assert number >= wanted or found.is_in_service or found.state in ("not ready", "refused")


@given(deployment=deployments, world=worlds)
def test_serving_instances_are_updated_while_others_wait_for_quota(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    """If all other slots serve or wait for quota, an outdated instance is removed."""
    wanted = deployment.spec.scale_settings.min_replicas
    found = instances_of(world)
    waiting = slots_waiting_for_quota(deployment, slots(found), wanted)
    in_service = {n for n, instance in world.items() if instance.is_in_service}
    idle = set(range(wanted)) - in_service - waiting
    old = [n for n in in_service if n < wanted and world[n].image == "web:0"]
    movable = [n for n in old if can_be_recreated(deployment, n, waiting)]
    if idle or not movable or deployment.spec.paused:
        return
    assert max(movable) in removed(deployment, found)


@given(deployment=deployments, world=worlds)
def test_a_size_without_quota_costs_no_more_than_the_budget(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    """No new instance gets quota, so each counts as out of service."""
    larger = msgspec.structs.replace(
        deployment.spec.template.spec.runtime,
        resources=RuntimeResources(instance_type="d1-standard-8"),
    )
    template = msgspec.structs.replace(
        deployment.spec.template,
        spec=msgspec.structs.replace(deployment.spec.template.spec, runtime=larger),
    )
    spec = msgspec.structs.replace(deployment.spec, template=template, paused=False)
    changed = msgspec.structs.replace(deployment, spec=spec)
    wanted = spec.scale_settings.min_replicas
    instances = [an_instance(n) for n in range(wanted)]
    for _ in range(20):
        instances = [
            i if service_state(i) is ServiceState.SERVING else refused_by_quota(i)
            for i in after(changed, instances)
            if not i.is_terminating
        ]
    lost = wanted - len(slots(instances).serving)
    assert lost <= unavailable_max(spec, wanted)


@given(deployment=deployments, world=worlds)
def test_a_current_instance_is_never_removed(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    wanted = deployment.spec.scale_settings.min_replicas
    for action in plan(deployment, instances_of(world)).actions:
        if isinstance(action, Delete):
            number = int(action.ref.name.rpartition("-")[2])
            found = world[number]
            assert not found.terminating
            assert number >= wanted or found.image == "web:0"
            if deployment.spec.paused and not is_deferred(action):
                assert number >= wanted, "a paused deployment replaced an instance"


@given(deployment=deployments, world=worlds)
def test_ordered_instances_are_created_one_by_one_above_ready_ones(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    actions = plan(deployment, instances_of(world)).actions
    creates = [a for a in actions if isinstance(a, Create)]
    started = [a for a in creates if not is_deferred(a)]
    if deployment.spec.scale_settings.instance_management_policy == "Parallel":
        assert started == creates
        return
    assert len(started) <= 1
    for create in started:
        number = int(create.object.metadata.name.rpartition("-")[2])
        below = [world[n] for n in range(number)]
        assert not [f for f in below if f.state in ("not ready", "unobserved", "refused")]
        assert not [f for f in below if f.terminating]
        assert not [f for f in below if f.state == "unknown" and f.image == "web:1"]


@given(deployment=deployments, world=worlds)
def test_the_plan_does_not_depend_on_the_order_of_instances(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    found = instances_of(world)
    assert plan(deployment, found) == plan(deployment, found[::-1])


@given(scale=scales, world=worlds)
def test_following_the_plan_converges(scale: ScaleSettings, world: dict[int, Found]) -> None:
    deployment = a_deployment(scale=scale)
    instances = instances_of(world)
    for _ in range(60):
        if plan(deployment, instances).is_settled:
            break
        instances = settled(after(deployment, instances))
    names = sorted(i.metadata.name for i in instances)
    assert names == [f"web-dfw-{n}" for n in range(scale.min_replicas)]
    assert all(service_state(i) is ServiceState.SERVING for i in instances)
    assert all(i.spec.controller.template_hash == CURRENT for i in instances)
    assert plan(deployment, instances).is_settled


def settled(instances: list[Instance]) -> list[Instance]:
    """Return the instances after some time.

    Terminating ones are gone and updated ones are available. Outdated ones keep their state, except
    those that were never observed: they become not ready.
    """
    return [_settled(i) for i in instances if not i.is_terminating]


def _settled(instance: Instance) -> Instance:
    number = int(instance.metadata.name.rpartition("-")[2])
    if instance.spec.controller.template_hash == CURRENT:
        return an_instance(number)
    return instance if instance.status.conditions else an_instance(number, "web:0", ready=False)
