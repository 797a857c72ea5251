"""Load balancer: chooses the machine that serves a connection.

Rules:
- Awake machines come before machines that are being woken, and those before sleeping machines.
  Among equals, the machine with the fewest connections comes first.
- If a machine does not accept, the next one is tried. No byte has been sent at that point.
- A connection for which no machine accepts is held for a while: a rollout may add one.
- A drained machine gets no new connection.
- If all awake machines are busy, one sleeping machine is woken for later connections.

The function that connects to a machine is an argument, so that the simulator needs no sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from datum_compute.api.planes import PlaneName
from datum_compute.api.traffic import Backend, CellUnavailable, Rank, WakeFailed, WakeTimes

# How long a connection is held while no machine accepts, unless a sleep policy allows more.
HOLD_S = 10.0
# Time limit for connecting to one machine if other machines are left to try. A wake that this
# connection has started continues in the background.
BACKEND_TIMEOUT_S = 3.0
# A machine with this many connections is busy.
BUSY_CONNECTIONS = 10
_RETRY_ALL_S = 0.2
_CONNECT_RETRY_S, _CONNECT_RETRY_MAX_S = 0.004, 0.1

T = TypeVar("T")


@dataclass(slots=True)
class PublishedPort:
    """A published port and its backends. ``changed`` is set when the backends change."""

    backends: tuple[Backend, ...] = ()
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class BackendConnection(Generic[T]):
    machine_id: str
    connection: T
    times: WakeTimes | None  # of the wake that this connection started


class MachineActivity(Protocol):
    """Which machines are awake, and their connections.

    The idle scaler of the cell implements it, and in the ingress process ``machines.py``, which
    sends requests to the cell.
    """

    def track(self, backends: Iterable[Backend]) -> None: ...

    def keep_only(self, machine_ids: Iterable[str]) -> None: ...

    def rank(self, machine_id: str) -> Rank: ...

    def is_awake(self, machine_id: str) -> bool: ...

    def hold_s(self, machine_ids: Iterable[str]) -> float: ...

    def connections(self, machine_id: str) -> int: ...

    def add_connection(self, machine_id: str) -> None: ...

    def remove_connection(self, machine_id: str) -> None: ...

    async def ensure_awake(self, machine_id: str, arrived_s: float) -> WakeTimes | None:
        """Wake the machine, unless it is known to be awake. Raises WakeFailed.

        Only the caller that starts the wake gets its times.
        """
        ...

    def wake_in_background(self, machine_id: str) -> None: ...

    def record_refusal(self, machine_id: str) -> None: ...

    async def is_ready(self, cell: PlaneName, machine_id: str) -> bool:
        """Return True if a woken machine is ready. Raise WakeFailed if it will not become ready."""
        ...

    async def close(self) -> None: ...


class WakeRecorder(Protocol):
    """Records how wakes ended."""

    def finish(self, times: WakeTimes) -> None: ...

    def record_failure(self, times: WakeTimes, reason: str) -> None: ...


class LoadBalancer(Generic[T]):
    """``connect`` returns None if the machine does not accept the connection."""

    def __init__(
        self,
        machines: MachineActivity,
        wakes: WakeRecorder,
        connect: Callable[[Backend], Awaitable[T | None]],
        elapsed_s: Callable[[], float],
    ) -> None:
        self.machines = machines
        self._wakes = wakes
        self._connect = connect
        self._elapsed_s = elapsed_s
        self._draining: set[str] = set()

    def set_backends(self, port: PublishedPort, backends: Sequence[Backend]) -> None:
        self.machines.track(backends)
        if port.backends != tuple(backends):
            port.backends = tuple(backends)
            port.changed.set()
            port.changed = asyncio.Event()

    async def drain(self, machine_id: str) -> int:
        """Give the machine no new connections. Return the number of its open connections."""
        self._draining.add(machine_id)
        return self.machines.connections(machine_id)

    @property
    def draining(self) -> frozenset[str]:
        return frozenset(self._draining)

    def end_drain(self, machine_id: str) -> None:
        """Give the machine new connections again."""
        self._draining.discard(machine_id)

    def keep_only(self, ports: Iterable[PublishedPort]) -> None:
        """Drop the state of machines that are no backend of these ports."""
        known = {backend.machine_id for port in ports for backend in port.backends}
        self.machines.keep_only(known)
        self._draining = {
            machine_id
            for machine_id in self._draining
            if machine_id in known or self.machines.connections(machine_id)
        }

    async def connect(self, port: PublishedPort) -> BackendConnection[T] | None:
        """Connect to a machine. Return None if none accepts in time.

        The caller must release the connection. Raises CellUnavailable if a machine sleeps that the
        cell cannot wake, and no other machine accepts.
        """
        arrived_s = self._elapsed_s()
        hold_s = max(HOLD_S, self.machines.hold_s(b.machine_id for b in port.backends))
        with suppress(TimeoutError):
            async with asyncio.timeout(hold_s):
                while True:
                    changed, unavailable = port.changed, None
                    for backend in self._order_backends(port):
                        limit_s = BACKEND_TIMEOUT_S if len(port.backends) > 1 else hold_s
                        try:
                            found = await self._try_backend(backend, arrived_s, limit_s)
                        except CellUnavailable as error:
                            unavailable = error
                            continue
                        if found is not None:
                            return found
                    if unavailable is not None:
                        raise unavailable
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_RETRY_ALL_S):
                            await changed.wait()
        return None

    def release(self, opened: BackendConnection[T]) -> None:
        if opened.times is not None:
            self._wakes.finish(opened.times)
        self.machines.remove_connection(opened.machine_id)

    def record_first_byte(self, opened: BackendConnection[T]) -> None:
        """Record that the machine sent the first byte of its response."""
        if opened.times is not None:
            opened.times.first_byte_s = self._elapsed_s()
            self._wakes.finish(opened.times)

    def _order_backends(self, port: PublishedPort) -> list[Backend]:
        available = [b for b in port.backends if b.machine_id not in self._draining]
        machines = self.machines
        load = machines.connections
        found = sorted(available, key=lambda b: (machines.rank(b.machine_id), load(b.machine_id)))
        ranks = [machines.rank(b.machine_id) for b in found]
        all_busy = (
            bool(ranks) and ranks[0] is Rank.AWAKE and load(found[0].machine_id) >= BUSY_CONNECTIONS
        )
        if all_busy and Rank.ASLEEP in ranks and Rank.WAKING not in ranks:
            machines.wake_in_background(found[ranks.index(Rank.ASLEEP)].machine_id)
        return found

    async def _try_backend(
        self, backend: Backend, arrived_s: float, limit_s: float
    ) -> BackendConnection[T] | None:
        machine_id, times, found = backend.machine_id, None, None
        self.machines.add_connection(machine_id)
        try:
            async with asyncio.timeout(limit_s):
                # A machine that was just woken gets time to open its port.
                retry = not self.machines.is_awake(machine_id)
                times = await self.machines.ensure_awake(machine_id, arrived_s)
                connection = await self._connect_to(backend, retry=retry)
                if times is not None:
                    times.connected_s = self._elapsed_s()
                found = BackendConnection(machine_id, connection, times)
        except CellUnavailable:
            raise
        except (WakeFailed, TimeoutError) as error:
            self.machines.record_refusal(machine_id)
            self._record_failure(times, str(error) or _describe_refusal(backend))
        except asyncio.CancelledError:  # the hold time of the connection is over
            self._record_failure(times, _describe_refusal(backend))
            raise
        finally:
            if found is None:
                self.machines.remove_connection(machine_id)
        return found

    def _record_failure(self, times: WakeTimes | None, reason: str) -> None:
        """Record a wake after which the machine did not accept the connection."""
        if times is not None:
            self._wakes.record_failure(times, reason)

    async def _connect_to(self, backend: Backend, *, retry: bool) -> T:
        retry_s = _CONNECT_RETRY_S
        while (connection := await self._connect(backend)) is None:
            if not retry:
                raise WakeFailed(_describe_refusal(backend))
            await self.machines.is_ready(backend.cell, backend.machine_id)
            await asyncio.sleep(retry_s)
            retry_s = min(2 * retry_s, _CONNECT_RETRY_MAX_S)
        return connection


def _describe_refusal(backend: Backend) -> str:
    return f"it did not accept connections on port {backend.port}"
