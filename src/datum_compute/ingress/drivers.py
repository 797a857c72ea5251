"""A driver that also tells of each machine how it was woken the last time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec
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
