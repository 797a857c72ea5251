"""Detects whether the container engine responds, and receives its events.

- Every response of the engine counts as an answer, including errors and parts of a stream.
- An engine that has not answered for PING_AFTER_S is pinged: lists of containers are rare, and the
  stream of events may be idle for hours.
- The engine is lost while it does not respond. A loss begins at the time of the last answer, and
  ends when the driver has listed the containers again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from datum_compute.drivers.containers.container_spec import (
    CELL,
    MACHINE,
    PLATFORM,
    ContainerOwner,
)
from datum_compute.drivers.containers.engine import (
    PING_TIMEOUT_S,
    Engine,
    encode_filters,
    parse_json_lines,
)
from datum_compute.drivers.driver import OBSERVATION_DEADLINE_S, DriverError, TransientError

# Delay between attempts while the engine does not respond.
RETRY_S = 1.0
PING_AFTER_S = 5.0
ENGINE_UNREACHABLE = "cannot reach the container engine"

_log = logging.getLogger(__name__)


class EngineWatch:
    """``on_event`` receives the id of a changed machine, or an empty one if any may have changed.

    ``on_loss`` is called each time a request finds that the engine does not respond.
    ``resync_requested`` is set when the driver should list the containers soon.
    """

    def __init__(
        self,
        engine: Engine,
        owner: ContainerOwner,
        elapsed_s: Callable[[], float],
        *,
        on_event: Callable[[str], None],
        on_loss: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._elapsed_s = elapsed_s
        self._on_event = on_event
        self._on_loss = on_loss
        # Since when the engine has not answered; None while it does.
        self.lost_since_s: float | None = elapsed_s()
        self.last_answer_s = elapsed_s()
        self.has_events = True  # assumed until the first connection fails
        self.resync_requested = asyncio.Event()
        self._ping_lock = asyncio.Lock()
        engine.response_listeners.append(self._record_answer)

    def record_loss(self, since_s: float) -> None:
        """Record that the engine does not respond."""
        if self.lost_since_s is None:
            self.lost_since_s = since_s
            self.resync_requested.set()
        self._on_loss()

    def end_loss(self) -> float | None:
        """Record that the containers were listed. Return when the loss began, if there was one."""
        since_s, self.lost_since_s = self.lost_since_s, None
        return since_s

    def _record_answer(self) -> None:
        self.last_answer_s = self._elapsed_s()

    async def run_events(self) -> None:
        """Pass on events about containers of the cell, until cancelled."""
        query = {"filters": encode_filters(type=["container"])}
        while True:
            try:
                async with self._engine.stream("GET", "/events", query) as chunks:
                    self.has_events = True
                    self._on_event("")  # events may have been missed before
                    async for event in parse_json_lines(chunks):
                        self._handle_event((event.get("Actor") or {}).get("Attributes") or {})
            except (DriverError, AttributeError, TypeError) as error:
                if self.has_events:
                    _log.warning("no events from the container engine: %s", error)
            if self.has_events:
                self.has_events = False
                self.resync_requested.set()
            await asyncio.sleep(RETRY_S)

    def _handle_event(self, labels: dict[str, str]) -> None:
        owner = {PLATFORM: labels.get(PLATFORM), CELL: labels.get(CELL)}
        if owner == self._owner.labels and labels.get(MACHINE):
            self._on_event(labels[MACHINE])

    async def run_pings(self) -> None:
        """Ping the engine whenever it has not answered for PING_AFTER_S, until cancelled."""
        while True:
            idle_s = self._elapsed_s() - self.last_answer_s
            if idle_s < PING_AFTER_S:
                await asyncio.sleep(max(RETRY_S, PING_AFTER_S - idle_s))
                continue
            try:
                await self._ping()
            except TransientError:
                await asyncio.sleep(RETRY_S)

    async def confirm(self) -> None:
        """Raise TransientError unless the engine has answered after this call.

        Concurrent calls share a ping.
        """
        called_s = self._elapsed_s()
        async with self._ping_lock:
            if self.lost_since_s is not None:
                raise TransientError(ENGINE_UNREACHABLE)
            if self.last_answer_s <= called_s:
                await self._ping()

    async def _ping(self) -> None:
        """Raise TransientError and record the loss if the engine does not respond."""
        began_s = self._elapsed_s()
        # End at the observation deadline, so that Unknown is announced in time.
        left_s = self.last_answer_s + OBSERVATION_DEADLINE_S - began_s
        try:
            await self._engine.ping(min(PING_TIMEOUT_S, left_s) if left_s > 0 else PING_TIMEOUT_S)
        except TransientError:
            if self.last_answer_s <= began_s:
                self.record_loss(self.last_answer_s)
            raise
