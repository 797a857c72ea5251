"""Planes of projects are added and removed while the platform runs, and after restarts."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.core import ConfigMap
from datum_compute.api.errors import ApiError, NotFound
from datum_compute.api.events import Event
from datum_compute.api.kinds import (
    CONFIG_MAP,
    EVENT,
    IP_ALLOCATION,
    NAMESPACE,
    PROJECT,
    SERVICE_ACCOUNT,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import ObjectReference
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, PLATFORM, cell_plane, project_plane
from datum_compute.client.client import Client
from tests.app.running_platform import (
    FIRST,
    Running,
    create_project,
    delete_project,
    on_a_platform,
    request_access,
)

ADDED = project_plane("added")
DATA = Ref("default", "data")


async def put_data(client: Client) -> ConfigMap:
    metadata = ObjectMeta(name=DATA.name, namespace=DATA.namespace)
    return await client.create(CONFIG_MAP, ConfigMap(metadata=metadata, data={"a": "b"}))


def test_an_added_plane_is_complete() -> None:
    async def story(running: Running) -> None:
        with pytest.raises(NotFound, match="no plane"):
            await running.client(ADDED).list(NAMESPACE)
        await create_project(running, "added")
        await asyncio.sleep(5)
        account = await running.client(ADDED).get(SERVICE_ACCOUNT, Ref("default", "default"))
        assert account.metadata.uid
        await running.client(ADDED).delete(NAMESPACE, Ref("", "kube-node-lease"))
        await asyncio.sleep(5)
        with pytest.raises(NotFound):
            await running.client(ADDED).get(NAMESPACE, Ref("", "kube-node-lease"))
        assert await running.client(FIRST).get(NAMESPACE, Ref("", "kube-node-lease"))

    on_a_platform(story)


def test_removing_a_plane_deletes_its_data_and_ends_its_watches() -> None:
    async def story(running: Running) -> None:
        await create_project(running, "added")
        await asyncio.sleep(5)
        client = running.client(ADDED)
        version = (await put_data(client)).metadata.resource_version
        events = client.watch(CONFIG_MAP, version, timeout_s=3000)
        waiting = running.loop.create_task(anext(events, None))
        await asyncio.sleep(1)
        await delete_project(running, ADDED)
        assert await waiting is None
        with pytest.raises(NotFound, match="no plane"):
            await client.get(CONFIG_MAP, DATA)
        await create_project(running, "added")
        with pytest.raises(NotFound, match="configmaps"):
            await client.get(CONFIG_MAP, DATA)
        again = (await put_data(client)).metadata.resource_version
        assert int(again) > int(version)

    on_a_platform(story)


def test_removing_a_plane_deletes_its_objects_on_other_planes() -> None:
    """Its machines must be stopped, and its address prefix released after that."""
    cell = cell_plane("dfw")

    async def story(running: Running) -> None:
        table = running.machines[cell]
        await create_project(running, "added")
        await request_access(running, ADDED)
        body = a_workload()
        await running.client(ADDED).create_plain(WORKLOAD, body)
        await running.client(FIRST).create_plain(WORKLOAD, body)
        await asyncio.sleep(30)
        assert len(table) == 2
        hub_namespaces = await list_hub_namespaces(running)
        assert len(hub_namespaces) == 2
        await delete_project(running, ADDED)
        assert len(table) == 1, "a plane is drained before it is removed"
        await asyncio.sleep(120)
        assert len(table) == 1
        assert len(await list_hub_namespaces(running)) == 1
        taken = [a.spec.project for a in (await running.client(PLATFORM).list(IP_ALLOCATION)).items]
        assert taken == ["first"]

    async def list_hub_namespaces(running: Running) -> list[str]:
        found = (await running.client(HUB).list(NAMESPACE)).items
        return [n.metadata.name for n in found if n.metadata.name.startswith("ns-")]

    on_a_platform(story, cell)


def a_workload() -> JsonObject:
    container = {"name": "app", "image": "web:1"}
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": {"containers": [container]}}}},
            "placements": [
                {"name": "a", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}
            ],
        },
    }


def test_added_and_removed_planes_survive_a_restart() -> None:
    async def story(running: Running) -> None:
        other = project_plane("other")
        for name in ("added", "other"):
            await create_project(running, name)
        await put_data(running.client(ADDED))
        await delete_project(running, other)
        await running.stop()
        await running.start()
        assert (await running.client(ADDED).get(CONFIG_MAP, DATA)).data == {"a": "b"}
        await running.client(ADDED).delete(SERVICE_ACCOUNT, Ref("default", "default"))
        await asyncio.sleep(5)
        assert await running.client(ADDED).get(SERVICE_ACCOUNT, Ref("default", "default"))
        with pytest.raises(ApiError, match="no plane"):
            await running.client(other).list(NAMESPACE)

    on_a_platform(story)


def test_a_deleted_first_project_is_not_recreated_at_the_next_start() -> None:
    async def story(running: Running) -> None:
        await delete_project(running, FIRST)
        await running.stop()
        await running.start()
        with pytest.raises(ApiError, match="no plane"):
            await running.client(FIRST).list(NAMESPACE)
        assert (await running.client(PLATFORM).list(PROJECT)).items == []

    on_a_platform(story)


def test_events_are_deleted_after_an_hour() -> None:
    async def story(running: Running) -> None:
        client = running.client(FIRST)
        about = ObjectReference(kind="Workload", name="web", namespace="default")
        metadata = ObjectMeta(name="e", namespace="default")
        await client.create(EVENT, Event(metadata=metadata, involved_object=about))
        await asyncio.sleep(3500)
        assert await client.get(EVENT, Ref("default", "e"))
        await asyncio.sleep(200)
        with pytest.raises(NotFound):
            await client.get(EVENT, Ref("default", "e"))

    on_a_platform(story)
