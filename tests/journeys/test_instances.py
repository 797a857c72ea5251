"""Known faults of other control planes, tested on the whole platform."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api import labels
from datum_compute.api.compute.server import Server
from datum_compute.api.conditions import TRUE, find_condition, is_true
from datum_compute.api.errors import Invalid
from datum_compute.api.kinds import EVENT, INSTANCE, INSTANCE_TYPE, SERVER, WORKLOAD
from datum_compute.api.meta.objects import ObjectMeta, ref_of
from datum_compute.planning.rollout import gates
from datum_compute.planning.rollout.slots import is_ready
from tests.journeys.platform import CELL, WEB, Platform, on_platform


def test_a_dormant_instance_is_ready_with_the_reason_asleep() -> None:
    async def story(platform: Platform) -> tuple[bool, str]:
        await platform.deploy("sleepy.example/web:1")
        await platform.until_ready("sleepy.example/web:1")
        await asyncio.sleep(10)
        (instance,) = await platform.instances()
        available = find_condition(instance.status.conditions, "Available")
        assert available is not None
        return is_ready(instance), f"{available.status}/{available.reason}"

    assert on_platform(story) == (True, "True/Asleep")


def test_nothing_ever_writes_a_condition_named_running() -> None:
    async def story(platform: Platform) -> list[str]:
        await platform.deploy()
        await platform.until_ready("web:1")
        return [str(c.key) for c in platform.writes if c.body and b'"type":"Running"' in c.body]

    assert on_platform(story) == []


def test_a_new_image_recreates_one_instance_at_a_time_from_the_highest_ordinal() -> None:
    async def story(platform: Platform) -> list[int]:
        await platform.deploy("web:1", replicas=3)
        await platform.until_ready("web:1", 3)
        before = {i.metadata.name: i.metadata.uid for i in await platform.instances()}
        await platform.change_image("web:2")
        await platform.until_ready("web:2", 3)
        after = {i.metadata.name: i.metadata.uid for i in await platform.instances()}
        assert before.keys() == after.keys()
        assert not set(before.values()) & set(after.values())
        return platform.removals()

    assert on_platform(story) == [2, 1, 0]


def test_a_restart_annotation_starts_a_rollout_that_updated_replicas_follow() -> None:
    async def story(platform: Platform) -> list[int]:
        await platform.deploy(replicas=2)
        await platform.until_ready("web:1", 2)
        stamp = {"compute.datumapis.com/restartedAt": "2026-01-01T00:00:00Z"}
        await platform.change(template={"metadata": {"annotations": stamp}})
        seen: list[int] = []
        for _ in range(200):
            updated = (await platform.workload()).status.updated_replicas
            if not seen or seen[-1] != updated:
                seen.append(updated)
            await asyncio.sleep(0.1)
        assert [i.metadata.annotations for i in await platform.instances()] == [stamp, stamp]
        return seen

    seen = on_platform(story)
    assert (seen[0], min(seen), seen[-1]) == (2, 0, 2)


def test_a_bad_image_is_reported_and_can_be_rolled_forward() -> None:
    """A rollout that waits for unready instances before it replaces them would never finish."""

    async def story(platform: Platform) -> str:
        await platform.deploy("fail.example/web:1", replicas=2)
        condition = await platform.until_reason("ImageUnavailable")
        await platform.change_image("web:2")
        await platform.until_ready("web:2", 2)
        return condition.message

    assert "fail.example/web:1" in on_platform(story)


def test_a_bad_rollout_stops_at_the_first_instance_and_can_be_undone() -> None:
    async def story(platform: Platform) -> list[str]:
        await platform.deploy("web:1", replicas=3)
        await platform.until_ready("web:1", 3)
        await platform.change_image("crash.example/web:2")
        await asyncio.sleep(60)
        ready = [i.metadata.name[-1] for i in await platform.instances() if is_ready(i)]
        blocked = (await platform.workload()).status.blocked
        assert [(b.reason, b.replicas) for b in blocked] == [("InstanceCrashing", 1)]
        await platform.change_image("web:1")
        await platform.until_ready("web:1", 3)
        return ready

    assert on_platform(story) == ["0", "1"]


def test_unready_instances_do_not_block_a_scale_down() -> None:
    async def story(platform: Platform) -> list[str]:
        await platform.deploy(
            "stuck.example/web:1", replicas=3, instanceManagementPolicy="Parallel"
        )
        await platform.until(lambda: _count(platform, 3), "three instances")
        scale = {"minReplicas": 1, "instanceManagementPolicy": "OrderedReady"}
        placement = {"name": "default", "cityCodes": ["DFW"], "scaleSettings": scale}
        await platform.change(placements=[placement])
        await platform.until(lambda: _count(platform, 1), "one instance")
        projections = (await platform.project.list(INSTANCE, "default")).items
        return [i.metadata.name[-2:] for i in projections]

    assert on_platform(story) == ["-0"]


async def _count(platform: Platform, number: int) -> bool:
    return len(await platform.instances()) == number


def test_a_rollout_without_progress_is_reported_after_its_deadline() -> None:
    async def story(platform: Platform) -> str:
        await platform.deploy("stuck.example/web:1", progressDeadlineSeconds=60)
        await asyncio.sleep(55)
        early = find_condition((await platform.workload()).status.conditions, "Progressing")
        await asyncio.sleep(15)
        late = find_condition((await platform.workload()).status.conditions, "Progressing")
        assert early is not None
        assert late is not None
        return f"{early.reason} {late.status}/{late.reason}"

    assert on_platform(story) == "RollingOut False/ProgressDeadlineExceeded"


def test_a_paused_workload_replaces_nothing_until_it_is_resumed() -> None:
    async def story(platform: Platform) -> list[str]:
        await platform.deploy(replicas=2)
        await platform.until_ready("web:1", 2)
        await platform.change(paused=True)
        await platform.change_image("web:2")
        await asyncio.sleep(30)
        images = [i.spec.runtime.sandbox.containers[0].image for i in await platform.instances()]
        progressing = find_condition((await platform.workload()).status.conditions, "Progressing")
        assert progressing is not None
        assert (progressing.status, progressing.reason) == ("Unknown", "RolloutPaused")
        assert "0 of 2 instances are updated" in progressing.message
        await platform.change(paused=False)
        await platform.until_ready("web:2", 2)
        return images

    assert on_platform(story) == ["web:1", "web:1"]


def test_edited_labels_are_restored_without_a_recreate() -> None:
    async def story(platform: Platform) -> bool:
        await platform.deploy()
        await platform.until_ready("web:1")
        (before,) = await platform.instances()
        wrong = {labels.WORKLOAD_NAME: None, labels.INSTANCE_INDEX: "7", "team": "blue"}
        await platform.cell.patch(INSTANCE, ref_of(before), {"metadata": {"labels": wrong}})
        await asyncio.sleep(5)
        (after,) = await platform.instances()
        assert after.metadata.uid == before.metadata.uid
        assert after.metadata.generation == before.metadata.generation
        (projection,) = (await platform.project.list(INSTANCE, "default")).items
        assert projection.metadata.labels[labels.WORKLOAD_NAME] == "web"
        return after.metadata.labels == {**before.metadata.labels, "team": "blue"}

    assert on_platform(story)


def test_an_unknown_gate_blocks_the_instance_until_its_owner_removes_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gates, "INITIAL_GATES", (("Moonphase", lambda _: True),))

    async def story(platform: Platform) -> str:
        await platform.deploy()
        condition = await platform.until_reason("SchedulingGatesPresent")
        assert await platform.servers() == []
        (instance,) = await platform.instances()
        first = "/spec/controller/schedulingGates/0"
        removal = [
            {"op": "test", "path": f"{first}/name", "value": "Moonphase"},
            {"op": "remove", "path": first},
        ]
        await platform.cell.patch(INSTANCE, ref_of(instance), removal)
        await platform.until_ready("web:1")
        with pytest.raises(Invalid):  # a second writer with a stale view
            await platform.cell.patch(INSTANCE, ref_of(instance), removal)
        (instance,) = await platform.instances()
        assert instance.spec.controller.scheduling_gates == []
        return condition.message

    assert on_platform(story) == "Scheduling gates present: Moonphase"


def test_a_server_deleted_by_hand_is_replaced() -> None:
    async def story(platform: Platform) -> bool:
        await platform.deploy()
        await platform.until_ready("web:1")
        (server,) = await platform.servers()
        await platform.cell.delete(SERVER, ref_of(server))

        async def replaced() -> bool:
            found = await platform.servers()
            return [s.metadata.uid for s in found] not in ([], [server.metadata.uid])

        await platform.until(replaced, "another server")
        await platform.until_ready("web:1")
        return True

    assert on_platform(story)


def test_a_second_server_of_an_instance_causes_a_warning_and_no_outage() -> None:
    async def story(platform: Platform) -> list[str]:
        await platform.deploy()
        await platform.until_ready("web:1")
        (server,) = await platform.servers()
        metadata = ObjectMeta(
            name="twin", namespace=server.metadata.namespace, labels=server.metadata.labels
        )
        twin = Server(metadata=metadata, spec=server.spec)
        await platform.host.operator(CELL).create(SERVER, twin)
        await asyncio.sleep(30)
        assert [is_ready(i) for i in await platform.instances()] == [True]
        events = (await platform.cell.list_plain(EVENT)).items
        return [e["message"] for e in events if e["reason"] == "AmbiguousOwner"]

    assert any("duplicate" in note and "twin" in note for note in on_platform(story))


def test_parallel_instances_start_together_and_roll_within_their_budget() -> None:
    async def story(platform: Platform) -> int:
        policy = {"instanceManagementPolicy": "Parallel", "maxUnavailable": "50%"}
        await platform.deploy(replicas=6, **policy)
        await platform.until_ready("web:1", 6)
        await platform.change_image("web:2")
        fewest = 6
        for _ in range(600):
            found = await platform.instances()
            serving = [i for i in found if is_ready(i) and not i.is_terminating]
            fewest = min(fewest, len(serving))
            await asyncio.sleep(0.02)
        await platform.until_ready("web:2", 6)
        return fewest

    assert on_platform(story) == 3


def test_a_rollout_of_one_instance_never_leaves_the_city_without_service() -> None:
    async def story(platform: Platform) -> list[int]:
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.change_image("web:2")
        serving, surge = [], []
        for _ in range(600):
            found = await platform.instances()
            serving.append(sum(is_ready(i) and not i.is_terminating for i in found))
            workload = await platform.workload()
            surge.append(workload.status.surge_replicas)
            assert is_true(workload.status.conditions, "Available")
            await asyncio.sleep(0.02)
        await platform.until_ready("web:2")
        return [min(serving), max(surge)]

    assert on_platform(story) == [1, 1]


@pytest.mark.parametrize("delay_s", [0.6, 1.7])
@pytest.mark.parametrize("image", ["web:1", "web:2", "web:3"])
def test_a_workload_that_was_stopped_during_a_rollout_with_surge_continues_it(
    delay_s: float, image: str
) -> None:
    """The template stays, is undone or is changed again while the workload is stopped."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.change_image("web:2")
        await asyncio.sleep(delay_s)
        await platform.change(stopped=True)
        await platform.until_reason("Stopped")
        before = {ref_of(i) for i in await platform.instances() if not i.is_terminating}
        await platform.change_image(image)
        await asyncio.sleep(30)
        assert {ref_of(i) for i in await platform.instances()} == before
        await platform.change(stopped=False)
        has_served = False
        for _ in range(400):
            found = await platform.instances()
            serves = any(is_ready(i) and not i.is_terminating for i in found)
            has_served = has_served or serves
            assert serves or not has_served, "the rollout removed the last serving instance"
            await asyncio.sleep(0.05)
        await platform.until_ready(image)
        assert (await platform.workload()).status.surge_replicas == 0

    on_platform(story, boot_s=1.0)


def test_a_status_describes_its_observed_generation() -> None:
    async def story(platform: Platform) -> bool:
        await platform.deploy()
        await platform.until_ready("web:1")
        deployment, workload = await platform.deployment(), await platform.workload()
        assert deployment.status.observed_generation == deployment.metadata.generation
        assert deployment.status.observed_source.generation >= 1
        (instance,) = await platform.instances()
        ready = find_condition(instance.status.conditions, "Ready")
        assert ready is not None
        assert (ready.status, ready.observed_generation) == (TRUE, instance.metadata.generation)
        return workload.status.observed_generation == workload.metadata.generation

    assert on_platform(story)


def test_an_instance_costs_few_writes_from_create_to_ready() -> None:
    async def story(platform: Platform) -> int:
        await platform.deploy()
        await platform.until_ready("web:1")
        await asyncio.sleep(5)
        return sum(len(platform.on_cell(kind.resource)) for kind in (INSTANCE, SERVER))

    assert on_platform(story, boot_s=0.0) == 6
    assert on_platform(story, boot_s=2.0) == 8  # the status also reports that it starts


def test_every_plane_has_the_instance_types_from_its_start() -> None:
    async def story(platform: Platform) -> list[dict[str, str]]:
        await platform.deploy()
        return [
            {
                t.metadata.name: f"{t.spec.resources.cpu}/{t.spec.resources.memory}"
                for t in (await client.list(INSTANCE_TYPE)).items
            }
            for client in (platform.project, platform.cell)
        ]

    offered = {
        "d1-standard-1": "500m/1Gi",
        "d1-standard-2": "1/2Gi",
        "d1-standard-4": "2/4Gi",
        "d1-standard-8": "4/8Gi",
    }
    assert on_platform(story) == [offered, offered]


def test_a_workload_of_an_unknown_instance_type_is_refused() -> None:
    async def story(platform: Platform) -> str:
        await platform.deploy()
        resources = {"instanceType": "d1-standard-3"}
        with pytest.raises(Invalid) as refused:
            await platform.change(template={"spec": {"runtime": {"resources": resources}}})
        assert (await platform.project.get_plain(WORKLOAD, WEB))["metadata"]["generation"] == 1
        return str(refused.value)

    assert "did you mean d1-standard" in on_platform(story)
