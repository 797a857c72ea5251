"""Instance types on a whole platform: the status of the original and of copies in projects."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.compute.instance_type import InstanceType
from datum_compute.api.conditions import find_condition
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import INSTANCE, INSTANCE_TYPE, LOCATION_BINDING, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PLATFORM, cell_plane
from testkit.api_server.running_server import location_binding, workload
from tests.app.running_platform import FIRST, Running, on_a_platform

WEB = Ref("default", "web")
OLD, NEW, TINY = Ref("", "d1-standard-1"), Ref("", "d1-standard-2"), Ref("", "tiny")
DFW = cell_plane("dfw")


def test_the_copy_of_a_deprecated_type_follows_the_original() -> None:
    async def story(running: Running) -> None:
        platform, project = running.client(PLATFORM), running.client(FIRST)
        await project.create_plain(LOCATION_BINDING, location_binding("DFW"))
        await project.create_plain(WORKLOAD, workload_of_type(OLD.name))
        lifecycle = {"phase": "Deprecated", "replacementInstanceType": NEW.name}
        await platform.patch(INSTANCE_TYPE, OLD, {"spec": {"lifecycle": lifecycle}})
        await asyncio.sleep(5)
        original = await platform.get(INSTANCE_TYPE, OLD)
        assert original.status.deprecated_at
        assert ready_reason(original) == "Valid"
        copy = await project.get(INSTANCE_TYPE, OLD)
        assert copy.spec.lifecycle.phase == "Deprecated"
        assert copy.status.deprecated_at is None
        (notice,) = [
            condition.message
            for condition in (await project.get(WORKLOAD, WEB)).status.conditions
            if condition.type == "InstanceTypeDeprecated"
        ]
        assert notice == "Instance type d1-standard-1 is deprecated; use d1-standard-2 instead"
        elsewhere = {"replacementInstanceType": "not-made-yet"}
        await platform.patch(INSTANCE_TYPE, OLD, {"spec": {"lifecycle": elsewhere}})
        await asyncio.sleep(5)
        assert ready_reason(await platform.get(INSTANCE_TYPE, OLD)) == "ReplacementNotFound"

    on_a_platform(story)


def test_running_instances_keep_their_size_after_their_type_is_deleted() -> None:
    async def story(running: Running) -> None:
        platform, project = running.client(PLATFORM), running.client(FIRST)
        cell = running.client(DFW)
        await platform.create_plain(INSTANCE_TYPE, a_type(TINY.name))
        await asyncio.sleep(5)
        await project.create_plain(WORKLOAD, workload_of_type(TINY.name))
        await asyncio.sleep(30)
        (before,) = (await cell.list(INSTANCE)).items
        for phase in ("Deprecated", "Disabled"):
            lifecycle = {"phase": phase, "replacementInstanceType": NEW.name}
            await platform.patch(INSTANCE_TYPE, TINY, {"spec": {"lifecycle": lifecycle}})
            await asyncio.sleep(5)
        await platform.delete(INSTANCE_TYPE, TINY)
        await asyncio.sleep(30)
        with pytest.raises(NotFound):
            await project.get(INSTANCE_TYPE, TINY)
        (now,) = (await cell.list(INSTANCE)).items
        assert now.metadata.uid == before.metadata.uid
        assert now.status.resources == before.status.resources
        conditions = (await project.get(WORKLOAD, WEB)).status.conditions
        assert find_condition(conditions, "InstanceTypeDisabled") is not None
        await project.patch(WORKLOAD, WEB, {"spec": {"paused": True}})

    on_a_platform(story, DFW, deprecation_grace_s=0.0)


def a_type(name: str) -> JsonObject:
    return {
        "apiVersion": INSTANCE_TYPE.api_version,
        "kind": INSTANCE_TYPE.kind,
        "metadata": {"name": name},
        "spec": {"resources": {"cpu": "250m", "memory": "512Mi"}},
    }


def workload_of_type(size: str) -> JsonObject:
    made = workload(WEB.name, namespace=WEB.namespace)
    made["spec"]["template"]["spec"]["runtime"]["resources"] = {"instanceType": size}
    return made


def ready_reason(instance_type: InstanceType) -> str:
    ready = find_condition(instance_type.status.conditions, "Ready")
    assert ready is not None
    return ready.reason
