"""The simulated driver, for demos, tests and scale: states change with time, no process runs.

- Booting and stopping take the configured time, 0 by default; ``behaviors.py`` has the exceptions.
- The caller owns and saves the table of machines, so that machines outlive the process: in a file
  on a real host, in memory in a simulation.
- Machines that are in the table at the start are adopted. Each is observed for the first time after
  its adoption delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Callable,
    Iterator,
    Mapping,
    MutableMapping,
)

import msgspec

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec, machine_fingerprint
from datum_compute.drivers.driver import (
    NO_DATA,
    MachineData,
    MachineState,
    Observation,
    TransientError,
    missing_observation,
)
from datum_compute.drivers.keyed_locks import KeyedLocks
from datum_compute.drivers.simulated.behaviors import (
    ADDRESSES_MAX,
    SimulatedMachine,
    behavior_of,
    machine_state,
    next_change_s,
    wake_machine,
)


class MachineTable(MutableMapping[str, SimulatedMachine]):
    """A dict of machines by id, with an index by Server."""

    def __init__(self, machines: Mapping[str, SimulatedMachine] | None = None) -> None:
        self._machines: dict[str, SimulatedMachine] = {}
        self._ids_by_server: dict[str, dict[str, None]] = {}
        self.update(machines or {})

    def list_ids(self, server_prefix: str) -> list[str]:
        """Return the ids of the machines of a Server, given as ``namespace/name/``."""
        return sorted(self._ids_by_server.get(server_prefix, ()))

    def __getitem__(self, machine_id: str) -> SimulatedMachine:
        return self._machines[machine_id]

    def __setitem__(self, machine_id: str, machine: SimulatedMachine) -> None:
        self._machines[machine_id] = machine
        self._ids_by_server.setdefault(_server_prefix(machine_id), {})[machine_id] = None

    def __delitem__(self, machine_id: str) -> None:
        del self._machines[machine_id]
        ids = self._ids_by_server[_server_prefix(machine_id)]
        del ids[machine_id]
        if not ids:
            del self._ids_by_server[_server_prefix(machine_id)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._machines)

    def __len__(self) -> int:
        return len(self._machines)


def _server_prefix(machine_id: str) -> str:
    return machine_id[: machine_id.rfind("/") + 1]


def no_adoption_delay_s() -> float:
    """Return the default time until an adopted machine is observed."""
    return 0.0


class SimulatedDriver:
    """``adoption_s`` returns the adoption delay of a machine.

    It is called once for each machine of the table, in the order of their ids.
    """

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
        self._used_numbers = {machine.number for machine in table.values()}
        self._last_number = max(self._used_numbers, default=-1)
        self._pending_changes: asyncio.Queue[str] = asyncio.Queue()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._locks = KeyedLocks()
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
        # Not announced: the caller observes the machine next.
        self._store(machine_id, wake_machine(machine, machine.runs_from_s))
        self._schedule_announcement(machine_id)

    async def remove(self, machine_id: str) -> None:
        machine = self._table.get(machine_id)
        if machine is not None and machine.gone_from_s is None:
            gone_from_s = self._now() + self._stop_s_of(machine)
            self._store_and_announce(
                machine_id, msgspec.structs.replace(machine, gone_from_s=gone_from_s)
            )

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
        """Return the current state, whether or not the driver has observed the machine."""
        machine = self._table.get(machine_id)
        if machine is None:
            self._observed_from_s.pop(machine_id, None)
            return None
        if machine.gone_from_s is not None and machine.gone_from_s <= self._now():
            del self._table[machine_id]
            self._observed_from_s.pop(machine_id, None)
            self._used_numbers.discard(machine.number)
            self._save()
            return None
        state = machine_state(machine, self._now())
        return msgspec.structs.replace(state, spec_fingerprint=machine.spec_fingerprint)

    async def machines(self, name: str = "") -> list[str]:
        return self._table.list_ids(name) if name else sorted(self._table)

    async def changes(self) -> AsyncIterator[str]:
        # Machines of an earlier process continue to change.
        for machine_id in sorted(self._table):
            self._schedule_announcement(machine_id)
        loop = asyncio.get_running_loop()
        for machine_id, observed_from_s in self._observed_from_s.items():
            delay_s = max(0.0, observed_from_s - self._now())
            loop.call_later(delay_s, self._pending_changes.put_nowait, machine_id)
        while True:
            yield await self._pending_changes.get()

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        """Put the machine to sleep. Pausing takes no time, stopping as long as a removal."""
        async with self._locks.hold(machine_id):
            if mode == "stop":
                await asyncio.sleep(self._stop_s_of(self._table.get(machine_id)))
            state = self._state(machine_id)
            if state is None or state.phase != "Running" or state.reason:
                return
            machine = self._table[machine_id]
            if machine.gone_from_s is None:
                now_s = self._now()
                asleep = msgspec.structs.replace(machine, asleep_from_s=now_s, sleep_mode=mode)
                self._store_and_announce(machine_id, asleep)

    async def wake(self, machine_id: str) -> float:
        """Wake the machine. A paused one runs immediately, a stopped one boots."""
        async with self._locks.hold(machine_id):
            state = self._state(machine_id)
            if state is None:
                raise TransientError(f"there is no machine {machine_id}")
            if state.is_suspended:
                raise TransientError(f"machine {machine_id} is suspended")
            if state.phase != "Sleeping":
                return 0.0
            duration_s = self._boot_s if self._table[machine_id].sleep_mode == "stop" else 0.0
            await asyncio.sleep(duration_s)
            machine = self._table.get(machine_id)
            if machine is None or machine.gone_from_s is not None:
                raise TransientError(f"machine {machine_id} is being removed")
            self._store_and_announce(machine_id, wake_machine(machine, self._now()))
            return duration_s

    async def suspend(self, machine_id: str) -> None:
        async with self._locks.hold(machine_id):
            machine = self._table.get(machine_id)
            if machine is None or machine.gone_from_s is not None:
                return
            if machine.suspended_from_s is None:
                stopped_from_s = self._now() + self._stop_s_of(machine)
                stopped = msgspec.structs.replace(machine, suspended_from_s=stopped_from_s)
                self._store_and_announce(machine_id, stopped)

    async def resume(self, machine_id: str) -> None:
        """Boot the machine. One that is still stopping boots when it is stopped."""
        async with self._locks.hold(machine_id):
            machine = self._table.get(machine_id)
            if machine is None or machine.suspended_from_s is None:
                return
            behavior = behavior_of(machine.image)
            boot_s = self._boot_s if behavior.boot_s is None else behavior.boot_s
            runs_from_s = max(self._now(), machine.suspended_from_s) + boot_s
            resumed = msgspec.structs.replace(
                machine, suspended_from_s=None, runs_from_s=runs_from_s
            )
            self._store_and_announce(machine_id, wake_machine(resumed, runs_from_s))

    def _stop_s_of(self, machine: SimulatedMachine | None) -> float:
        stop_s = behavior_of(machine.image).stop_s if machine is not None else None
        return self._stop_s if stop_s is None else stop_s

    def _store_and_announce(self, machine_id: str, machine: SimulatedMachine) -> None:
        self._store(machine_id, machine)
        self._announce(machine_id)

    def _store(self, machine_id: str, machine: SimulatedMachine) -> None:
        self._table[machine_id] = machine
        self._used_numbers.add(machine.number)
        self._save()

    def _announce(self, machine_id: str) -> None:
        self._pending_changes.put_nowait(machine_id)
        self._schedule_announcement(machine_id)

    def _schedule_announcement(self, machine_id: str) -> None:
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
        """Return the next free number, not the lowest, so that addresses are not reused soon."""
        if len(self._used_numbers) >= ADDRESSES_MAX:
            raise TransientError(f"all {ADDRESSES_MAX} addresses are in use")
        number = (self._last_number + 1) % ADDRESSES_MAX
        while number in self._used_numbers:
            number = (number + 1) % ADDRESSES_MAX
        self._last_number = number
        return number
