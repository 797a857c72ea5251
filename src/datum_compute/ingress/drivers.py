"""Drivers for machines behind the proxy: report the last wake, drain before removal."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.planes import PlaneName
from datum_compute.drivers.driver import (
    NO_DATA,
    Driver,
    DriverError,
    MachineData,
    NotObserved,
    Observation,
)
from datum_compute.ingress.activations import WakeHistory


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


@dataclass(frozen=True, slots=True)
class DrainingDriver:
    """Removes a machine when its connections have ended, at the latest after ``DRAIN_TIMEOUT_S``.

    ``drain`` stops new connections and returns the number of open ones. While connections are open,
    ``remove`` is a no-op: the controllers repeat the call until the machine is gone.
    """

    inner: Driver
    drain: Callable[[str], int]
    now_s: Callable[[], float]
    drain_started_s: dict[str, float] = field(default_factory=dict)

    @property
    def is_simulated(self) -> bool:
        return self.inner.is_simulated

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        await self.inner.start(machine_id, spec, data)

    async def remove(self, machine_id: str) -> None:
        remaining = self.drain(machine_id)
        started_s = self.drain_started_s.setdefault(machine_id, self.now_s())
        if remaining and self.now_s() - started_s < DRAIN_TIMEOUT_S:
            return
        await self.inner.remove(machine_id)

    async def observe(self, machine_id: str) -> Observation:
        state = await self.inner.observe(machine_id)
        if state is None:
            self.drain_started_s.pop(machine_id, None)
        return state

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

    def changes(self) -> AsyncIterator[str]:
        return self.inner.changes()


def wrap_drivers(
    drivers: Mapping[PlaneName, Driver],
    drain: Callable[[str], int],
    history: WakeHistory,
    elapsed_s: Callable[[], float],
) -> dict[PlaneName, Driver]:
    """Return the drivers that the controllers use: with draining and with the last wake."""
    wrapped = {
        cell: ReportingDriver(DrainingDriver(driver, drain, elapsed_s), history)
        for cell, driver in drivers.items()
    }

    def notify(cell: PlaneName, machine_id: str) -> None:
        wrapped[cell].change_queue.put_nowait(machine_id)

    history.on_change = notify
    return dict(wrapped)
