"""Idle scaler: puts idle machines to sleep, and wakes a machine that a connection needs.

Rules:
- A machine that has a connection, open or waiting, is not put to sleep.
- A machine is not put to sleep and woken at the same time. Concurrent connections share one wake.
- A connection that arrives while its machine is put to sleep waits, and then wakes the machine.
- A machine is woken unless it is known to be awake. Waking a running machine is a no-op.

The module uses no sockets. If the load balancer runs in the same process, as in the simulator, it
adds and removes connections. If the ingress is a separate process, it reports the number of
connections of each machine. It also confirms that a machine is idle before the machine sleeps, and
from then on requests a wake before it sends a connection.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any

from datum_compute.api.planes import PlaneName
from datum_compute.api.traffic import Backend, Rank, SleepPolicy, WakeFailed, WakeTimes
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.driver import Driver, DriverError, MachineState, NotObserved

# First and longest interval between checks whether a woken machine is ready. It doubles each time.
READY_POLL_S, READY_POLL_MAX_S = 0.002, 0.1
# Time limit for a call of the engine, in addition to the hold time.
ENGINE_TIMEOUT_S = 30.0
# For this long after the scaler has changed a machine, the state in published backends is ignored:
# it may be older than this change.
REPORTS_IGNORED_S = 10.0

_log = logging.getLogger(__name__)


class ActivityState(Enum):
    AWAKE = auto()  # the last wake succeeded, or a connection was accepted since
    UNKNOWN = auto()  # published as running, but not confirmed by a wake
    ASLEEP = auto()


@dataclass(slots=True)
class _TrackedMachine:
    machine_id: str
    cell: PlaneName
    policy: SleepPolicy
    state: ActivityState
    changed_s: float  # when the scaler last put it to sleep or woke it
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    wake_task: asyncio.Task[WakeTimes] | None = None
    idle_timer: asyncio.TimerHandle | None = None


class IdleScaler:
    """Puts idle machines to sleep and wakes them.

    ``confirm_idle`` is called with a machine and its idle time before the machine sleeps. It
    returns False if the machine must not sleep. Without it, the number of connections decides.
    """

    def __init__(
        self,
        drivers: Mapping[PlaneName, Driver],
        elapsed_s: Callable[[], float],
        history: WakeHistory,
        confirm_idle: Callable[[str, float], Awaitable[bool]] | None = None,
    ) -> None:
        self._confirm_idle = confirm_idle
        self._drivers = drivers
        self._elapsed_s = elapsed_s
        self._history = history
        self._machines: dict[str, _TrackedMachine] = {}
        self._connections: dict[str, int] = {}  # by machine, including machines that never sleep
        self._tasks: set[asyncio.Task[None]] = set()

    # --- machines

    def track(self, backends: Iterable[Backend]) -> None:
        """Add the machines that may sleep, and update their policy and published state.

        The idle timer of a new machine starts now.
        """
        for backend in backends:
            if backend.sleep is None:
                continue
            machine = self._machines.get(backend.machine_id)
            if machine is None:
                machine = self._machines[backend.machine_id] = _TrackedMachine(
                    backend.machine_id,
                    backend.cell,
                    backend.sleep,
                    ActivityState.ASLEEP if backend.asleep else ActivityState.UNKNOWN,
                    self._elapsed_s() - REPORTS_IGNORED_S,
                )
                self._start_idle_timer(machine)
            machine.policy = backend.sleep
            if self._elapsed_s() - machine.changed_s >= REPORTS_IGNORED_S:
                if backend.asleep:
                    machine.state = ActivityState.ASLEEP
                elif machine.state is ActivityState.ASLEEP:
                    machine.state = ActivityState.UNKNOWN
        self._update_metrics()

    def keep_only(self, machine_ids: Iterable[str]) -> None:
        """Stop tracking all other machines, except those that are being woken or put to sleep.

        If such a machine is added again before its change ends, no second change may start.
        """
        kept = frozenset(machine_ids)
        busy = {
            machine_id
            for machine_id, machine in self._machines.items()
            if machine.wake_task is not None or machine.lock.locked()
        }
        for machine_id in [m for m in self._machines if m not in kept and m not in busy]:
            self._cancel_idle_timer(self._machines.pop(machine_id))

    async def close(self) -> None:
        wake_tasks = (machine.wake_task for machine in self._machines.values())
        tasks = [*self._tasks, *(task for task in wake_tasks if task is not None)]
        for machine in self._machines.values():
            self._cancel_idle_timer(machine)
        self._machines.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def is_tracked(self, machine_id: str) -> bool:
        return machine_id in self._machines

    # --- connections

    def reset_connections(self) -> None:
        """Drop the reported numbers of connections. The ingress reports them after a connect."""
        self._connections.clear()
        for machine in self._machines.values():
            self._start_idle_timer(machine)

    def report_connections(self, machine_id: str, connections: int, idle_since_s: float) -> None:
        """Record the connections that the ingress reports, and when the last one ended."""
        if connections:
            self._connections[machine_id] = connections
        else:
            self._connections.pop(machine_id, None)
        machine = self._machines.get(machine_id)
        if machine is not None:
            self._start_idle_timer(machine, self._elapsed_s() - idle_since_s)

    def rank(self, machine_id: str) -> Rank:
        machine = self._machines.get(machine_id)
        if machine is None or machine.state is ActivityState.AWAKE:
            return Rank.AWAKE
        if machine.wake_task is not None:
            return Rank.WAKING
        return Rank.ASLEEP if machine.state is ActivityState.ASLEEP else Rank.AWAKE

    def is_awake(self, machine_id: str) -> bool:
        """Return True if the machine is known to be awake, or never sleeps."""
        machine = self._machines.get(machine_id)
        return machine is None or machine.state is ActivityState.AWAKE

    def hold_s(self, machine_ids: Iterable[str]) -> float:
        """Return the longest time that a connection may wait for one of the machines."""
        found = (self._machines.get(machine_id) for machine_id in machine_ids)
        return max((m.policy.hold_s for m in found if m is not None), default=0.0)

    def connections(self, machine_id: str) -> int:
        """Return the number of connections, also of a machine that never sleeps."""
        return self._connections.get(machine_id, 0)

    def add_connection(self, machine_id: str) -> None:
        self._connections[machine_id] = self.connections(machine_id) + 1
        if (machine := self._machines.get(machine_id)) is not None:
            self._cancel_idle_timer(machine)

    def remove_connection(self, machine_id: str) -> None:
        remaining = self._connections.pop(machine_id) - 1
        if remaining:
            self._connections[machine_id] = remaining
        elif (machine := self._machines.get(machine_id)) is not None:
            self._start_idle_timer(machine)

    async def ensure_awake(self, machine_id: str, arrived_s: float) -> WakeTimes | None:
        """Wake the machine, unless it is known to be awake.

        The caller must have added its connection. Only the caller that starts the wake gets its
        times. Raises WakeFailed.
        """
        machine = self._machines.get(machine_id)
        if machine is None or machine.state is ActivityState.AWAKE:
            return None
        if machine.wake_task is None:
            machine.wake_task = asyncio.create_task(self._wake(machine, arrived_s))
            machine.wake_task.add_done_callback(_retrieve_exception)
            return await asyncio.shield(machine.wake_task)
        await asyncio.shield(machine.wake_task)
        return None

    def wake_in_background(self, machine_id: str) -> None:
        """Wake a machine for later connections."""
        machine = self._machines.get(machine_id)
        if machine is None or machine.state is ActivityState.AWAKE:
            return
        if machine.wake_task is None:
            self._start_task(self._wake_unattended(machine_id))

    def record_refusal(self, machine_id: str) -> None:
        """Record that the machine did not accept a connection: its state is unknown again."""
        machine = self._machines.get(machine_id)
        if machine is not None and machine.state is ActivityState.AWAKE:
            machine.state = ActivityState.UNKNOWN

    # --- waking

    async def _wake_unattended(self, machine_id: str) -> None:
        """Wake a machine without a connection that waits for it."""
        self.add_connection(machine_id)
        try:
            times = await self.ensure_awake(machine_id, self._elapsed_s())
            if times is not None:
                self._history.finish(times)
        except WakeFailed as error:
            _log.info("%s: %s", machine_id, error)
        finally:
            self.remove_connection(machine_id)

    async def _wake(self, machine: _TrackedMachine, arrived_s: float) -> WakeTimes:
        """Wake a machine, in a task of its own that outlives the connection that needs it."""
        times = WakeTimes(machine.cell, machine.machine_id, machine.policy.mode, arrived_s)
        try:
            async with asyncio.timeout(machine.policy.hold_s), machine.lock:
                driver = self._drivers[machine.cell]
                times.engine_s = await driver.wake(machine.machine_id)
                times.running_s = self._elapsed_s()
                await self._wait_until_ready(machine)
        except (TimeoutError, DriverError, WakeFailed) as error:
            reason = str(error) or f"the instance was not ready within {machine.policy.hold_s:g} s"
            was_asleep = machine.state is ActivityState.ASLEEP
            if was_asleep or times.engine_s:
                self._history.record_failure(times, reason)
            if was_asleep and times.running_s:
                machine.state = ActivityState.UNKNOWN  # it runs, but does not serve
            raise WakeFailed(reason) from None
        else:
            times.is_pending = bool(times.engine_s) or machine.state is ActivityState.ASLEEP
            self._set_changed_state(machine, ActivityState.AWAKE)
            return times
        finally:
            machine.wake_task = None

    async def is_ready(self, cell: PlaneName, machine_id: str) -> bool:
        """Return True if a woken machine is ready. Raise WakeFailed if it will not become ready.

        The machine need not be tracked: a machine that fails is no longer a backend.
        """
        try:
            state = await self._drivers[cell].observe(machine_id)
        except DriverError as error:
            raise WakeFailed(str(error)) from error
        if state is None:
            raise WakeFailed("its machine is gone")
        if isinstance(state, NotObserved):
            return True  # an adopted machine may serve already; the attempt to connect decides
        if state.is_recovering:
            return True
        if state.phase in ("Failed", "Stopped"):
            raise WakeFailed(state.message or state.reason or state.phase)
        return state.phase == "Running" and not state.reason

    async def _wait_until_ready(self, machine: _TrackedMachine) -> None:
        poll_s = READY_POLL_S
        while not await self.is_ready(machine.cell, machine.machine_id):
            await asyncio.sleep(poll_s)
            poll_s = min(2 * poll_s, READY_POLL_MAX_S)

    # --- putting to sleep

    def _start_idle_timer(self, machine: _TrackedMachine, idle_s: float = 0.0) -> None:
        self._cancel_idle_timer(machine)
        if self.connections(machine.machine_id):
            return
        loop = asyncio.get_running_loop()
        remaining_s = max(0.0, machine.policy.idle_after_s - idle_s)
        machine.idle_timer = loop.call_later(remaining_s, self._on_idle, machine)

    def _cancel_idle_timer(self, machine: _TrackedMachine) -> None:
        if machine.idle_timer is not None:
            machine.idle_timer.cancel()
            machine.idle_timer = None

    def _on_idle(self, machine: _TrackedMachine) -> None:
        machine.idle_timer = None
        self._start_task(self._put_to_sleep(machine))

    async def _put_to_sleep(self, machine: _TrackedMachine) -> None:
        async with machine.lock:
            # A connection that arrives after this check waits for the lock (``ensure_awake``). If
            # it arrives at the ingress, the ingress denies that the machine is idle.
            if self._is_in_use(machine):
                return
            previous = machine.state
            was_asleep = previous is ActivityState.ASLEEP
            self._set_changed_state(machine, ActivityState.ASLEEP)
            if not await self._is_confirmed_idle(machine):
                machine.state = previous
                self._start_idle_timer(machine)
                return
            asleep = await self._sleep(machine)
            if not was_asleep:
                self._history.record_sleep(machine.policy.mode, asleep=asleep)
            if not asleep:  # try again after the idle time
                machine.state = ActivityState.UNKNOWN
                self._start_idle_timer(machine)

    async def _is_confirmed_idle(self, machine: _TrackedMachine) -> bool:
        if self._confirm_idle is None:
            return True
        return await self._confirm_idle(machine.machine_id, machine.policy.idle_after_s)

    async def _sleep(self, machine: _TrackedMachine) -> bool:
        """Call the driver. Return True if the machine sleeps."""
        driver, policy = self._drivers[machine.cell], machine.policy
        try:
            async with asyncio.timeout(policy.hold_s + ENGINE_TIMEOUT_S):
                await driver.sleep(machine.machine_id, policy.mode)
                state = await driver.observe(machine.machine_id)
        except (DriverError, TimeoutError) as error:
            _log.info("%s cannot be put to sleep: %s", machine.machine_id, error)
            return False
        return isinstance(state, MachineState) and state.phase == "Sleeping"

    def _is_in_use(self, machine: _TrackedMachine) -> bool:
        """Return True if the machine has a connection or is no longer tracked."""
        is_tracked = self._machines.get(machine.machine_id) is machine
        return not is_tracked or self.connections(machine.machine_id) > 0

    def _set_changed_state(self, machine: _TrackedMachine, state: ActivityState) -> None:
        """Set the state that results from a change by the scaler itself."""
        machine.state = state
        machine.changed_s = self._elapsed_s()
        self._update_metrics()

    def _update_metrics(self) -> None:
        asleep = sum(m.state is ActivityState.ASLEEP for m in self._machines.values())
        self._history.set_counts(asleep, len(self._machines))

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _retrieve_exception(task: asyncio.Task[WakeTimes]) -> None:
    """Prevent a log entry of asyncio if all connections that waited for the wake are closed."""
    if not task.cancelled():
        task.exception()
