"""Takes keys from a queue, reconciles them, and is the only place that interprets the outcome."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar, assert_never

from datum_compute.api.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unreachable,
)
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Later, NotSynced, Outcome, Terminal
from datum_compute.runtime.queue import WorkQueue

C = TypeVar("C")

NOT_SYNCED_S = 0.05

# Races that the next pass settles: worth a retry, not a line in the log.
_EXPECTED = (AlreadyExists, Conflict, NotFound, ServiceUnavailable, TooManyRequests, Unreachable)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Worker(Generic[C]):
    controller: Controller[C]
    queue: WorkQueue
    context: C
    is_engaged: Callable[[Key], bool]

    async def run(self) -> None:
        while True:
            key = await self.queue.take()
            try:
                await self._work(key)
            finally:
                self.queue.done(key)

    async def _work(self, key: Key) -> None:
        if not self.is_engaged(key):
            self.queue.forget(key)
            return
        try:
            outcome = await self.controller.reconcile(self.context, key)
        except NotSynced:
            self.queue.add_after(key, NOT_SYNCED_S)
        except _EXPECTED as error:
            delay_s = self.queue.retry(key)
            _log.debug("%s %s: %s; again in %.2f s", self.controller.name, key, error, delay_s)
        except Exception:
            delay_s = self.queue.retry(key)
            _log.exception("%s %s failed; again in %.2f s", self.controller.name, key, delay_s)
        else:
            self._interpret(key, outcome)

    def _interpret(self, key: Key, outcome: Outcome) -> None:
        self.queue.forget(key)
        match outcome:
            case Done():
                pass
            case Later(seconds):
                self.queue.add_after(key, seconds)
            case Terminal(message):
                _log.warning("%s %s: %s", self.controller.name, key, message)
            case _:
                assert_never(outcome)
