"""Machines that exist only on paper: for demos, tests and scale.

They take as long to boot and to stop as the driver is told (no time at all by default), behave as
their image says (``behaviors.py``), and outlive the process that asked for them, because the table
of machines belongs to whoever made the driver: a file on a real host, a dict in a simulation.

Machines that are in the table when the driver is made are adopted: it takes ``adoption_s`` to
observe each of them for the first time.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    MutableMapping,
)
from contextlib import asynccontextmanager

import msgspec

from datum_compute.api.scaletozero import SleepMode
from datum_compute.api.server import ServerSpec, machine_fingerprint
from datum_compute.drivers.driver import (
    NO_DATA,
    MachineData,
    MachineState,
    Observation,
    TransientError,
    missing_observation,
)
from datum_compute.drivers.simulated.behaviors import (
    ADDRESSES,
    SimulatedMachine,
    behavior_of,
    machine_state,
    next_change_s,
    woken,
)


class MachineTable(MutableMapping[str, SimulatedMachine]):
    """A dict in every way, with one more lookup that does not scan."""

    def __init__(self, machines: Mapping[str, SimulatedMachine] | None = None) -> None:
        self._machines: dict[str, SimulatedMachine] = {}
        self._named: dict[str, dict[str, None]] = {}
        self.update(machines or {})

    def list_ids(self, name: str) -> list[str]:
        """Ids of the machines whose id is the name and one part more."""
        return sorted(self._named.get(name, ()))

    def __getitem__(self, machine_id: str) -> SimulatedMachine:
        return self._machines[machine_id]

    def __setitem__(self, machine_id: str, machine: SimulatedMachine) -> None:
        self._machines[machine_id] = machine
        self._named.setdefault(_name(machine_id), {})[machine_id] = None

    def __delitem__(self, machine_id: str) -> None:
        del self._machines[machine_id]
        named = self._named[_name(machine_id)]
        del named[machine_id]
        if not named:
            del self._named[_name(machine_id)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._machines)

    def __len__(self) -> int:
        return len(self._machines)


def _name(machine_id: str) -> str:
    return machine_id[: machine_id.rfind("/") + 1]


class KeyedLocks:
    """A lock for each machine that anybody holds or waits for, and for no other."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    @asynccontextmanager
    async def of(self, machine_id: str) -> AsyncGenerator[None, None]:
        lock, users = self._locks.get(machine_id, (asyncio.Lock(), 0))
        self._locks[machine_id] = (lock, users + 1)
        try:
            async with lock:
                yield
        finally:
            lock, users = self._locks.pop(machine_id)
            if users > 1:
                self._locks[machine_id] = (lock, users - 1)


__all__ = ["SimulatedDriver"]


def no_adoption_delay_s() -> float:
    """Return the default time until an adopted machine is observed."""
    return 0.0


class SimulatedDriver:
    """``adoption_s`` returns how long it takes to observe an adopted machine. It is called once for
    each of them, in the order of their ids."""

    is_simulated = True

    def __init__(
        self,
        table: MachineTable,
        *,
        now: Callable[[], float],
        save: Callable[[], None] = lambda: None,
        boot_s: float = 0.0,
        stop_s: float = 0.0,
        adoption_s: Callable[[], float] = no_adoption_delay_s,
    ) -> None:
        self._table = table
        self._now = now
        self._save = save
        self._boot_s = boot_s
        self._stop_s = stop_s
        self._taken = {machine.number for machine in table.values()}
        self._last_number = max(self._taken, default=-1)
        self._news: asyncio.Queue[str] = asyncio.Queue()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._turns = KeyedLocks()
        self._adopted_s = now()
        # When each adopted machine is observed for the first time; observed machines have no entry.
        self._observed_from_s = {
            machine_id: self._adopted_s + delay_s
            for machine_id in sorted(table)
            if (delay_s := adoption_s()) > 0
        }

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        if machine_id in self._table:
            return
        behavior = behavior_of(spec.containers[0].image)
        boot_s = self._boot_s if behavior.boot_s is None else behavior.boot_s
        machine = SimulatedMachine(
            number=self._free_number(),
            image=spec.containers[0].image,
            runs_from_s=self._now() + boot_s,
            addresses=[a.address for i in spec.interfaces for a in i.addresses],
            data=[f"{pin.kind}/{pin.name}@{pin.resource_version}" for pin in data.sources],
            spec_fingerprint=machine_fingerprint(spec),
        )
        # Whoever starts it looks at it next: only what it does after that is news.
        self._keep(machine_id, woken(machine, machine.runs_from_s))
        self._announce_next(machine_id)

    async def remove(self, machine_id: str) -> None:
        machine = self._table.get(machine_id)
        if machine is not None and machine.gone_from_s is None:
            gone_from_s = self._now() + self._stop_s
            self._write(machine_id, msgspec.structs.replace(machine, gone_from_s=gone_from_s))

    async def observe(self, machine_id: str) -> Observation:
        state = self._state(machine_id)
        if state is not None and self._is_unobserved(machine_id):
            unobserved_for_s = self._now() - self._adopted_s
            return missing_observation(unobserved_for_s, "the machine has not been observed")
        self._observed_from_s.pop(machine_id, None)
        return state

    def _is_unobserved(self, machine_id: str) -> bool:
        observed_from_s = self._observed_from_s.get(machine_id)
        return observed_from_s is not None and self._now() < observed_from_s

    def _state(self, machine_id: str) -> MachineState | None:
        """The machine as it is, whether or not the driver has observed it."""
        machine = self._table.get(machine_id)
        if machine is None:
            self._observed_from_s.pop(machine_id, None)
            return None
        if machine.gone_from_s is not None and machine.gone_from_s <= self._now():
            del self._table[machine_id]
            self._observed_from_s.pop(machine_id, None)
            self._taken.discard(machine.number)
            self._save()
            return None
        state = machine_state(machine, self._now())
        return dataclasses.replace(state, spec_fingerprint=machine.spec_fingerprint)

    async def machines(self, name: str = "") -> list[str]:
        return self._table.list_ids(name) if name else sorted(self._table)

    async def changes(self) -> AsyncIterator[str]:
        # What a machine does by itself goes on after a restart of this process.
        for machine_id in sorted(self._table):
            self._announce_next(machine_id)
        loop = asyncio.get_running_loop()
        for machine_id, observed_from_s in self._observed_from_s.items():
            delay_s = max(0.0, observed_from_s - self._now())
            loop.call_later(delay_s, self._news.put_nowait, machine_id)
        while True:
            yield await self._news.get()

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        """Pausing takes no time, stopping as long as a removal."""
        async with self._turns.of(machine_id):
            if mode == "stop":
                await asyncio.sleep(self._stop_s)
            state = self._state(machine_id)
            if state is None or state.phase != "Running" or state.reason:
                return
            machine = self._table[machine_id]
            if machine.gone_from_s is None:
                now_s = self._now()
                asleep = msgspec.structs.replace(machine, asleep_from_s=now_s, sleep_mode=mode)
                self._write(machine_id, asleep)

    async def wake(self, machine_id: str) -> float:
        """From a pause at once, else it boots; whoever comes meanwhile waits for that."""
        async with self._turns.of(machine_id):
            state = self._state(machine_id)
            if state is None:
                raise TransientError(f"there is no machine {machine_id}")
            if state.phase != "Sleeping":
                return 0.0
            took_s = self._boot_s if self._table[machine_id].sleep_mode == "stop" else 0.0
            await asyncio.sleep(took_s)
            machine = self._table.get(machine_id)
            if machine is None or machine.gone_from_s is not None:
                raise TransientError(f"the machine {machine_id} is about to go")
            self._write(machine_id, woken(machine, self._now()))
            return took_s

    def _write(self, machine_id: str, machine: SimulatedMachine) -> None:
        self._keep(machine_id, machine)
        self._announce(machine_id)

    def _keep(self, machine_id: str, machine: SimulatedMachine) -> None:
        self._table[machine_id] = machine
        self._taken.add(machine.number)
        self._save()

    def _announce(self, machine_id: str) -> None:
        self._news.put_nowait(machine_id)
        self._announce_next(machine_id)

    def _announce_next(self, machine_id: str) -> None:
        timer = self._timers.pop(machine_id, None)
        if timer is not None:
            timer.cancel()
        machine = self._table.get(machine_id)
        at_s = next_change_s(machine, self._now()) if machine is not None else None
        if at_s is not None:
            delay_s = max(0.0, at_s - self._now())
            loop = asyncio.get_running_loop()
            self._timers[machine_id] = loop.call_later(delay_s, self._announce, machine_id)

    def _free_number(self) -> int:
        """The next that is free, not the lowest: addresses are not used again at once."""
        if len(self._taken) >= ADDRESSES:
            raise TransientError(f"all {ADDRESSES} addresses are taken")
        number = (self._last_number + 1) % ADDRESSES
        while number in self._taken:
            number = (number + 1) % ADDRESSES
        self._last_number = number
        return number
