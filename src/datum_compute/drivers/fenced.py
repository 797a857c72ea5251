"""A driver that changes nothing while somebody else may be leading."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass

from datum_compute.api.scaletozero import SleepMode
from datum_compute.api.server import ServerSpec
from datum_compute.drivers.driver import Driver, Observation
from datum_compute.drivers.machinedata import NO_DATA, MachineData


@dataclass(frozen=True, slots=True)
class FencedDriver:
    """``check`` raises when machines are not ours to touch."""

    inner: Driver
    check: Callable[[], None]

    @property
    def is_simulated(self) -> bool:
        return self.inner.is_simulated

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        self.check()
        await self.inner.start(machine_id, spec, data)

    async def remove(self, machine_id: str) -> None:
        self.check()
        await self.inner.remove(machine_id)

    async def observe(self, machine_id: str) -> Observation:
        return await self.inner.observe(machine_id)

    async def machines(self, name: str = "") -> list[str]:
        return await self.inner.machines(name)

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        self.check()
        await self.inner.sleep(machine_id, mode)

    async def wake(self, machine_id: str) -> float:
        self.check()
        return await self.inner.wake(machine_id)

    def changes(self) -> AsyncIterator[str]:
        return self.inner.changes()
