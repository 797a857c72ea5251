"""Wrappers of the drivers of machines with published ports: last wake, drain before a stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from msgspec.structs import replace

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.conditions import Reason
from datum_compute.api.planes import PlaneName
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.driver import (
    NO_DATA,
    Driver,
    DriverError,
    MachineData,
    MachineState,
    NotObserved,
    Observation,
)


@dataclass(frozen=True, slots=True)
class ReportingDriver:
    """Adds the last wake of a machine to its observed state."""

    inner: Driver
    history: WakeHistory
    change_queue: asyncio.Queue[str | DriverError] = field(default_factory=asyncio.Queue)

    @property
    def is_simulated(self) -> bool:
        return self.inner.is_simulated

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        await self.inner.start(machine_id, spec, data)

    async def remove(self, machine_id: str) -> None:
        await self.inner.remove(machine_id)

    async def observe(self, machine_id: str) -> Observation:
        state = await self.inner.observe(machine_id)
        if state is None:
            self.history.remove(machine_id)
            return None
        if isinstance(state, NotObserved):
            return state
        wake = self.history.last.get(machine_id)
        return state if wake is None else replace(state, last_wake=wake)

    async def machines(self, name: str = "") -> list[str]:
        return await self.inner.machines(name)

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        await self.inner.sleep(machine_id, mode)

    async def wake(self, machine_id: str) -> float:
        return await self.inner.wake(machine_id)

    async def suspend(self, machine_id: str) -> None:
        await self.inner.suspend(machine_id)

    async def resume(self, machine_id: str) -> None:
        await self.inner.resume(machine_id)

    async def changes(self) -> AsyncIterator[str]:
        """Yield the machines that changed, and those whose last wake changed."""
        forwarding = asyncio.create_task(self._forward_changes())
        try:
            while True:
                change = await self.change_queue.get()
                if isinstance(change, DriverError):
                    raise change
                yield change
        finally:
            forwarding.cancel()

    async def _forward_changes(self) -> None:
        try:
            async for machine_id in self.inner.changes():
                self.change_queue.put_nowait(machine_id)
        except DriverError as error:
            self.change_queue.put_nowait(error)


DRAIN_TIMEOUT_S = 10.0


class Drainable(Protocol):
    """Sends connections to machines: the ingress, or the load balancer of the same process."""

    async def drain(self, machine_id: str) -> int: ...

    def end_drain(self, machine_id: str) -> None: ...


@dataclass(frozen=True, slots=True)
class DrainingDriver:
    """Removes or suspends a machine when its connections have ended.

    ``drain`` stops new connections and returns the number of open ones; ``end_drain`` reverts it.
    While connections are open, for at most ``DRAIN_TIMEOUT_S``, ``remove`` and ``suspend`` do not
    call the engine: the controllers repeat the call until the machine is gone or stopped.
    """

    inner: Driver
    drain: Callable[[str], Awaitable[int]]
    end_drain: Callable[[str], None]
    now_s: Callable[[], float]
    drain_started_s: dict[str, float] = field(default_factory=dict)
    # Machines whose suspension is requested and not yet passed to the engine.
    suspending: set[str] = field(default_factory=set)

    @property
    def is_simulated(self) -> bool:
        return self.inner.is_simulated

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        self.end_drain(machine_id)
        await self.inner.start(machine_id, spec, data)

    async def remove(self, machine_id: str) -> None:
        if await self._is_drained(machine_id):
            await self.inner.remove(machine_id)

    async def observe(self, machine_id: str) -> Observation:
        state = await self.inner.observe(machine_id)
        if state is None:
            self.drain_started_s.pop(machine_id, None)
            self.suspending.discard(machine_id)
        elif isinstance(state, MachineState) and machine_id in self.suspending:
            return replace(
                state,
                phase="Stopped",
                reason=Reason.STOPPING,
                message="waiting for open connections",
                is_suspended=True,
            )
        return state

    async def machines(self, name: str = "") -> list[str]:
        return await self.inner.machines(name)

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        await self.inner.sleep(machine_id, mode)

    async def wake(self, machine_id: str) -> float:
        return await self.inner.wake(machine_id)

    async def suspend(self, machine_id: str) -> None:
        self.suspending.add(machine_id)
        if await self._is_drained(machine_id):
            await self.inner.suspend(machine_id)
            self.suspending.discard(machine_id)

    async def resume(self, machine_id: str) -> None:
        await self.inner.resume(machine_id)
        self.suspending.discard(machine_id)
        self.drain_started_s.pop(machine_id, None)
        self.end_drain(machine_id)

    def changes(self) -> AsyncIterator[str]:
        return self.inner.changes()

    async def _is_drained(self, machine_id: str) -> bool:
        """Stop new connections. Return True if none is open, or the drain timeout has passed."""
        remaining = await self.drain(machine_id)
        started_s = self.drain_started_s.setdefault(machine_id, self.now_s())
        return not remaining or self.now_s() - started_s >= DRAIN_TIMEOUT_S


def wrap_drivers(
    drivers: Mapping[PlaneName, Driver],
    connections: Drainable,
    history: WakeHistory,
    elapsed_s: Callable[[], float],
) -> dict[PlaneName, Driver]:
    """Return the drivers that the controllers use: they drain machines and report the last wake."""
    wrapped = {
        cell: ReportingDriver(
            DrainingDriver(driver, connections.drain, connections.end_drain, elapsed_s), history
        )
        for cell, driver in drivers.items()
    }

    def notify(cell: PlaneName, machine_id: str) -> None:
        wrapped[cell].change_queue.put_nowait(machine_id)

    history.on_change = notify
    return dict(wrapped)
