"""Simulated machines that sleep, and connections to them without sockets, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from datum_compute.api.compute.scale_to_zero import SleepMode, Wake
from datum_compute.api.planes import cell_plane
from datum_compute.drivers.driver import FencedDriver, MachineState, NotObserved
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.drivers.traffic import Backend, SleepPolicy
from datum_compute.ingress.activations import WakeBook
from datum_compute.ingress.balancer import Balance, Port, Reached
from datum_compute.ingress.idle_scaler import IdleScaler
from testkit.conformance.driver import SPEC
from testkit.sim.loop import VirtualLoop, run_virtual

T = TypeVar("T")
CELL = cell_plane("dfw")
IDLE_S, BOOT_S, STOP_S = 30.0, 0.2, 0.1


class World:
    def __init__(self, loop: VirtualLoop, mode: SleepMode, machines: int) -> None:
        self.loop = loop
        self.mode = mode
        self.table = MachineTable()
        self.driver = SimulatedDriver(self.table, now=loop.time, boot_s=BOOT_S, stop_s=STOP_S)
        self.ids = [f"ns/web-{number}/1" for number in range(machines)]
        self.calls: list[str] = []  # one for each sleep or wake that the driver is asked for
        self.answers = True  # whether machines accept connections
        self.port = Port()
        self.begin()

    def begin(self) -> None:
        """A process that knows nothing of what was before."""
        self.book = WakeBook(self.loop.time, self.loop.time)
        watched = FencedDriver(self.driver, lambda: self.calls.append("asked"))
        self.sleepers = IdleScaler({CELL: watched}, self.loop.time, self.book)
        self.balance = Balance(self.sleepers, self.book, self._connect, self.loop.time)
        self.port = Port()

    def adopt(self, adoption_s: float) -> None:
        """A new process whose driver has not observed the machines yet; they accept connections."""
        self.driver = SimulatedDriver(
            self.table, now=self.loop.time, stop_s=STOP_S, adoption_s=lambda: adoption_s
        )
        self.begin()

    async def start(self) -> None:
        for machine_id in self.ids:
            await self.driver.start(machine_id, SPEC)
        await asyncio.sleep(BOOT_S)
        await self.publish()

    async def publish(self) -> None:
        policy = SleepPolicy(IDLE_S, self.mode, 10.0)
        backends = [
            Backend(CELL, machine_id, "10.0.0.1", 80, policy, await self.is_asleep(machine_id))
            for machine_id in self.ids
        ]
        self.balance.set_backends(self.port, backends)

    async def is_asleep(self, machine_id: str) -> bool:
        state = await self.driver.observe(machine_id)
        return isinstance(state, MachineState) and state.phase == "Sleeping"

    async def asleep(self) -> list[bool]:
        return [await self.is_asleep(machine_id) for machine_id in self.ids]

    async def visit(self, stays_s: float = 0.0) -> str:
        """The machine that took the connection; empty if nobody did."""
        reached = await self.balance.reach(self.port)
        if reached is None:
            return ""
        return await self._stay(reached, stays_s)

    async def _stay(self, reached: Reached[str], stays_s: float) -> str:
        self.balance.answered(reached)
        for _ in range(10):
            assert not await self.is_asleep(reached.machine_id), "put to sleep under a connection"
            await asyncio.sleep(stays_s / 10)
        self.balance.release(reached)
        return reached.machine_id

    async def _connect(self, backend: Backend) -> str | None:
        state = await self.driver.observe(backend.machine_id)
        # An adopted machine runs, whether its driver has observed it or not.
        runs = isinstance(state, NotObserved) or (
            isinstance(state, MachineState) and state.phase == "Running"
        )
        return backend.machine_id if runs and self.answers else None

    @property
    def wakes(self) -> list[Wake]:
        return list(self.book.last.values())


def in_world(
    story: Callable[[World], Awaitable[T]],
    mode: SleepMode = "stop",
    machines: int = 1,
    seed: int = 1,
) -> T:
    async def main(loop: VirtualLoop) -> T:
        world = World(loop, mode, machines)
        await world.start()
        found = await story(world)
        await world.sleepers.close()
        return found

    return run_virtual(Random(seed), main)
