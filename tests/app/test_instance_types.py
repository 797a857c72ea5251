"""Instance types on a whole platform: their status, and what their copies say."""

from __future__ import annotations

import asyncio

from datum_compute.api.codec import JsonObject
from datum_compute.api.conditions import find_condition
from datum_compute.api.instancetype import InstanceType
from datum_compute.api.kinds import INSTANCE_TYPE, LOCATION_BINDING, WORKLOAD
from datum_compute.api.meta import Ref
from datum_compute.api.plane import PLATFORM
from tests.app.running_platform import FIRST, Running, on_a_platform
from tests.server.running_server import location_binding, workload

WEB = Ref("default", "web")
OLD, NEW = Ref("", "d1-standard-1"), Ref("", "d1-standard-2")


def test_the_original_says_since_when_and_the_copy_follows() -> None:
    async def story(running: Running) -> None:
        platform, project = running.client(PLATFORM), running.client(FIRST)
        await project.create_plain(LOCATION_BINDING, location_binding("DFW"))
        await project.create_plain(WORKLOAD, sized(OLD.name))
        lifecycle = {"phase": "Deprecated", "replacementInstanceType": NEW.name}
        await platform.patch(INSTANCE_TYPE, OLD, {"spec": {"lifecycle": lifecycle}})
        await asyncio.sleep(5)
        told = await platform.get(INSTANCE_TYPE, OLD)
        assert told.status.deprecated_at
        assert reason(told) == "Valid"
        copy = await project.get(INSTANCE_TYPE, OLD)
        assert copy.spec.lifecycle.phase == "Deprecated"
        assert copy.status.deprecated_at is None
        (notice,) = [
            condition.message
            for condition in (await project.get(WORKLOAD, WEB)).status.conditions
            if condition.type == "InstanceTypeDeprecated"
        ]
        assert notice == "Instance type d1-standard-1 is deprecated; use d1-standard-2 instead"
        await platform.delete(INSTANCE_TYPE, NEW)
        await asyncio.sleep(5)
        assert reason(await platform.get(INSTANCE_TYPE, OLD)) == "ReplacementNotFound"

    on_a_platform(story)


def sized(size: str) -> JsonObject:
    made = workload(WEB.name, namespace=WEB.namespace)
    made["spec"]["template"]["spec"]["runtime"]["resources"] = {"instanceType": size}
    return made


def reason(instance_type: InstanceType) -> str:
    ready = find_condition(instance_type.status.conditions, "Ready")
    assert ready is not None
    return ready.reason
