"""A project is drained before it is deleted, and leaves no objects behind."""

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
from testkit.sim.actors.users import DesiredWorkload, manifest
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
WEB = manifest(("added", "web"), DesiredWorkload("web:1", 2, ("DFW",)))


def run_with_workloads(test: Callable[[Running], Coroutine[Any, Any, None]]) -> None:
    """Run a test in a project with two running machines; the first project has one."""

    async def main(running: Running) -> None:
        await create_project(running, "added")
        await request_access(running, ADDED)
        await running.client(ADDED).create_plain(WORKLOAD, WEB)
        other = manifest(("first", "web"), DesiredWorkload("web:1", 1, ("DFW",)))
        await running.client(FIRST).create_plain(WORKLOAD, other)
        await asyncio.sleep(10)
        assert len(running.machines[CELL]) == 3
        await test(running)

    on_a_platform(main, CELL, stop_s=3.0)


async def start_deletion(running: Running) -> None:
    await running.client(PLATFORM).delete(PROJECT, REF)


async def wait_until_deleted(running: Running) -> None:
    await until(lambda: is_gone(running.client(PLATFORM), PROJECT, REF))


async def check_objects_are_deleted(running: Running) -> None:
    """The deleted project has no objects left; those of the other project are unchanged."""
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


def test_a_project_is_deleted_after_its_machines_and_shows_what_it_waits_for() -> None:
    async def story(running: Running) -> None:
        await start_deletion(running)
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
        await wait_until_deleted(running)
        with pytest.raises(ApiError, match="no plane"):
            await running.client(ADDED).list(NAMESPACE)
        await check_objects_are_deleted(running)

    run_with_workloads(story)


def test_no_workload_can_be_created_in_a_project_that_is_being_deleted() -> None:
    async def story(running: Running) -> None:
        await start_deletion(running)
        await asyncio.sleep(1)
        late = manifest(("added", "late"), DesiredWorkload("web:1", 1, ("DFW",)))
        with pytest.raises(ApiError, match="is ending"):
            await running.client(ADDED).create_plain(WORKLOAD, late)
        await wait_until_deleted(running)
        await check_objects_are_deleted(running)

    run_with_workloads(story)


def test_a_deletion_continues_after_a_restart() -> None:
    async def story(running: Running) -> None:
        await start_deletion(running)
        await asyncio.sleep(1)
        await running.stop()
        await running.start()
        assert (await running.client(ADDED).list(NAMESPACE)).items
        await wait_until_deleted(running)
        await check_objects_are_deleted(running)

    run_with_workloads(story)


def test_a_new_project_of_the_same_name_starts_empty() -> None:
    async def story(running: Running) -> None:
        before = await running.client(ADDED).get(NAMESPACE, Ref("", "default"))
        await start_deletion(running)
        with pytest.raises(AlreadyExists):
            await create_project(running, "added")
        await wait_until_deleted(running)
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

    run_with_workloads(story)


def test_deleting_an_organization_deletes_its_projects() -> None:
    async def story(running: Running) -> None:
        assert await running.client(ADDED).get(NETWORK, Ref("default", "default"))
        await running.client(PLATFORM).delete(ORGANIZATION, Ref("", "default"))
        await wait_until_deleted(running)
        await asyncio.sleep(40)
        assert (await running.client(PLATFORM).list(PROJECT)).items == []
        names = [n.metadata.name for n in (await running.client(PLATFORM).list(NAMESPACE)).items]
        assert "organization-default" not in names
        assert not running.machines[CELL]

    run_with_workloads(story)
