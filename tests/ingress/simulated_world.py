"""World: simulated machines that can sleep, and connections without sockets, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from datum_compute.api.compute.scale_to_zero import SleepMode, Wake
from datum_compute.api.planes import cell_plane
from datum_compute.api.traffic import Backend, SleepPolicy
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.connections.idle_scaler import IdleScaler
from datum_compute.drivers.driver import FencedDriver, MachineState, NotObserved
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.ingress.balancer import BackendConnection, LoadBalancer, PublishedPort
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
        self.calls: list[str] = []  # one item per call of the driver to sleep or wake
        self.accepts = True  # whether machines accept connections
        self.start_process()

    def start_process(self) -> None:
        """Replace the process by a new one without state."""
        self.history = WakeHistory(self.loop.time, self.loop.time)
        watched = FencedDriver(self.driver, lambda: self.calls.append("called"))
        self.idle_scaler = IdleScaler({CELL: watched}, self.loop.time, self.history)
        self.balancer = LoadBalancer(self.idle_scaler, self.history, self._connect, self.loop.time)
        self.port = PublishedPort()

    def adopt(self, adoption_s: float) -> None:
        """Start a process whose driver has not observed the running machines yet."""
        self.driver = SimulatedDriver(
            self.table, now=self.loop.time, stop_s=STOP_S, adoption_s=lambda: adoption_s
        )
        self.start_process()

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
        self.balancer.set_backends(self.port, backends)

    async def is_asleep(self, machine_id: str) -> bool:
        state = await self.driver.observe(machine_id)
        return isinstance(state, MachineState) and state.phase == "Sleeping"

    async def which_sleep(self) -> list[bool]:
        return [await self.is_asleep(machine_id) for machine_id in self.ids]

    async def visit(self, stays_s: float = 0.0) -> str:
        """Connect and stay connected. Return the machine, or an empty string if none accepts."""
        opened = await self.balancer.connect(self.port)
        if opened is None:
            return ""
        return await self._stay_connected(opened, stays_s)

    async def _stay_connected(self, opened: BackendConnection[str], stays_s: float) -> str:
        self.balancer.record_first_byte(opened)
        for _ in range(10):
            assert not await self.is_asleep(opened.machine_id), "put to sleep during a connection"
            await asyncio.sleep(stays_s / 10)
        self.balancer.release(opened)
        return opened.machine_id

    async def _connect(self, backend: Backend) -> str | None:
        state = await self.driver.observe(backend.machine_id)
        # An adopted machine runs, whether its driver has observed it or not.
        runs = isinstance(state, NotObserved) or (
            isinstance(state, MachineState) and state.phase == "Running"
        )
        return backend.machine_id if runs and self.accepts else None

    @property
    def wakes(self) -> list[Wake]:
        return list(self.history.last.values())


def run_in_world(
    story: Callable[[World], Awaitable[T]],
    mode: SleepMode = "stop",
    machines: int = 1,
    seed: int = 1,
) -> T:
    async def main(loop: VirtualLoop) -> T:
        world = World(loop, mode, machines)
        await world.start()
        found = await story(world)
        await world.idle_scaler.close()
        return found

    return run_virtual(Random(seed), main)
