"""A driver that also tells of each machine how it was woken the last time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field, replace

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
from datum_compute.ingress.activations import WakeBook


@dataclass(frozen=True, slots=True)
class ReportingDriver:
    inner: Driver
    book: WakeBook
    news: asyncio.Queue[str | DriverError] = field(default_factory=asyncio.Queue)

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
            self.book.forget(machine_id)
            return None
        if isinstance(state, NotObserved):
            return state
        wake = self.book.last.get(machine_id)
        return state if wake is None else replace(state, last_wake=wake)

    async def machines(self, name: str = "") -> list[str]:
        return await self.inner.machines(name)

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        await self.inner.sleep(machine_id, mode)

    async def wake(self, machine_id: str) -> float:
        return await self.inner.wake(machine_id)

    async def changes(self) -> AsyncIterator[str]:
        """Of the machines themselves, and of the book."""
        listening = asyncio.create_task(self._listen())
        try:
            while True:
                news = await self.news.get()
                if isinstance(news, DriverError):
                    raise news
                yield news
        finally:
            listening.cancel()

    async def _listen(self) -> None:
        try:
            async for machine_id in self.inner.changes():
                self.news.put_nowait(machine_id)
        except DriverError as error:
            self.news.put_nowait(error)


# --- A driver that lets the connections of a machine end before the machine is stopped


DRAIN_S = 10.0


@dataclass(frozen=True, slots=True)
class DrainingDriver:
    """``take_out`` ends the balance and says how many connections are left. Removal is asked for
    again and again by the controllers, so a machine that still has some is simply left for now."""

    inner: Driver
    take_out: Callable[[str], int]
    now_s: Callable[[], float]
    since_s: dict[str, float] = field(default_factory=dict)

    @property
    def is_simulated(self) -> bool:
        return self.inner.is_simulated

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        await self.inner.start(machine_id, spec, data)

    async def remove(self, machine_id: str) -> None:
        left = self.take_out(machine_id)
        since_s = self.since_s.setdefault(machine_id, self.now_s())
        if left and self.now_s() - since_s < DRAIN_S:
            return
        await self.inner.remove(machine_id)

    async def observe(self, machine_id: str) -> Observation:
        state = await self.inner.observe(machine_id)
        if state is None:
            self.since_s.pop(machine_id, None)
        return state

    async def machines(self, name: str = "") -> list[str]:
        return await self.inner.machines(name)

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        await self.inner.sleep(machine_id, mode)

    async def wake(self, machine_id: str) -> float:
        return await self.inner.wake(machine_id)

    def changes(self) -> AsyncIterator[str]:
        return self.inner.changes()


# --- The drivers of a process as its controllers see them, with traffic in front of their machines


def with_traffic(
    drivers: Mapping[PlaneName, Driver],
    take_out: Callable[[str], int],
    book: WakeBook,
    elapsed_s: Callable[[], float],
) -> dict[PlaneName, Driver]:
    """Machines are drained before they go, and say how they were woken."""
    wrapped = {
        cell: ReportingDriver(DrainingDriver(driver, take_out, elapsed_s), book)
        for cell, driver in drivers.items()
    }
    book.announce = lambda cell, machine_id: wrapped[cell].news.put_nowait(machine_id)
    return dict(wrapped)
