"""A project whose plane is revoked leaves nothing behind: it is drained first."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

import pytest

from datum_compute.api.errors import ApiError
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, NAMESPACE, SERVER, WORK, WORKLOAD
from datum_compute.api.meta import KindInfo
from datum_compute.api.plane import HUB, PlaneName, cell_plane, path_prefix, project_plane
from datum_compute.app.credentials import Credentials
from datum_compute.app.ports import Ports
from datum_compute.app.wiring import BOOTSTRAP, Layout, Platform
from datum_compute.client.client import Client
from datum_compute.client.inprocess import InProcessTransport
from datum_compute.drivers.machinetable import MachineTable
from datum_compute.drivers.simulated import SimulatedDriver
from datum_compute.store.memory import MemoryJournal
from datum_compute.testing.people import Wanted, manifest
from datum_compute.testing.virtual_loop import VirtualLoop, run_virtual

CELL = cell_plane("dfw")
ADDED = project_plane("added")
WEB = manifest(("added", "web"), Wanted("web:1", 2, ("DFW",)))


class Running:
    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.disk = MemoryJournal()
        self.machines = MachineTable()
        self._ids = 0
        self.platform: Platform
        self.task: asyncio.Task[None]

    async def start(self) -> None:
        ports = Ports(self.loop.time, self._id, self._id, Random(1))
        driver = SimulatedDriver(self.machines, now=self.loop.time, stop_s=3.0)
        layout = Layout((project_plane("first"),), {CELL: driver})
        self.platform = Platform(layout, ports, self.disk, Credentials("token", {}))
        await self.platform.load()
        self.task = self.loop.create_task(self.platform.run())
        await self.platform.ready.wait()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    def client(self, plane: PlaneName) -> Client:
        transport = InProcessTransport(partial(self.platform.server.dispatch_as, BOOTSTRAP))
        return Client(transport, prefix=path_prefix(plane), token="", agent="test")

    def _id(self) -> str:
        self._ids += 1
        return f"id-{self._ids}"


def with_a_workload(test: Callable[[Running], Coroutine[Any, Any, None]]) -> None:
    """A project that was added, with two machines that run."""

    async def main(loop: VirtualLoop) -> None:
        running = Running(loop)
        await running.start()
        await running.platform.add_plane(ADDED)
        await running.client(ADDED).create_plain(WORKLOAD, WEB)
        await asyncio.sleep(10)
        assert len(running.machines) == 2
        await test(running)
        await running.stop()

    run_virtual(Random(1), main)


async def nothing_is_left(running: Running) -> None:
    places: tuple[tuple[PlaneName, KindInfo[Any]], ...] = (
        (HUB, DEPLOYMENT),
        (HUB, INSTANCE),
        (CELL, INSTANCE),
        (CELL, SERVER),
    )
    for plane, kind in places:
        assert (await running.client(plane).list(kind)).items == []
    works = (await running.client(HUB).list(WORK)).items
    assert not [work for work in works if work.is_terminating]
    assert not running.machines


def test_a_plane_is_gone_only_when_its_machines_are() -> None:
    async def story(running: Running) -> None:
        removing = running.loop.create_task(running.platform.remove_plane(ADDED))
        await asyncio.sleep(2)
        assert not removing.done()
        held = (await running.client(ADDED).list(WORKLOAD)).items
        assert [workload.is_terminating for workload in held] == [True]
        await removing
        with pytest.raises(ApiError, match="no plane"):
            await running.client(ADDED).list(NAMESPACE)
        await nothing_is_left(running)

    with_a_workload(story)


def test_what_comes_while_a_plane_is_drained_goes_as_well() -> None:
    async def story(running: Running) -> None:
        removing = running.loop.create_task(running.platform.remove_plane(ADDED))
        await asyncio.sleep(1)
        late = manifest(("added", "late"), Wanted("web:1", 1, ("DFW",)))
        await running.client(ADDED).create_plain(WORKLOAD, late)
        await removing
        await nothing_is_left(running)

    with_a_workload(story)


def test_a_plane_that_was_being_drained_is_there_after_a_restart_and_can_be_removed() -> None:
    async def story(running: Running) -> None:
        removing = running.loop.create_task(running.platform.remove_plane(ADDED))
        await asyncio.sleep(1)
        await running.stop()
        removing.cancel()
        await asyncio.wait([removing])
        await running.start()
        assert (await running.client(ADDED).list(NAMESPACE)).items
        await running.platform.remove_plane(ADDED)
        await nothing_is_left(running)

    with_a_workload(story)


def test_whoever_gives_up_waiting_keeps_the_plane() -> None:
    async def story(running: Running) -> None:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await running.platform.remove_plane(ADDED)
        assert (await running.client(ADDED).list(NAMESPACE)).items

    with_a_workload(story)
