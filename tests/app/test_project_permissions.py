"""Permissions to create projects, to request access and to decide on requests."""

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
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.platform import PlaneLayout, Platform
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.client.client import Client
from datum_compute.store.journal import MemoryJournal
from testkit.sim.loop import VirtualLoop, run_virtual

FIRST, SHOP = project_plane("first"), project_plane("shop")
TOKENS = {PLATFORM: "t-platform", FIRST: "t-first", HUB: "t-hub"}
COMPUTE = Ref("", "compute")

As = Callable[[PlaneName, PlaneName], Client]


def run_on_platform(story: Callable[[As], Coroutine[Any, Any, None]]) -> None:
    """Run a story with a factory of clients, by the plane of the token and the plane to call."""

    async def main(loop: VirtualLoop) -> None:
        ids = iter(range(1_000_000))

        def next_id() -> str:
            return f"id-{next(ids)}"

        environment = ProcessEnvironment(loop.time, next_id, next_id, Random(1))
        credentials = PlaneTokens("t-manager", TOKENS)
        platform = Platform(PlaneLayout((FIRST,), {}), environment, MemoryJournal(), credentials)
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


def test_only_the_creator_of_a_project_is_its_administrator() -> None:
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

    run_on_platform(story)


def test_project_users_can_read_only_services_on_the_platform_plane() -> None:
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

    run_on_platform(story)


def test_a_project_can_request_access_but_not_approve_it() -> None:
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

    run_on_platform(story)
