"""The machines behind the ports of the ingress: their connections and whether they are awake.

The ingress reports the connections of each machine to its cell. The idle scaler of the cell decides
when a machine sleeps, and calls the driver. It first requests a confirmation that the machine is
idle. From then on the machine counts as asleep, and a connection has to wake it.

While the process of the cell does not run, sleeping machines are unavailable. All others are
assumed to be awake.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Coroutine, Iterable
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Any

from datum_compute.api.planes import PlaneName
from datum_compute.api.traffic import Backend, CellUnavailable, Rank, WakeFailed, WakeTimes
from datum_compute.ingress.protocol import (
    ActivityReport,
    CheckReady,
    ControlLink,
    LinkClosed,
    OpenConnections,
    ReadyChecked,
    WakeEnded,
    WakeMachine,
    Woken,
)

# How long after a cell process has disconnected, for example for an upgrade, connections that need
# it are kept waiting.
CELL_GRACE_S = 2.0
# Changes of connections within this time are reported together.
REPORT_AFTER_S = 0.02
# For this long after a wake or the start of a sleep, the state in published backends is ignored: it
# may be older than this change.
REPORTS_IGNORED_S = 10.0
# The idle timer of the cell may end this much too early, because of the resolution of its clock.
IDLE_TOLERANCE_S = 0.02


class CellLinks:
    """The connections to the processes of the cells."""

    def __init__(self, elapsed_s: Callable[[], float]) -> None:
        self._elapsed_s = elapsed_s
        self._links: dict[PlaneName, ControlLink] = {}
        self._changed = asyncio.Event()
        self._started_s = elapsed_s()
        self._disconnected_s: dict[PlaneName, float] = {}
        self._successor: ControlLink | None = None

    def add(self, cells: Iterable[PlaneName], link: ControlLink) -> None:
        for cell in cells:
            self._links[cell] = link
        self._notify()

    def remove(self, link: ControlLink) -> None:
        for cell in [cell for cell, found in self._links.items() if found is link]:
            del self._links[cell]
            self._disconnected_s[cell] = self._elapsed_s()
        if self._successor is link:
            self._successor = None

    def use_successor(self, link: ControlLink) -> None:
        """Send all requests to the ingress that has replaced this one."""
        self._links.clear()
        self._successor = link
        self._notify()

    def find(self, cell: PlaneName) -> ControlLink | None:
        return self._successor or self._links.get(cell)

    async def wait_for(self, cell: PlaneName) -> ControlLink:
        """Return the link to the process of the cell, and wait for it if it was disconnected.

        Raises CellUnavailable ``CELL_GRACE_S`` after the process was disconnected.
        """
        deadline_s = self._disconnected_s.get(cell, self._started_s) + CELL_GRACE_S
        while (link := self.find(cell)) is None:
            changed, remaining_s = self._changed, deadline_s - self._elapsed_s()
            if remaining_s <= 0:
                raise CellUnavailable(f"the process of {cell} does not run")
            try:
                async with asyncio.timeout(remaining_s):
                    await changed.wait()
            except TimeoutError:
                continue
        return link

    def _notify(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class WakeState(Enum):
    AWAKE = auto()  # it was woken and has refused no connection since
    UNKNOWN = auto()  # published as running, but not confirmed by a wake
    ASLEEP = auto()


@dataclass(slots=True)
class _SleepableMachine:
    """A machine whose policy allows that it sleeps."""

    backend: Backend
    hold_s: float
    state: WakeState
    changed_s: float
    wake_task: asyncio.Task[WakeTimes | None] | None = None


class MachinePool:
    """The machines behind published ports, with their connections.

    ``on_change`` is called when a machine was put to sleep or woken.
    """

    def __init__(
        self, links: CellLinks, elapsed_s: Callable[[], float], on_change: Callable[[], None]
    ) -> None:
        self._links = links
        self._elapsed_s = elapsed_s
        self._on_change = on_change
        self._machines: dict[str, _SleepableMachine] = {}
        self._connections: dict[str, int] = {}
        # Connections that a predecessor still serves.
        self._inherited: dict[ControlLink, dict[str, int]] = {}
        self._idle_since_s: dict[str, float] = {}
        self._unreported: set[str] = set()
        self._report_timer: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    # --- machines

    def track(self, backends: Iterable[Backend]) -> None:
        """Add the machines that may sleep, and update their policy and published state.

        The idle time of a new machine starts now.
        """
        for backend in backends:
            if backend.sleep is None:
                self._machines.pop(backend.machine_id, None)
                continue
            machine = self._machines.get(backend.machine_id)
            if machine is None:
                machine = self._machines[backend.machine_id] = _SleepableMachine(
                    backend,
                    backend.sleep.hold_s,
                    WakeState.ASLEEP if backend.asleep else WakeState.UNKNOWN,
                    self._elapsed_s() - REPORTS_IGNORED_S,
                )
                self._idle_since_s.setdefault(backend.machine_id, self._elapsed_s())
            machine.backend, machine.hold_s = backend, backend.sleep.hold_s
            if self._elapsed_s() - machine.changed_s >= REPORTS_IGNORED_S:
                if backend.asleep:
                    machine.state = WakeState.ASLEEP
                elif machine.state is WakeState.ASLEEP:
                    machine.state = WakeState.UNKNOWN

    def keep_only(self, machine_ids: Iterable[str]) -> None:
        """Remove all other machines, except those that are being woken."""
        kept = frozenset(machine_ids)
        for machine_id in [m for m in self._machines if m not in kept]:
            if self._machines[machine_id].wake_task is None:
                del self._machines[machine_id]
        for machine_id in [m for m in self._idle_since_s if m not in kept]:
            del self._idle_since_s[machine_id]

    def observe(self, backend: Backend) -> Backend:
        """Return the backend with the current state of its machine."""
        machine = self._machines.get(backend.machine_id)
        if machine is None:
            return backend
        return replace(backend, asleep=machine.state is WakeState.ASLEEP)

    async def close(self) -> None:
        if self._report_timer is not None:
            self._report_timer.cancel()
        wakes = (machine.wake_task for machine in self._machines.values())
        tasks = [*self._tasks, *(task for task in wakes if task is not None)]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- connections

    def connections(self, machine_id: str) -> int:
        """Return the number of connections, also of a machine that never sleeps."""
        inherited = sum(counts.get(machine_id, 0) for counts in self._inherited.values())
        return self._connections.get(machine_id, 0) + inherited

    def add_connection(self, machine_id: str) -> None:
        self._connections[machine_id] = self._connections.get(machine_id, 0) + 1
        self._schedule_report(machine_id)

    def remove_connection(self, machine_id: str) -> None:
        remaining = self._connections.pop(machine_id) - 1
        if remaining:
            self._connections[machine_id] = remaining
        self._idle_since_s[machine_id] = self._elapsed_s()
        self._schedule_report(machine_id)

    def set_inherited(self, predecessor: ControlLink, counts: dict[str, int]) -> None:
        """Replace the counts of the connections that a predecessor serves, by machine."""
        affected = {*self._inherited.pop(predecessor, {}), *counts}
        if counts:
            self._inherited[predecessor] = counts
        for machine_id in affected:
            self._idle_since_s[machine_id] = self._elapsed_s()
            self._schedule_report(machine_id)

    def report_for_cells(self, cells: Collection[PlaneName]) -> ActivityReport:
        """Return the connections of all machines of the cells that may sleep."""
        return ActivityReport(
            {
                machine_id: self._activity(machine_id)
                for machine_id, machine in self._machines.items()
                if machine.backend.cell in cells
            }
        )

    def report_for_successor(self) -> ActivityReport:
        """Return the connections of all machines, including those that never sleep."""
        counts = {machine_id: self.connections(machine_id) for machine_id in self._connected_ids()}
        return ActivityReport(
            {
                machine_id: OpenConnections(found, 0.0)
                for machine_id, found in counts.items()
                if found
            }
        )

    def confirm_idle(self, machine_id: str, idle_s: float) -> bool:
        """Mark a machine as asleep and return True, if it has been idle for ``idle_s``."""
        machine = self._machines.get(machine_id)
        if self.connections(machine_id):
            return False
        if machine is None:
            return True  # no published port leads to it
        idle_since_s = self._idle_since_s.get(machine_id, float("-inf"))
        if machine.wake_task or self._elapsed_s() - idle_since_s < idle_s - IDLE_TOLERANCE_S:
            self._schedule_report(machine_id)
            return False
        self._set_state(machine, WakeState.ASLEEP)
        return True

    def _connected_ids(self) -> set[str]:
        """Return the machines that have connections, here or in a predecessor."""
        inherited = (machine_id for counts in self._inherited.values() for machine_id in counts)
        return {*self._connections, *inherited}

    def _activity(self, machine_id: str) -> OpenConnections:
        idle_since_s = self._idle_since_s.get(machine_id, 0.0)
        return OpenConnections(self.connections(machine_id), idle_since_s)

    def _schedule_report(self, machine_id: str) -> None:
        if machine_id not in self._machines:
            return
        self._unreported.add(machine_id)
        if self._report_timer is None:
            loop = asyncio.get_running_loop()
            self._report_timer = loop.call_later(REPORT_AFTER_S, self._send_report)

    def _send_report(self) -> None:
        self._report_timer = None
        by_link: dict[ControlLink, dict[str, OpenConnections]] = {}
        for machine_id in self._unreported:
            machine = self._machines.get(machine_id)
            link = None if machine is None else self._links.find(machine.backend.cell)
            if link is not None:
                by_link.setdefault(link, {})[machine_id] = self._activity(machine_id)
        self._unreported.clear()
        for link, machines in by_link.items():
            link.send(ActivityReport(machines))

    # --- sleep and wake

    def rank(self, machine_id: str) -> Rank:
        machine = self._machines.get(machine_id)
        if machine is None or machine.state is WakeState.AWAKE:
            return Rank.AWAKE
        if machine.wake_task is not None:
            return Rank.WAKING
        return Rank.ASLEEP if machine.state is WakeState.ASLEEP else Rank.AWAKE

    def is_awake(self, machine_id: str) -> bool:
        """Return True if a connection can be sent without a request to the cell.

        Without a cell process, a machine that is published as running is assumed to be awake.
        """
        machine = self._machines.get(machine_id)
        if machine is None or machine.state is WakeState.AWAKE:
            return True
        is_unconfirmed = machine.state is WakeState.UNKNOWN
        return is_unconfirmed and self._links.find(machine.backend.cell) is None

    def hold_s(self, machine_ids: Iterable[str]) -> float:
        """Return the longest time that a connection may wait for one of the machines."""
        found = (self._machines.get(machine_id) for machine_id in machine_ids)
        return max((m.hold_s for m in found if m is not None), default=0.0)

    async def ensure_awake(self, machine_id: str, arrived_s: float) -> WakeTimes | None:
        """Wake the machine unless it is awake. Only the caller that starts the wake gets its times.

        Raises WakeFailed.
        """
        machine = self._machines.get(machine_id)
        if machine is None or self.is_awake(machine_id):
            return None
        if machine.wake_task is None:
            machine.wake_task = asyncio.create_task(self._wake(machine, arrived_s))
            machine.wake_task.add_done_callback(_retrieve_exception)
            return await asyncio.shield(machine.wake_task)
        await asyncio.shield(machine.wake_task)
        return None

    def wake_in_background(self, machine_id: str) -> None:
        machine = self._machines.get(machine_id)
        if machine is not None and machine.wake_task is None and not self.is_awake(machine_id):
            self._start_task(self._wake_unattended(machine_id))

    def record_refusal(self, machine_id: str) -> None:
        """Record that the machine did not accept a connection: its state is unknown again."""
        machine = self._machines.get(machine_id)
        if machine is not None and machine.state is WakeState.AWAKE:
            machine.state = WakeState.UNKNOWN

    async def is_ready(self, cell: PlaneName, machine_id: str) -> bool:
        """Return True if a woken machine is ready, or if its cell process cannot be reached.

        In the second case the attempt to connect decides. Raises WakeFailed if the machine will not
        become ready.
        """
        link = self._links.find(cell)
        if link is None:
            return True
        try:
            reply = await link.request(lambda number: CheckReady(number, cell, machine_id))
        except (LinkClosed, TimeoutError):
            return True
        assert isinstance(reply, ReadyChecked)
        if reply.failure:
            raise WakeFailed(reply.failure)
        return reply.is_ready

    async def _wake(self, machine: _SleepableMachine, arrived_s: float) -> WakeTimes | None:
        """Wake a machine, in a task of its own that outlives the connection that needs it."""
        backend = machine.backend
        try:
            async with asyncio.timeout(machine.hold_s):
                link = await self._links.wait_for(backend.cell)
                reply = await link.request(
                    lambda number: WakeMachine(number, backend, arrived_s), machine.hold_s
                )
        except LinkClosed:
            raise WakeFailed("the process of the cell ended while it woke the instance") from None
        except TimeoutError:
            raise WakeFailed(f"the instance was not ready within {machine.hold_s:g} s") from None
        finally:
            machine.wake_task = None
        assert isinstance(reply, Woken)
        if reply.failure:
            raise WakeFailed(reply.failure)
        self._set_state(machine, WakeState.AWAKE)
        return reply.times

    async def _wake_unattended(self, machine_id: str) -> None:
        """Wake a machine without a connection that waits for it."""
        self.add_connection(machine_id)
        try:
            times = await self.ensure_awake(machine_id, self._elapsed_s())
            if times is not None:
                self.finish(times)
        except WakeFailed:
            return  # the cell has recorded the failure
        finally:
            self.remove_connection(machine_id)

    def _set_state(self, machine: _SleepableMachine, state: WakeState) -> None:
        has_changed = machine.state is not state
        machine.state, machine.changed_s = state, self._elapsed_s()
        if has_changed:
            self._on_change()

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- results of wakes, which the cell records

    def finish(self, times: WakeTimes) -> None:
        if times.is_pending:
            self._report_result(times, "")

    def record_failure(self, times: WakeTimes, reason: str) -> None:
        if times.is_pending:
            self._report_result(times, reason)

    def _report_result(self, times: WakeTimes, failure: str) -> None:
        times.is_pending = False
        link = self._links.find(times.cell)
        if link is not None:
            link.send(WakeEnded(replace(times, is_pending=True), failure))


def _retrieve_exception(task: asyncio.Task[WakeTimes | None]) -> None:
    """Prevent a log entry of asyncio if all connections that waited for the wake are closed."""
    if not task.cancelled():
        task.exception()
