"""A platform with one project and the cells that a test names, in virtual time, over a disk that
outlives it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from random import Random
from typing import Any

from datum_compute.api.plane import PlaneName, path_prefix, project_plane
from datum_compute.app.credentials import Credentials
from datum_compute.app.ports import Ports
from datum_compute.app.wiring import BOOTSTRAP, Layout, Platform
from datum_compute.client.client import Client
from datum_compute.client.inprocess import InProcessTransport
from datum_compute.drivers.machinetable import MachineTable
from datum_compute.drivers.simulated import SimulatedDriver
from datum_compute.store.memory import MemoryJournal
from datum_compute.testing.virtual_loop import VirtualLoop, run_virtual

FIRST = project_plane("first")


class Running:
    """One platform over a disk; started as often as a test likes."""

    def __init__(self, loop: VirtualLoop) -> None:
        self.loop = loop
        self.disk = MemoryJournal()
        self.ids = 0
        self.machines: dict[PlaneName, MachineTable] = {}
        self.platform: Platform
        self.task: asyncio.Task[None]

    async def start(self) -> None:
        ports = Ports(self.loop.time, self.next_id, self.next_id, Random(1))
        credentials = Credentials("token", {})
        drivers = {
            cell: SimulatedDriver(table, now=self.loop.time)
            for cell, table in self.machines.items()
        }
        self.platform = Platform(Layout((FIRST,), drivers), ports, self.disk, credentials)
        await self.platform.load()
        self.task = self.loop.create_task(self.platform.run())
        await self.platform.ready.wait()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    def client(self, plane: PlaneName) -> Client:
        """As somebody who may do everything: these tests are not about rights."""
        transport = InProcessTransport(partial(self.platform.server.dispatch_as, BOOTSTRAP))
        return Client(transport, prefix=path_prefix(plane), token="", agent="test")

    def next_id(self) -> str:
        self.ids += 1
        return f"id-{self.ids}"


def on_a_platform(test: Callable[[Running], Coroutine[Any, Any, None]], *cells: PlaneName) -> None:
    async def main(loop: VirtualLoop) -> None:
        running = Running(loop)
        running.machines = {cell: MachineTable() for cell in cells}
        await running.start()
        await test(running)
        await running.stop()

    run_virtual(Random(1), main)
