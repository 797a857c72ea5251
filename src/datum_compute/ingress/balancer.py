"""Which machine takes a connection.

Rules it keeps: one that is awake before one that is being woken before one that sleeps, and of
those the one with the fewest connections; one that does not accept is passed over for the next,
before a byte was sent; a connection that finds nobody waits a little, because in a rollout somebody
is about to come; a machine that was taken out gets no new connection, ever. When all that are awake
are busy one more is woken, for those who come after.

How a machine is connected to is an argument, so that the simulator can do without sockets.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from datum_compute.drivers.traffic import Backend
from datum_compute.ingress.activations import WakeBook, WakeTimes
from datum_compute.ingress.idle_scaler import IdleScaler, NotWoken, Rank

# How long a connection that finds nobody waits.
HOLD_S = 10.0
# The same for one machine while there are others to try; its wake goes on.
PATIENCE_S = 3.0
# Connections of a machine that count as busy.
BUSY_AT = 10
_AGAIN_S = 0.2
_EAGER_S, _EAGER_MAX_S = 0.004, 0.1

T = TypeVar("T")


@dataclass(slots=True)
class Port:
    """A published port: who is behind it, and a sign for those who wait that this has changed."""

    backends: tuple[Backend, ...] = ()
    changed: asyncio.Event = field(default_factory=asyncio.Event)


@dataclass(frozen=True, slots=True)
class Reached(Generic[T]):
    machine_id: str
    connection: T
    times: WakeTimes | None  # of the wake that was for this connection


class Balance(Generic[T]):
    """``connect`` answers None if the machine does not accept."""

    def __init__(
        self,
        sleepers: IdleScaler,
        book: WakeBook,
        connect: Callable[[Backend], Awaitable[T | None]],
        elapsed_s: Callable[[], float],
    ) -> None:
        self.sleepers = sleepers
        self._book = book
        self._connect = connect
        self._elapsed_s = elapsed_s
        self._leaving: set[str] = set()

    def set_backends(self, port: Port, backends: Sequence[Backend]) -> None:
        self.sleepers.take_over(backends)
        if port.backends != tuple(backends):
            port.backends = tuple(backends)
            port.changed.set()
            port.changed = asyncio.Event()

    def take_out(self, machine_id: str) -> int:
        """No new connections for the machine from now on; how many it still has."""
        self._leaving.add(machine_id)
        return self.sleepers.connections(machine_id)

    def keep_only(self, ports: Iterable[Port]) -> None:
        """Ids are never used again: who is nobody's backend any more cannot come back."""
        known = {backend.machine_id for port in ports for backend in port.backends}
        self.sleepers.keep_only(known)
        self._leaving = {m for m in self._leaving if m in known or self.sleepers.connections(m)}

    async def reach(self, port: Port) -> Reached[T] | None:
        """A machine that accepted; None if nobody does in time. Whoever got one must release it."""
        arrived_s = self._elapsed_s()
        hold_s = max(HOLD_S, self.sleepers.hold_s(b.machine_id for b in port.backends))
        with suppress(TimeoutError):
            async with asyncio.timeout(hold_s):
                while True:
                    changed = port.changed
                    for backend in self._in_order(port):
                        patience_s = PATIENCE_S if len(port.backends) > 1 else hold_s
                        if (found := await self._tried(backend, arrived_s, patience_s)) is not None:
                            return found
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_AGAIN_S):
                            await changed.wait()
        return None

    def release(self, reached: Reached[T]) -> None:
        if reached.times is not None:
            self._book.close(reached.times)
        self.sleepers.leave(reached.machine_id)

    def answered(self, reached: Reached[T]) -> None:
        """The first byte came back."""
        if reached.times is not None:
            reached.times.answered_s = self._elapsed_s()
            self._book.close(reached.times)

    def _in_order(self, port: Port) -> list[Backend]:
        able = [b for b in port.backends if b.machine_id not in self._leaving]
        load = self.sleepers.connections
        found = sorted(able, key=lambda b: (self.sleepers.rank(b.machine_id), load(b.machine_id)))
        ranks = [self.sleepers.rank(b.machine_id) for b in found]
        busy = ranks and ranks[0] is Rank.AWAKE and load(found[0].machine_id) >= BUSY_AT
        if busy and Rank.ASLEEP in ranks and Rank.WAKING not in ranks:
            self.sleepers.wake_in_background(found[ranks.index(Rank.ASLEEP)].machine_id)
        return found

    async def _tried(
        self, backend: Backend, arrived_s: float, patience_s: float
    ) -> Reached[T] | None:
        machine_id, times, found = backend.machine_id, None, None
        self.sleepers.enter(machine_id)
        try:
            async with asyncio.timeout(patience_s):
                # One that has just been woken is given time to listen.
                patient = not self.sleepers.is_awake(machine_id)
                times = await self.sleepers.awake(machine_id, arrived_s)
                connection = await self._connected(backend, patient=patient)
                if times is not None:
                    times.connected_s = self._elapsed_s()
                found = Reached(machine_id, connection, times)
        except (NotWoken, TimeoutError) as error:
            self.sleepers.note_refusal(machine_id)
            self._note_failure(times, str(error) or _refuses(backend))
        except asyncio.CancelledError:  # the connection was held for as long as any is
            self._note_failure(times, _refuses(backend))
            raise
        finally:
            if found is None:
                self.sleepers.leave(machine_id)
        return found

    def _note_failure(self, times: WakeTimes | None, why: str) -> None:
        """Of who was woken for the connection, and did not take it."""
        if times is not None:
            self._book.failed(times, why)

    async def _connected(self, backend: Backend, *, patient: bool) -> T:
        eager_s = _EAGER_S
        while (connection := await self._connect(backend)) is None:
            if not patient:
                raise NotWoken(_refuses(backend))
            await self.sleepers.check(backend.cell, backend.machine_id)
            await asyncio.sleep(eager_s)
            eager_s = min(2 * eager_s, _EAGER_MAX_S)
        return connection


def _refuses(backend: Backend) -> str:
    return f"it did not accept connections on port {backend.port}"
