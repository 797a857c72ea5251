"""A project that is deleted leaves nothing behind: it is drained first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from datum_compute.api.conditions import find_condition
from datum_compute.api.errors import AlreadyExists, ApiError
from datum_compute.api.kinds import (
    CONSUMER,
    DEPLOYMENT,
    INSTANCE,
    NAMESPACE,
    NETWORK,
    ORGANIZATION,
    PROJECT,
    SERVER,
    WORK,
    WORKLOAD,
)
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, cell_plane, project_plane
from testkit.sim.actors.users import Wanted, manifest
from tests.app.running_platform import (
    FIRST,
    Running,
    create_project,
    is_gone,
    on_a_platform,
    request_access,
    until,
)

CELL = cell_plane("dfw")
ADDED = project_plane("added")
REF = Ref("", "added")
WEB = manifest(("added", "web"), Wanted("web:1", 2, ("DFW",)))


def with_a_workload(test: Callable[[Running], Coroutine[Any, Any, None]]) -> None:
    """A project that was added, with two machines that run; the first project has one."""

    async def main(running: Running) -> None:
        await create_project(running, "added")
        await request_access(running, ADDED)
        await running.client(ADDED).create_plain(WORKLOAD, WEB)
        other = manifest(("first", "web"), Wanted("web:1", 1, ("DFW",)))
        await running.client(FIRST).create_plain(WORKLOAD, other)
        await asyncio.sleep(10)
        assert len(running.machines[CELL]) == 3
        await test(running)

    on_a_platform(main, CELL, stop_s=3.0)


async def delete(running: Running) -> None:
    await running.client(PLATFORM).delete(PROJECT, REF)


async def gone(running: Running) -> None:
    await until(lambda: is_gone(running.client(PLATFORM), PROJECT, REF))


async def nothing_is_left(running: Running) -> None:
    """Of the project; the other one has what it had."""
    places: tuple[tuple[PlaneName, KindInfo[Any]], ...] = (
        (HUB, DEPLOYMENT),
        (HUB, INSTANCE),
        (CELL, INSTANCE),
        (CELL, SERVER),
    )
    for plane, kind in places:
        assert len((await running.client(plane).list(kind)).items) == 1, f"{kind.kind} on {plane}"
    works = (await running.client(HUB).list(WORK)).items
    assert not [work for work in works if work.is_terminating]
    assert len(running.machines[CELL]) == 1
    consumers = (await running.client(PLATFORM).list(CONSUMER)).items
    assert [c.spec.consumer_project_ref.name for c in consumers] == ["first"]
    assert (await running.client(FIRST).get(WORKLOAD, Ref("default", "web"))).metadata.uid


def test_a_project_is_gone_only_when_its_machines_are_and_says_what_it_waits_for() -> None:
    async def story(running: Running) -> None:
        await delete(running)
        await asyncio.sleep(2)
        project = await running.client(PLATFORM).get(PROJECT, REF)
        cleanup = find_condition(project.status.conditions, "ResourceCleanup")
        ready = find_condition(project.status.conditions, "Ready")
        assert cleanup is not None
        assert ready is not None
        assert (cleanup.status, cleanup.reason) == ("False", "ResourcesRemaining")
        assert "Workload" in cleanup.message
        assert (ready.status, ready.reason) == ("False", "Deleting")
        held = (await running.client(ADDED).list(WORKLOAD)).items
        assert [workload.is_terminating for workload in held] == [True]
        await gone(running)
        with pytest.raises(ApiError, match="no plane"):
            await running.client(ADDED).list(NAMESPACE)
        await nothing_is_left(running)

    with_a_workload(story)


def test_no_workload_comes_into_a_project_that_is_being_deleted() -> None:
    async def story(running: Running) -> None:
        await delete(running)
        await asyncio.sleep(1)
        late = manifest(("added", "late"), Wanted("web:1", 1, ("DFW",)))
        with pytest.raises(ApiError, match="is ending"):
            await running.client(ADDED).create_plain(WORKLOAD, late)
        await gone(running)
        await nothing_is_left(running)

    with_a_workload(story)


def test_a_deletion_goes_on_after_a_restart() -> None:
    async def story(running: Running) -> None:
        await delete(running)
        await asyncio.sleep(1)
        await running.stop()
        await running.start()
        assert (await running.client(ADDED).list(NAMESPACE)).items
        await gone(running)
        await nothing_is_left(running)

    with_a_workload(story)


def test_a_project_of_the_same_name_is_a_new_one() -> None:
    async def story(running: Running) -> None:
        before = await running.client(ADDED).get(NAMESPACE, Ref("", "default"))
        await delete(running)
        with pytest.raises(AlreadyExists):
            await create_project(running, "added")
        await gone(running)
        await create_project(running, "added")
        added = running.client(ADDED)
        after = await added.get(NAMESPACE, Ref("", "default"))
        assert after.metadata.uid != before.metadata.uid
        assert (await added.list(WORKLOAD)).items == []
        with pytest.raises(ApiError, match="it was not requested"):
            await added.create_plain(WORKLOAD, WEB)
        await request_access(running, ADDED)
        await added.create_plain(WORKLOAD, WEB)
        await asyncio.sleep(10)
        assert len(running.machines[CELL]) == 3

    with_a_workload(story)


def test_a_project_goes_with_its_organization() -> None:
    async def story(running: Running) -> None:
        assert await running.client(ADDED).get(NETWORK, Ref("default", "default"))
        await running.client(PLATFORM).delete(ORGANIZATION, Ref("", "default"))
        await gone(running)
        await asyncio.sleep(40)
        assert (await running.client(PLATFORM).list(PROJECT)).items == []
        names = [n.metadata.name for n in (await running.client(PLATFORM).list(NAMESPACE)).items]
        assert "organization-default" not in names
        assert not running.machines[CELL]

    with_a_workload(story)
