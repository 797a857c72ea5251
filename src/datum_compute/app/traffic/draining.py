"""A driver that lets the connections of a machine end before the machine is stopped."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec
from datum_compute.drivers.driver import NO_DATA, Driver, MachineData, Observation

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
