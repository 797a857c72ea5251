"""Instance control over many worlds: it is safe, it converges, and at rest it does nothing."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.instance import Instance, RuntimeResources
from datum_compute.api.plane import cell_plane
from datum_compute.api.workload import ScaleSettings
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.actions import Create, Delete, is_skipped
from datum_compute.planning.budget import can_return, quota_waiters
from datum_compute.planning.instances import plan_instances
from datum_compute.planning.ordinals import serves, slots_of, unavailable_max
from datum_compute.testing.builders import a_deployment, an_instance, refused_by_quota

CELL = cell_plane("dfw")
CURRENT = an_instance(0).spec.controller.template_hash


@dataclass(frozen=True, slots=True)
class Found:
    """What stands in a slot at first."""

    image: str
    ready: bool
    terminating: bool
    refused: bool = False


images = st.sampled_from(["web:1", "web:0"])
founds = st.builds(Found, images, st.booleans(), st.booleans()) | st.builds(
    Found, images, st.just(value=False), st.just(value=False), st.just(value=True)
)
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
    return [_instance_of(number, found) for number, found in world.items()]


def _instance_of(number: int, found: Found) -> Instance:
    made = an_instance(number, found.image, ready=found.ready, terminating=found.terminating)
    return refused_by_quota(made) if found.refused else made


def out_of_service(deployment: WorkloadDeployment, instances: list[Instance]) -> int:
    """But for those that wait for quota."""
    slots, wanted = slots_of("web-dfw", instances), deployment.spec.scale_settings.min_replicas
    return slots.unavailable(wanted) - len(quota_waiters(deployment, slots, wanted))


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
    slots = slots_of("web-dfw", before)
    served = sum(n < wanted for n in slots.serving)
    left = slots_of("web-dfw", after(deployment, before)).serving
    lost = served - sum(n < wanted for n in left)
    waiting = quota_waiters(deployment, slots, wanted)
    allowed = unavailable_max(deployment.spec.scale_settings, wanted - len(waiting))
    assert lost <= max(0, allowed - out_of_service(deployment, before))


@given(deployment=deployments, world=worlds)
def test_what_serves_is_rolled_though_others_wait_for_quota(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    """Whoever is left serves or waits for quota: then one of the old ones goes, if one can."""
    wanted = deployment.spec.scale_settings.min_replicas
    found = instances_of(world)
    slots = slots_of("web-dfw", found)
    waiting = quota_waiters(deployment, slots, wanted)
    idle = set(range(wanted)) - slots.serving - waiting
    old = [n for n in slots.serving if n < wanted and world[n].image == "web:0"]
    movable = [n for n in old if can_return(deployment, n, waiting)]
    if idle or not movable or deployment.spec.paused:
        return
    plan = plan_instances(CELL, deployment, found)
    gone = [a.ref.name for a in plan.actions if isinstance(a, Delete) and not is_skipped(a)]
    assert f"web-dfw-{max(movable)}" in gone


@given(deployment=deployments, world=worlds)
def test_a_size_that_quota_refuses_costs_no_more_than_the_budget(
    deployment: WorkloadDeployment, world: dict[int, Found]
) -> None:
    """Every new instance is refused, and so counts as out of service."""
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
            i if serves(i) else refused_by_quota(i)
            for i in after(changed, instances)
            if not i.is_terminating
        ]
    lost = wanted - len(slots_of("web-dfw", instances).serving)
    assert lost <= unavailable_max(spec.scale_settings, wanted)


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
