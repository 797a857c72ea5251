"""Instance types of the platform: their status, and their copies on projects and cells."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.api.conditions import find_condition
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PLATFORM, cell_plane, project_plane
from datum_compute.client.client import Client
from datum_compute.controllers.platform.instance_types import (
    COPY_CONTROLLER,
    INSTANCE_TYPE_CONTROLLER,
)
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.planning.platform.test_instance_types import a_type
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

CELL, PROJECT = cell_plane("dfw"), project_plane("shop")


async def move_to(platform: Client, name: str, phase: str) -> None:
    """Set the phase of the type. Its replacement is the type ``new``."""
    lifecycle = {"phase": phase, "replacementInstanceType": "new"}
    await platform.patch(INSTANCE_TYPE, Ref("", name), {"spec": {"lifecycle": lifecycle}})


def test_a_deprecated_type_is_ready_once_its_replacement_exists() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        platform = await planes.create(PLATFORM)
        await platform.create(INSTANCE_TYPE, as_new(a_type("old")))
        await move_to(platform, "old", "Deprecated")
        reasons = []
        async with running(INSTANCE_TYPE_CONTROLLER, loop, planes, PLATFORM):
            for name in ("new", "unrelated"):
                await asyncio.sleep(5)
                found = await platform.get(INSTANCE_TYPE, Ref("", "old"))
                ready = find_condition(found.status.conditions, "Ready")
                reasons.append(ready.reason if ready is not None else "")
                await platform.create(INSTANCE_TYPE, as_new(a_type(name)))
        return reasons

    assert with_planes(test) == ["ReplacementNotFound", "Valid"]


def test_an_edited_copy_is_restored_and_that_of_a_project_is_deleted_with_its_original() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform, project = await planes.create(PLATFORM), await planes.create(PROJECT)
        cell = await planes.create(CELL)
        await platform.create(INSTANCE_TYPE, as_new(a_type("custom")))
        custom = Ref("", "custom")
        async with running(COPY_CONTROLLER, loop, planes, PLATFORM, PROJECT, CELL):
            await asyncio.sleep(5)
            for plane in (project, cell):
                await plane.patch(INSTANCE_TYPE, custom, {"spec": {"displayName": "edited"}})
            await asyncio.sleep(5)
            assert (await project.get(INSTANCE_TYPE, custom)).spec.display_name == ""
            assert (await cell.get(INSTANCE_TYPE, custom)).spec.display_name == ""
            for phase in ("Deprecated", "Disabled"):
                await move_to(platform, "custom", phase)
                await asyncio.sleep(5)
            await platform.delete(INSTANCE_TYPE, custom)
            await asyncio.sleep(5)
            assert (await project.list(INSTANCE_TYPE)).items == []
            assert (await cell.list(INSTANCE_TYPE)).items, "instances of the cell may use it"

    with_planes(test)


@pytest.mark.parametrize("phase_of_copy", ["Active", "Deprecated"])
def test_a_copy_is_deleted_when_its_original_was_disabled_and_deleted_during_an_outage(
    phase_of_copy: str,
) -> None:
    """The platform has no other types, so admission decides by the phase of the copy."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform, project = await planes.create(PLATFORM), await planes.create(PROJECT)
        await platform.create(INSTANCE_TYPE, as_new(a_type("custom")))
        custom = Ref("", "custom")
        async with running(COPY_CONTROLLER, loop, planes, PLATFORM, PROJECT):
            await asyncio.sleep(5)
            if phase_of_copy == "Deprecated":
                await move_to(platform, "custom", "Deprecated")
                await asyncio.sleep(5)
        copy = await project.get(INSTANCE_TYPE, custom)
        assert copy.spec.lifecycle.phase == phase_of_copy
        for phase in ("Deprecated", "Disabled"):
            await move_to(platform, "custom", phase)
        await platform.delete(INSTANCE_TYPE, custom)
        async with running(COPY_CONTROLLER, loop, planes, PLATFORM, PROJECT):
            await asyncio.sleep(5)
            assert (await project.list(INSTANCE_TYPE)).items == []

    with_planes(test)
