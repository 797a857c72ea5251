"""Status for users: locations, blocked counts, explicit zeros, and unreachable cells."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from datum_compute.api.conditions import find_condition
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, EVENT, INSTANCE, LOCATION_BINDING, WORKLOAD
from datum_compute.api.meta.codec import decode
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import HUB
from testkit.api_server.running_server import location_binding
from tests.journeys.platform import CELL, PROJECT, Platform, on_platform

SCALE = {"minReplicas": 1}


async def workload_condition(platform: Platform, type_: str) -> tuple[str, str, str]:
    found = find_condition((await platform.workload()).status.conditions, type_)
    return (found.status, found.reason, found.message) if found is not None else ("", "", "")


def test_the_location_is_copied_to_the_deployment_and_every_instance() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy(replicas=2)
        await platform.until_ready("web:1", 2)
        (deployment,) = (await platform.project.list(DEPLOYMENT)).items
        assert deployment.status.location is not None
        assert deployment.status.location.name == "dfw"
        shown = (await platform.project.list(INSTANCE)).items
        assert [i.spec.location and i.spec.location.name for i in shown] == ["dfw", "dfw"]

    on_platform(story)


def test_a_city_without_a_cell_is_counted_as_blocked_and_is_no_rollout() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        cities = ["DFW", "XYZ"]
        operator = platform.host.operator(PROJECT)
        await operator.create_plain(LOCATION_BINDING, location_binding("XYZ"))
        placement = {"name": "default", "cityCodes": cities, "scaleSettings": SCALE}
        await platform.change(placements=[placement])
        await asyncio.sleep(10)
        blocked = (await platform.workload()).status.blocked
        assert [(b.reason, b.replicas) for b in blocked] == [("NoMatchingLocation", 1)]
        _, reason, message = await workload_condition(platform, "Progressing")
        assert (reason, "XYZ" in message) == ("NoMatchingLocation", True)

    on_platform(story)


def test_zero_counts_are_written_from_the_first_status_on() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        for plane, kind in ((PROJECT, WORKLOAD), (PROJECT, DEPLOYMENT), (CELL, DEPLOYMENT)):
            statuses = [
                decode(change.body)["status"]
                for change in platform.writes
                if (change.plane, change.key.resource) == (plane, kind.resource)
                and change.body is not None
                and "conditions" in decode(change.body).get("status", {})
            ]
            counts = ("replicas", "readyReplicas", "updatedReplicas", "desiredReplicas")
            assert all(name in statuses[0] for name in counts), (plane, kind.kind)

    on_platform(story)


def test_scaling_down_healthy_instances_causes_no_warning() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy(replicas=3)
        await platform.until_ready("web:1", 3)
        placement = {"name": "default", "cityCodes": ["DFW"], "scaleSettings": SCALE}
        await platform.change(placements=[placement])
        await platform.until_ready("web:1", 1)
        await asyncio.sleep(10)
        events: list[dict[str, Any]] = (await platform.project.list_plain(EVENT)).items
        assert [e for e in events if e["type"] == "Warning"] == []
        assert "Stopping" in {e["reason"] for e in events}

    on_platform(story)


@pytest.mark.parametrize(
    ("image", "reason"),
    [("exit.example/web:1", "Stopped"), ("stuck.example/web:1", "Provisioning")],
)
def test_the_reason_of_an_instance_is_carried_up_to_the_workload(image: str, reason: str) -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy(image)
        available = await platform.until_reason(reason)
        (instance,) = (await platform.project.list(INSTANCE)).items
        (deployment,) = (await platform.project.list(DEPLOYMENT)).items
        ready = find_condition(instance.status.conditions, "Ready")
        of_city = find_condition(deployment.status.conditions, "Available")
        assert ready is not None
        assert of_city is not None
        assert (ready.status, ready.reason) == ("False", reason)
        assert (of_city.reason, of_city.message) == (reason, ready.message)
        assert (available.status, available.message) == ("False", ready.message)

    on_platform(story)


def test_programmed_is_unknown_while_a_machine_is_set_up() -> None:
    async def story(platform: Platform) -> list[tuple[str, str]]:
        await platform.deploy()
        await platform.until_ready("web:1")
        found = [
            (condition["status"], condition["reason"])
            for change in platform.writes
            if (change.plane, change.key.resource) == (CELL, INSTANCE.resource)
            for condition in decode(change.body or b"{}").get("status", {}).get("conditions", ())
            if condition["type"] == "Programmed"
        ]
        return list(dict.fromkeys(found))

    assert on_platform(story) == [
        ("Unknown", "Pending"),
        ("Unknown", "ProgrammingInProgress"),
        ("True", "Programmed"),
    ]


def test_an_instance_that_is_removed_reports_that_it_stops() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy(replicas=2)
        await platform.until_ready("web:1", 2)
        provider = platform.host.providers[CELL]
        provider.stop_s = provider.remove_s = 60.0
        placement = {"name": "default", "cityCodes": ["DFW"], "scaleSettings": SCALE}
        await platform.change(placements=[placement])
        await asyncio.sleep(5)
        copies = (await platform.project.list(INSTANCE)).items
        found = {
            i.metadata.name[-1]: find_condition(i.status.conditions, "Available") for i in copies
        }
        kept, removed = found["0"], found["1"]
        assert kept is not None
        assert removed is not None
        assert (kept.status, removed.status, removed.reason) == ("True", "False", "Stopping")

    on_platform(story)


def test_a_change_of_only_the_scale_keeps_the_updated_replicas() -> None:
    async def story(platform: Platform) -> list[int]:
        await platform.deploy(replicas=2)
        await platform.until_ready("web:1", 2)
        scale = {**SCALE, "minReplicas": 3}
        placement = {"name": "default", "cityCodes": ["DFW"], "scaleSettings": scale}
        written = len(platform.writes)
        await platform.change(placements=[placement])
        await platform.until_ready("web:1", 3)
        return [
            decode(change.body)["status"]["updatedReplicas"]
            for change in list(platform.writes)[written:]
            if (change.plane, change.key.resource) == (PROJECT, WORKLOAD.resource) and change.body
        ]

    updated = on_platform(story)
    assert sorted(updated) == updated
    assert (updated[0], updated[-1]) == (2, 3)


def test_a_cell_is_unreachable_after_half_a_minute_and_not_after_one_missed_probe() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        hub = platform.host.operator(HUB)

        async def ready() -> str:
            found = await hub.get(CLUSTER, Ref("", "dfw"))
            condition = find_condition(found.status.conditions, "Ready")
            return condition.status if condition is not None else ""

        platform.host.silent.add(CELL)
        await asyncio.sleep(25)
        assert await ready() == "True"
        assert (await platform.available()).status == "True"
        await asyncio.sleep(20)
        assert await ready() == "False"
        assert (await platform.available()).reason == "CellUnreachable"
        platform.host.silent.clear()
        await asyncio.sleep(20)
        assert await ready() == "True"

    on_platform(story)
