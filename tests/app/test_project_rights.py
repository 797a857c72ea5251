"""Who may make projects, request access and decide on it; and who reaches a project made later."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.kinds import (
    CLUSTER_ROLE_BINDING,
    CONSUMER,
    ENTITLEMENT,
    NAMESPACE,
    ORGANIZATION,
    PROJECT,
    SERVICE,
)
from datum_compute.api.labels import CREATED_BY
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, project_plane
from datum_compute.app.environment import Ports
from datum_compute.app.platform import PlaneLayout, Platform
from datum_compute.app.state_credentials import Credentials
from datum_compute.client.client import Client
from datum_compute.store.journal import MemoryJournal
from testkit.sim.loop import VirtualLoop, run_virtual

FIRST, SHOP = project_plane("first"), project_plane("shop")
TOKENS = {PLATFORM: "t-platform", FIRST: "t-first", HUB: "t-hub"}
COMPUTE = Ref("", "compute")

As = Callable[[PlaneName, PlaneName], Client]


def on_a_platform(story: Callable[[As], Coroutine[Any, Any, None]]) -> None:
    """``story`` gets clients: as the holder of the first plane's token, on the second plane."""

    async def main(loop: VirtualLoop) -> None:
        ids = iter(range(1_000_000))

        def next_id() -> str:
            return f"id-{next(ids)}"

        ports = Ports(loop.time, next_id, next_id, Random(1))
        credentials = Credentials("t-manager", TOKENS)
        platform = Platform(PlaneLayout((FIRST,), {}), ports, MemoryJournal(), credentials)
        running = loop.create_task(platform.run())
        await platform.ready.wait()
        await story(lambda who, where: platform.client(where, TOKENS[who]))
        running.cancel()
        await asyncio.wait([running])

    run_virtual(Random(1), main)


def a_project(name: str = "shop", **metadata: Any) -> JsonObject:
    return {
        "apiVersion": PROJECT.api_version,
        "kind": PROJECT.kind,
        "metadata": {"name": name, **metadata},
        "spec": {"ownerRef": {"kind": "Organization", "name": "default"}},
    }


def test_who_makes_a_project_administers_it_and_nobody_else_gets_in() -> None:
    async def story(as_: As) -> None:
        forged = a_project(annotations={CREATED_BY: "admin:project/first"})
        made = await as_(PLATFORM, PLATFORM).create_plain(PROJECT, forged)
        assert made["metadata"]["annotations"][CREATED_BY] == "admin:platform"
        await asyncio.sleep(5)
        names = [n.metadata.name for n in (await as_(PLATFORM, SHOP).list(NAMESPACE)).items]
        assert {"default", "milo-system"} <= set(names)
        with pytest.raises(Forbidden):
            await as_(FIRST, SHOP).list(NAMESPACE)
        with pytest.raises(Forbidden):
            await as_(PLATFORM, FIRST).list(NAMESPACE)
        with pytest.raises(Forbidden):
            await as_(PLATFORM, SHOP).delete(CLUSTER_ROLE_BINDING, Ref("", "manager"))

    on_a_platform(story)


def test_users_of_a_project_see_the_catalogue_and_nothing_else_of_the_platform() -> None:
    async def story(as_: As) -> None:
        found = (await as_(FIRST, PLATFORM).list(SERVICE)).items
        assert [service.metadata.name for service in found] == ["compute"]
        hidden: tuple[KindInfo[Any], ...] = (PROJECT, ORGANIZATION, CONSUMER)
        for kind in hidden:
            with pytest.raises(Forbidden):
                await as_(FIRST, PLATFORM).list(kind)
        with pytest.raises(Forbidden):
            await as_(FIRST, PLATFORM).create_plain(PROJECT, a_project())
        with pytest.raises(Forbidden):
            await as_(FIRST, PLATFORM).delete(SERVICE, COMPUTE)
        with pytest.raises(Forbidden):
            await as_(HUB, PLATFORM).list(SERVICE)

    on_a_platform(story)


def test_a_project_asks_for_access_and_does_not_decide_on_it() -> None:
    async def story(as_: As) -> None:
        first = as_(FIRST, FIRST)
        version = (await first.get(ENTITLEMENT, COMPUTE)).metadata.resource_version
        with pytest.raises(Forbidden):
            await first.patch_status(ENTITLEMENT, COMPUTE, {"phase": "Active"}, version=version)
        consumer = (await as_(PLATFORM, PLATFORM).list(CONSUMER)).items[0]
        ref = Ref("", consumer.metadata.name)
        approval = {"spec": {"approval": {"decision": "Approved"}}}
        with pytest.raises(Forbidden):
            await as_(FIRST, PLATFORM).patch(CONSUMER, ref, approval)
        assert await as_(PLATFORM, PLATFORM).patch(CONSUMER, ref, approval)
        await first.delete(ENTITLEMENT, COMPUTE)
        await asyncio.sleep(5)
        with pytest.raises(NotFound):
            await first.get(ENTITLEMENT, COMPUTE)

    on_a_platform(story)
