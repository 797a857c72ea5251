"""Instance control over many worlds: it is safe, it converges, and at rest it does nothing."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.instance import Instance
from datum_compute.api.plane import cell_plane
from datum_compute.api.workload import ScaleSettings
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.actions import Create, Delete, is_skipped
from datum_compute.planning.instances import plan_instances
from datum_compute.planning.ordinals import serves, slots_of, unavailable_max
from datum_compute.testing.builders import a_deployment, an_instance

CELL = cell_plane("dfw")
CURRENT = an_instance(0).spec.controller.template_hash


@dataclass(frozen=True, slots=True)
class Found:
    """What stands in a slot at first."""

    image: str
    ready: bool
    terminating: bool


founds = st.builds(Found, st.sampled_from(["web:1", "web:0"]), st.booleans(), st.booleans())
worlds = st.dictionaries(st.integers(0, 6), founds)
scales = st.builds(
    ScaleSettings,
    min_replicas=st.integers(1, 6),
    instance_management_policy=st.sampled_from(["OrderedReady", "Parallel"]),
    max_unavailable=st.integers(1, 4) | st.integers(1, 100).map(lambda n: f"{n}%"),
)
deployments = st.builds(lambda scale, paused: a_deployment(scale=scale, paused=paused),
                        scales, st.booleans())  # fmt: skip


def instances_of(world: dict[int, Found]) -> list[Instance]:
    return [
        an_instance(n, found.image, ready=found.ready, terminating=found.terminating)
        for n, found in world.items()
    ]


def out_of_service(instances: list[Instance], wanted: int) -> int:
    return slots_of("web-dfw", instances).unavailable(wanted)


def after(deployment: WorkloadDeployment, instances: list[Instance]) -> list[Instance]:
    """The world right after the plan: created ones are new, deleted ones are going."""
    world = {i.metadata.name: i for i in instances}
    for action in plan_instances(CELL, deployment, instances).actions:
        if isinstance(action, Delete) and not is_skipped(action):
            leaving = world[action.ref.name]
            metadata = msgspec.structs.replace(leaving.metadata, deletion_timestamp="2026")
            world[action.ref.name] = msgspec.structs.replace(leaving, metadata=metadata)
        if isinstance(action, Create) and not is_skipped(action):
            name = action.object.metadata.name
            assert name not in world, "never two of one ordinal"
            world[name] = an_instance(int(name.rpartition("-")[2]), ready=False)
    return list(world.values())


@given(deployment=deployments, world=worlds)
def test_a_rollout_keeps_to_its_budget(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    wanted = deployment.spec.scale_settings.min_replicas
    before = instances_of(world)
    allowed = unavailable_max(deployment.spec.scale_settings, wanted)
    now_out = out_of_service(after(deployment, before), wanted)
    assert now_out <= max(allowed, out_of_service(before, wanted))


@given(deployment=deployments, world=worlds)
def test_what_is_as_it_should_be_is_never_touched(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    wanted = deployment.spec.scale_settings.min_replicas
    for action in plan_instances(CELL, deployment, instances_of(world)).actions:
        if isinstance(action, Delete):
            number = int(action.ref.name.rpartition("-")[2])
            found = world[number]
            assert not found.terminating
            assert number >= wanted or found.image == "web:0"
            if deployment.spec.paused and not is_skipped(action):
                assert number >= wanted, "paused, and yet it replaces"


@given(deployment=deployments, world=worlds)
def test_ordered_instances_come_one_by_one_on_firm_ground(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    plan = plan_instances(CELL, deployment, found := instances_of(world))
    creates = [a for a in plan.actions if isinstance(a, Create)]
    begun = [a for a in creates if not is_skipped(a)]
    if deployment.spec.scale_settings.instance_management_policy == "Parallel":
        assert begun == creates
        return
    assert len(begun) <= 1
    serving = slots_of("web-dfw", found).serving
    for create in begun:
        number = int(create.object.metadata.name.rpartition("-")[2])
        assert serving.issuperset(range(number))


@given(deployment=deployments, world=worlds)
def test_the_same_world_in_another_order_gives_the_same_plan(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    found = instances_of(world)
    assert plan_instances(CELL, deployment, found) == plan_instances(CELL, deployment, found[::-1])


@given(scale=scales, world=worlds)
def test_following_the_plan_converges_and_then_rests(
    scale: ScaleSettings, world: dict[int, Found]
) -> None:
    deployment = a_deployment(scale=scale)
    instances = instances_of(world)
    for _ in range(60):
        if plan_instances(CELL, deployment, instances).is_settled:
            break
        instances = settled(after(deployment, instances))
    names = sorted(i.metadata.name for i in instances)
    assert names == [f"web-dfw-{n}" for n in range(scale.min_replicas)]
    assert all(serves(i) and i.spec.controller.template_hash == CURRENT for i in instances)
    assert plan_instances(CELL, deployment, instances).is_settled


def settled(instances: list[Instance]) -> list[Instance]:
    """What terminates goes; what is of the current template gets ready; an old one that is not
    ready never will be."""
    return [
        an_instance(int(i.metadata.name.rpartition("-")[2]))
        if i.spec.controller.template_hash == CURRENT
        else i
        for i in instances
        if not i.is_terminating
    ]
