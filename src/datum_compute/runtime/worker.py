"""Takes keys from a queue, reconciles them, and is the only place that interprets the outcome.

Workers come when there is work and go when there is none; the queue decides how many keys of a
lane may be worked on at once, so that planes that never answer hold only their own. There is one
for each turn of the queue: who is done with a key looks for the next, and somebody new comes only
if those who look are too few.

Whatever a reconcile does ends with itself: it may raise, take too long, be cancelled or answer
nonsense, and no other key notices.

A controller whose reconciles can be told apart: in log lines, and as spans where wanted.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from itertools import count
from random import Random
from typing import Generic, TypeVar

from datum_compute.api.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    ServiceUnavailable,
    TooManyRequests,
    Unreachable,
)
from datum_compute.api.plane import PlaneName
from datum_compute.client.deadlines import Deadlines
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, Terminal
from datum_compute.runtime.metrics import ControllerMetrics
from datum_compute.runtime.queue import WorkQueue
from datum_compute.telemetry.scope import RECONCILE
from datum_compute.telemetry.traces import Tracer

C = TypeVar("C")

# How long a reconcile is held up for its view to catch up before it is put back.
CATCH_UP_S = 1.0
CATCH_UPS_MAX = 3
# Reconciles in a row after which a worker leaves the rest to a new one: others get to run, though
# none of them waited for anything.
BREATH = 16
JITTER = 0.1
# Who always asks for now does not turn without an end.
LATER_LEAST_S = 0.01

# Races that the next pass settles: worth a retry, not a line in the log.
_EXPECTED = (AlreadyExists, Conflict, NotFound, ServiceUnavailable, TooManyRequests, Unreachable)

_OUTCOMES = (Done, Requeue, Terminal)  # asked of a tuple, which is quicker than of their union

_log = logging.getLogger(__name__)


class WorkerPool(Generic[C]):
    def __init__(
        self,
        controller: Controller[C],
        queue: WorkQueue,
        context: C,
        view_of: Callable[[PlaneName], CachedClient | None],
        random: Random,
        metrics: ControllerMetrics | None,
    ) -> None:
        self._controller = controller
        self._queue = queue
        self._context = context
        self._view_of = view_of
        self._random = random
        self._metrics = metrics
        self._kind = controller.kind
        self._deadlines = Deadlines(controller.timeout_s)
        self._terminal: dict[Key, int] = {}  # and the version at which it was found hopeless
        self._busy: dict[asyncio.Task[None], None] = {}
        self._looking = 0  # how many of them take a key next, before anybody else runs
        self._surroundings = contextvars.Context()

    def start(self) -> None:
        """Work on whatever is ready and becomes so, until the queue is closed; what is being worked
        on then goes on, see ``busy``."""
        # Whoever wakes a key: what its work is about is not what that one was about.
        self._surroundings = contextvars.copy_context()
        self._queue.on_available = self._call_for_one
        for _ in range(self._queue.available):
            self._call_for_one()

    def busy(self) -> list[asyncio.Task[None]]:
        return [task for task in self._busy if not task.done()]

    def drop(self, plane: PlaneName) -> None:
        for key in [key for key in self._terminal if key.plane == plane]:
            del self._terminal[key]

    def _call_for_one(self) -> None:
        """A key may be worked on; those who look for one already are not called again."""
        if self._looking < self._queue.available:
            self._looking += 1
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._work_off(), context=self._surroundings.copy())
            self._busy[task] = None

    async def _work_off(self) -> None:
        me = asyncio.current_task()
        assert me is not None
        try:
            for _ in range(BREATH):
                self._looking -= 1
                key = self._queue.pop()
                if key is None:
                    return
                await self._work_on(key)
        finally:
            del self._busy[me]
        self._looking -= 1
        self._call_for_one()

    async def _work_on(self, key: Key) -> None:
        """Reconcile; who comes back from it looks for more."""
        try:
            outcome = await self._work(key)
        except BaseException:
            self._queue.done(key)
            raise
        self._looking += 1
        self._queue.done(key)
        if self._metrics is not None:
            self._metrics.outcomes[outcome].inc()

    async def _work(self, key: Key) -> str:
        """Reconcile; the name of what came out."""
        view = self._view_of(key.plane)
        if view is None:
            self._queue.forget(key)
            return "dropped"
        version = self._own_version(view, key)
        if self._terminal.get(key) == version:
            return "ignored"
        self._terminal.pop(key, None)
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        task = self._deadlines.begin()
        try:
            return self._interpret(key, await self._reconciled(key), version)
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise  # not of this reconcile, but of the whole process
        except asyncio.CancelledError as error:
            if self._deadlines.passed(task):
                return self._failed(key, TimeoutError())
            if task.cancelling():
                raise
            return self._failed(key, error)  # of something it waited for, not of this worker
        except BaseException as error:
            return self._failed(key, error)
        finally:
            self._deadlines.end(task)
            if self._metrics is not None:
                self._metrics.work_seconds.observe(loop.time() - started_s)

    async def _reconciled(self, key: Key) -> Outcome:
        """Reconcile, again at once if a view that was behind has caught up."""
        for _ in range(CATCH_UPS_MAX):
            try:
                return await self._controller.reconcile(self._context, key)
            except NotSynced as behind:
                if behind.wait is None or not await behind.wait(CATCH_UP_S):
                    raise
        return await self._controller.reconcile(self._context, key)

    def _failed(self, key: Key, error: BaseException) -> str:
        name = self._controller.name
        if isinstance(error, NotSynced):
            self._queue.retry_soon(key)
            return "not_synced"
        delay_s = self._queue.retry(key)
        if self._metrics is not None:
            self._metrics.retries.inc()
        if isinstance(error, _EXPECTED) or _is_of_a_terminating_namespace(error):
            _log.debug("%s %s: %s; again in %.2f s", name, key, error, delay_s)
            return "retry"
        if isinstance(error, TimeoutError):
            _log.warning("%s %s ran out of time; again in %.2f s", name, key, delay_s)
            return "timeout"
        _log.error("%s %s failed; again in %.2f s", name, key, delay_s, exc_info=error)
        return "error"

    def _interpret(self, key: Key, outcome: Outcome, version: int) -> str:
        if not isinstance(outcome, _OUTCOMES):
            raise TypeError(f"reconcile must return Done, Requeue or Terminal, not {outcome!r}")
        self._queue.forget(key)
        match outcome:
            case Done(pause):
                self._queue.debounce(key, pause)
                return "done"
            case Requeue(seconds, pause):
                delay_s = max(seconds, LATER_LEAST_S) * (1 + JITTER * self._random.random())
                self._queue.debounce(key, pause)
                self._queue.add_after(key, delay_s)
                _log.debug("%s %s: again in %.2f s", self._controller.name, key, delay_s)
                return "later"
            case Terminal(message):
                if self._kind is not None:
                    self._terminal[key] = version
                _log.warning("%s %s: %s", self._controller.name, key, message)
                return "terminal"

    def _own_version(self, view: CachedClient, key: Key) -> int:
        """The version of the object that the key names; 0 if it is not there, or none of ours."""
        informer = view.informer(self._kind) if self._kind is not None else None
        entry = informer.cache.entry(key.ref) if informer is not None else None
        return entry.version if entry is not None else 0


def _is_of_a_terminating_namespace(error: BaseException) -> bool:
    """It has begun to go since it was looked at; other refusals are nobody's race."""
    return isinstance(error, Forbidden) and any(
        cause.reason == "NamespaceTerminating" for cause in error.causes
    )


def instrument(controller: Controller[C], tracer: Tracer | None = None) -> Controller[C]:
    """The same controller; while it reconciles, and until it reconciles the next key, everything
    that is logged in its task carries what it was about."""
    reconcile, numbers = controller.reconcile, count(1)
    kind = controller.kind.kind if controller.kind is not None else ""

    def described(key: Key, number: int) -> dict[str, str]:
        return {
            "controller": controller.name,
            "plane": key.plane,
            "kind": kind or key.resource,
            "object": str(key.ref),
            "reconcile": f"{controller.name}-{number}",
        }

    def logged(context: C, key: Key) -> Awaitable[Outcome]:
        RECONCILE.set(partial(described, key, next(numbers)))
        return reconcile(context, key)

    async def traced(context: C, key: Key) -> Outcome:
        assert tracer is not None
        fields = partial(described, key, next(numbers))
        RECONCILE.set(fields)
        with tracer("reconcile", {f"datum.{k}": v for k, v in fields().items()}, ""):
            return await reconcile(context, key)

    return replace(controller, reconcile=logged if tracer is None else traced)
