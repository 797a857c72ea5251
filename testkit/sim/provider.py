"""The provider of a cell: machines that outlive all processes, and an API that may be wrong.

The table of machines is the ground truth. What the API reports can differ: a machine is accepted
and never runs, is reported as removed and still runs, or runs twice (F33).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Literal

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.drivers.driver import (
    NO_DATA,
    MachineData,
    Observation,
    TransientError,
    missing_observation,
)
from datum_compute.drivers.simulated.behaviors import SimulatedMachine, machine_state
from datum_compute.drivers.simulated.driver import (
    MachineTable,
    SimulatedDriver,
    no_adoption_delay_s,
)

_ADOPTION_S = (0.0, 0.5, 3.0, 40.0)


def ignore_removal(_machine_id: str) -> None:
    """Ignore the removal. This is the default."""


Lie = Literal["never-there", "still-alive", "there-twice"]


def adoption_times(random: Random) -> Callable[[], float]:
    """Return a function that draws how long an adopted machine stays unobserved: mostly a moment,
    sometimes longer than a recorded state stays valid."""

    def draw_s() -> float:
        longest_s = random.choice(_ADOPTION_S)
        return random.uniform(0.0, longest_s)

    return draw_s


@dataclass(slots=True)
class Provider:
    """All machines of one cell. It uses the true time, whatever the clocks of hosts show."""

    now: Callable[[], float]
    boot_s: float = 0.2
    stop_s: float = 0.1
    remove_s: float = 0.0  # delay before the removal begins
    # Called for each machine that a new process adopts; returns the delay of its first observation.
    adoption_s: Callable[[], float] = no_adoption_delay_s
    observed_from_s: float = 0.0  # by then every adopted machine has been observed
    machines: MachineTable = field(default_factory=MachineTable)
    lie: Lie | None = None
    away: int = 0  # number of active faults that make the API unreachable
    hidden: dict[str, None] = field(default_factory=dict)
    lied_about: dict[str, None] = field(default_factory=dict)
    correct_since_s: float = 0.0
    overlaps: list[str] = field(default_factory=list)  # machines that were woken twice concurrently
    # Machines that served when a fault killed them, until one with the same id serves.
    killed: dict[str, None] = field(default_factory=dict)
    on_remove: Callable[[str], None] = ignore_removal  # called before a machine is removed

    def alive(self) -> dict[str, SimulatedMachine]:
        """Return the machines that run or start, whatever the API reports."""
        now = self.now()
        return {
            machine_id: machine
            for machine_id, machine in self.machines.items()
            if machine.gone_from_s is None or machine.gone_from_s > now
        }

    def kill(self, machine_id: str) -> None:
        """Stop a machine without a report."""
        if self.serves(machine_id):
            self.killed[machine_id] = None
        self.machines.pop(machine_id)

    def machine_of(self, slot: str) -> str:
        """Return the machine of a slot (namespace/name) that is not being removed, or the empty
        string."""
        found = [
            machine_id
            for machine_id in self.machines.list_ids(f"{slot}/")
            if self.machines[machine_id].gone_from_s is None
        ]
        return found[0] if found else ""

    def serves(self, machine_id: str, for_s: float = 0.0) -> bool:
        """Return True if the machine serves requests now, and did ``for_s`` ago."""
        machine = self.machines.get(machine_id)
        if machine is None or machine.gone_from_s is not None:
            return False
        now_s = self.now()
        if now_s - for_s < machine.runs_from_s:
            return False
        states = (machine_state(machine, now_s), machine_state(machine, now_s - for_s))
        up = all(s.phase == "Sleeping" or (s.phase == "Running" and not s.reason) for s in states)
        if up:
            self.killed.pop(machine_id, None)
        return up

    def served_recently(self, machine_id: str, within_s: float) -> bool:
        """Return True if the machine serves requests now, or did ``within_s`` ago."""
        machine = self.machines.get(machine_id)
        if machine is None or machine.gone_from_s is not None:
            return False
        before = machine_state(machine, self.now() - within_s)
        served = before.phase == "Sleeping" or (before.phase == "Running" and not before.reason)
        return served or self.serves(machine_id)

    def served_for_s(self, machine_id: str) -> float:
        """Return how long it has been serving requests; 0 if it does not."""
        if not self.serves(machine_id):
            return 0.0
        started_at = machine_state(self.machines[machine_id], self.now()).started_at
        return self.now() - parse_timestamp(started_at) if started_at else 0.0

    def report_correctly(self) -> None:
        self.lie = None
        self.hidden.clear()
        self.correct_since_s = self.now()

    def _draw_adoption_s(self) -> float:
        delay_s = self.adoption_s()
        self.observed_from_s = max(self.observed_from_s, self.now() + delay_s)
        return delay_s

    def driver(self) -> ProviderDriver:
        """Return the driver for one process of a host."""
        driver = SimulatedDriver(
            self.machines,
            now=self.now,
            boot_s=self.boot_s,
            stop_s=self.stop_s,
            adoption_s=self._draw_adoption_s,
        )
        return ProviderDriver(self, driver)


@dataclass(frozen=True, slots=True)
class ProviderDriver:
    provider: Provider
    inner: SimulatedDriver
    waking: dict[str, None] = field(default_factory=dict)  # by this process
    # Machines whose observation failed, and since when.
    unanswered_since_s: dict[str, float] = field(default_factory=dict)

    @property
    def is_simulated(self) -> bool:
        return self.inner.is_simulated

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        self._answer()
        known = machine_id in self.provider.machines
        if self.provider.lie == "never-there" and not known:
            self.provider.lied_about[machine_id] = None
            return
        await self.inner.start(machine_id, spec, data)
        if self.provider.lie == "there-twice" and not known:
            namespace, name, uid = machine_id.split("/")
            duplicate = f"{namespace}/{name}/twin-of-{uid}"
            self.provider.lied_about[duplicate] = None
            await self.inner.start(duplicate, spec, data)

    async def remove(self, machine_id: str) -> None:
        self._answer()
        if self.provider.lie == "still-alive" and machine_id in self.provider.machines:
            self.provider.hidden[machine_id] = None
            self.provider.lied_about[machine_id] = None
            return
        if self.provider.remove_s:
            await asyncio.sleep(self.provider.remove_s)
        self.provider.on_remove(machine_id)
        await self.inner.remove(machine_id)

    async def observe(self, machine_id: str) -> Observation:
        if self.provider.away:
            now_s = self.provider.now()
            since_s = self.unanswered_since_s.setdefault(machine_id, now_s)
            return missing_observation(now_s - since_s, "the engine does not respond")
        self.unanswered_since_s.pop(machine_id, None)
        if machine_id in self.provider.hidden:
            return None
        return await self.inner.observe(machine_id)

    async def machines(self, name: str = "") -> list[str]:
        self._answer()
        found = await self.inner.machines(name)
        return [machine_id for machine_id in found if machine_id not in self.provider.hidden]

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        self._answer()
        await self.inner.sleep(machine_id, mode)

    async def wake(self, machine_id: str) -> float:
        self._answer()
        if machine_id in self.waking:
            self.provider.overlaps.append(machine_id)
        self.waking[machine_id] = None
        try:
            return await self.inner.wake(machine_id)
        finally:
            self.waking.pop(machine_id, None)

    async def suspend(self, machine_id: str) -> None:
        self._answer()
        await self.inner.suspend(machine_id)

    async def resume(self, machine_id: str) -> None:
        self._answer()
        await self.inner.resume(machine_id)

    def changes(self) -> AsyncIterator[str]:
        return self.inner.changes()

    def _answer(self) -> None:
        if self.provider.away:
            raise TransientError("the engine does not respond")
