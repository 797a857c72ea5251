"""Machines that exist only on paper: for demos, tests and scale.

They start and stop after a delay and outlive the process that asked for them, because the table
of machines belongs to whoever made the driver: a file on a real host, a dict in a simulation.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import msgspec

from datum_compute.api.codec import ApiStruct
from datum_compute.api.server import ServerSpec
from datum_compute.api.timestamps import timestamp
from datum_compute.drivers.driver import MachineState

START_S = 0.2
STOP_S = 0.1


class Machine(ApiStruct, frozen=True, kw_only=True):
    """One line of the table; the times are unix seconds at which the machine gets there."""

    number: int
    image: str
    runs_from_s: float
    addresses: list[str] = []
    gone_from_s: float | None = None


class SimulatedDriver:
    def __init__(
        self,
        table: dict[str, Machine],
        *,
        now: Callable[[], float],
        save: Callable[[], None] = lambda: None,
    ) -> None:
        self._table = table
        self._now = now
        self._save = save
        self._news: asyncio.Queue[str] = asyncio.Queue()

    async def start(self, machine_id: str, spec: ServerSpec) -> None:
        if machine_id not in self._table:
            machine = Machine(
                number=_free_number(self._table),
                image=spec.containers[0].image,
                runs_from_s=self._now() + START_S,
                addresses=[a.address for i in spec.interfaces for a in i.addresses],
            )
            self._write(machine_id, machine, START_S)

    async def remove(self, machine_id: str) -> None:
        machine = self._table.get(machine_id)
        if machine is not None and machine.gone_from_s is None:
            leaving = msgspec.structs.replace(machine, gone_from_s=self._now() + STOP_S)
            self._write(machine_id, leaving, STOP_S)

    async def observe(self, machine_id: str) -> MachineState | None:
        machine = self._table.get(machine_id)
        if machine is None:
            return None
        if machine.gone_from_s is not None and machine.gone_from_s <= self._now():
            del self._table[machine_id]
            self._save()
            return None
        return _state(machine, self._now())

    async def machines(self) -> list[str]:
        return sorted(self._table)

    async def changes(self) -> AsyncIterator[str]:
        while True:
            yield await self._news.get()

    def _write(self, machine_id: str, machine: Machine, settles_in_s: float) -> None:
        self._table[machine_id] = machine
        self._save()
        asyncio.get_running_loop().call_later(settles_in_s, self._news.put_nowait, machine_id)


def _state(machine: Machine, now_s: float) -> MachineState:
    if machine.runs_from_s > now_s:
        return MachineState("Pending", reason="Starting", message="the machine is starting")
    return MachineState(
        "Running",
        started_at=timestamp(machine.runs_from_s),
        addresses=tuple(machine.addresses) or (_own_address(machine.number),),
    )


def _own_address(number: int) -> str:
    """Of a machine that was given none."""
    return f"10.64.{number // 250}.{number % 250 + 1}"


def _free_number(table: dict[str, Machine]) -> int:
    taken = {machine.number for machine in table.values()}
    return next(number for number in range(len(taken) + 1) if number not in taken)
