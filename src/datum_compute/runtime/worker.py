"""Workers: pop keys, reconcile them, and act on the outcome. No other module interprets outcomes.

- A worker is a task that exists while keys are available. A worker that is done with a key pops the
  next one. A new worker is spawned if more keys are available than workers are about to pop. The
  queue limits the keys in flight for each lane, so a plane that does not respond blocks only its
  own lane.
- Whatever a reconcile does affects only its own key: it may raise, exceed its time limit, be
  cancelled, or return something else than an outcome.
- ``instrument`` adds the fields of the reconcile to log lines, and creates spans.
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
from datum_compute.api.planes import PlaneName
from datum_compute.client.watch import Deadlines
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, Requeue, Terminal
from datum_compute.runtime.metrics import ControllerMetrics
from datum_compute.runtime.queue import WorkQueue
from datum_compute.telemetry.context import RECONCILE, Tracer

C = TypeVar("C")

# How long and how often a reconcile waits for its cache before the key is retried.
SYNC_WAIT_S = 1.0
SYNC_WAITS_MAX = 3
# Reconciles after which a worker ends and spawns its successor, so that other tasks may run even if
# no reconcile awaits anything.
RECONCILES_PER_TASK = 16
REQUEUE_JITTER = 0.1
# Minimum delay, so that Requeue(0) cannot spin.
REQUEUE_MIN_S = 0.01

# Races that the next reconcile resolves. They are logged at debug level only.
_EXPECTED_ERRORS = (
    *(AlreadyExists, Conflict, NotFound, ServiceUnavailable, TooManyRequests, Unreachable),
)

_OUTCOMES = (Done, Requeue, Terminal)  # isinstance with a tuple is faster than with their union

_log = logging.getLogger(__name__)


def with_jitter(delay_s: float, random: Random) -> float:
    """Return the delay plus up to 10 %, so that keys requeued together spread out."""
    return delay_s * (1 + REQUEUE_JITTER * random.random())


class WorkerPool(Generic[C]):
    """The workers of one controller. ``client_of`` returns None for a plane without a client."""

    def __init__(
        self,
        controller: Controller[C],
        queue: WorkQueue,
        context: C,
        client_of: Callable[[PlaneName], CachedClient | None],
        random: Random,
        metrics: ControllerMetrics | None,
    ) -> None:
        self._controller = controller
        self._queue = queue
        self._context = context
        self._client_of = client_of
        self._random = random
        self._metrics = metrics
        self._kind = controller.kind
        self._deadlines = Deadlines(controller.timeout_s)
        # Terminal keys, with the version of the object at that time.
        self._terminal_version: dict[Key, int] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._popping = 0  # workers that pop a key when they run next
        self._task_context = contextvars.Context()

    def start(self) -> None:
        """Reconcile all keys until the queue is closed. Running reconciles then continue."""
        # Workers must not inherit the log fields of the task that added the key.
        self._task_context = contextvars.copy_context()
        self._queue.on_available = self._spawn_worker
        for _ in range(self._queue.available):
            self._spawn_worker()

    def running_tasks(self) -> list[asyncio.Task[None]]:
        return [task for task in self._tasks if not task.done()]

    def drop_plane(self, plane: PlaneName) -> None:
        for key in [key for key in self._terminal_version if key.plane == plane]:
            del self._terminal_version[key]

    def _spawn_worker(self) -> None:
        """Spawn a worker unless enough workers are about to pop a key."""
        if self._popping < self._queue.available:
            self._popping += 1
            loop = asyncio.get_running_loop()
            task = loop.create_task(self._worker_loop(), context=self._task_context.copy())
            self._tasks[task] = None

    async def _worker_loop(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        try:
            for _ in range(RECONCILES_PER_TASK):
                self._popping -= 1
                key = self._queue.pop()
                if key is None:
                    return
                await self._process(key)
        finally:
            del self._tasks[task]
        self._popping -= 1
        self._spawn_worker()

    async def _process(self, key: Key) -> None:
        """Reconcile the key and mark it as done. The worker then pops the next key."""
        try:
            result = await self._reconcile_and_interpret(key)
        except BaseException:
            self._queue.done(key)
            raise
        self._popping += 1
        self._queue.done(key)
        if self._metrics is not None:
            self._metrics.outcomes[result].inc()

    async def _reconcile_and_interpret(self, key: Key) -> str:
        """Return the result for the metric: the name of the outcome or error."""
        client = self._client_of(key.plane)
        if client is None:
            self._queue.forget(key)
            return "dropped"
        version = self._version_of(client, key)
        if self._terminal_version.get(key) == version:
            return "ignored"
        self._terminal_version.pop(key, None)
        loop = asyncio.get_running_loop()
        started_s = loop.time()
        task = self._deadlines.begin()
        try:
            return self._interpret(key, await self._reconcile(key), version)
        except (GeneratorExit, KeyboardInterrupt, SystemExit):
            raise  # these end the process
        except asyncio.CancelledError as error:
            if self._deadlines.has_expired(task):
                return self._retry(key, TimeoutError())
            if task.cancelling():
                raise
            return self._retry(key, error)  # something that the reconcile awaited was cancelled
        except BaseException as error:
            return self._retry(key, error)
        finally:
            self._deadlines.end(task)
            if self._metrics is not None:
                self._metrics.work_seconds.observe(loop.time() - started_s)

    async def _reconcile(self, key: Key) -> Outcome:
        """Reconcile. If a cache is not synced, wait for it and reconcile again."""
        for _ in range(SYNC_WAITS_MAX):
            try:
                return await self._controller.reconcile(self._context, key)
            except NotSynced as error:
                if error.wait is None or not await error.wait(SYNC_WAIT_S):
                    raise
        return await self._controller.reconcile(self._context, key)

    def _retry(self, key: Key, error: BaseException) -> str:
        name = self._controller.name
        if isinstance(error, NotSynced):
            self._queue.retry_not_synced(key)
            return "not_synced"
        delay_s = self._queue.retry(key)
        if self._metrics is not None:
            self._metrics.retries.inc()
        if isinstance(error, _EXPECTED_ERRORS) or _is_namespace_terminating(error):
            _log.debug("%s %s: %s; retry in %.2f s", name, key, error, delay_s)
            return "retry"
        if isinstance(error, TimeoutError):
            _log.warning("%s %s: time limit exceeded; retry in %.2f s", name, key, delay_s)
            return "timeout"
        _log.error("%s %s failed; retry in %.2f s", name, key, delay_s, exc_info=error)
        return "error"

    def _interpret(self, key: Key, outcome: Outcome, version: int) -> str:
        if not isinstance(outcome, _OUTCOMES):
            raise TypeError(f"reconcile must return Done, Requeue or Terminal, not {outcome!r}")
        self._queue.forget(key)
        match outcome:
            case Done(debounce):
                self._queue.debounce(key, debounce)
                return "done"
            case Requeue(after_s, debounce):
                delay_s = with_jitter(max(after_s, REQUEUE_MIN_S), self._random)
                self._queue.debounce(key, debounce)
                self._queue.add_after(key, delay_s)
                _log.debug("%s %s: requeue in %.2f s", self._controller.name, key, delay_s)
                return "later"
            case Terminal(message):
                if self._kind is not None:
                    self._terminal_version[key] = version
                _log.warning("%s %s: %s", self._controller.name, key, message)
                return "terminal"

    def _version_of(self, client: CachedClient, key: Key) -> int:
        """Return the version of the object named by the key; 0 if it is not cached."""
        informer = client.informer(self._kind) if self._kind is not None else None
        entry = informer.cache.entry(key.ref) if informer is not None else None
        return entry.version if entry is not None else 0


def _is_namespace_terminating(error: BaseException) -> bool:
    """Return True if a write failed because its namespace is being deleted, which is a race."""
    return isinstance(error, Forbidden) and any(
        cause.reason == "NamespaceTerminating" for cause in error.causes
    )


def instrument(controller: Controller[C], tracer: Tracer | None = None) -> Controller[C]:
    """Return the controller with log fields for each reconcile, and spans if there is a tracer.

    The fields apply to everything that the worker task logs until its next reconcile.
    """
    reconcile, numbers = controller.reconcile, count(1)
    kind = controller.kind.kind if controller.kind is not None else ""

    def fields_of(key: Key, number: int) -> dict[str, str]:
        return {
            "controller": controller.name,
            "plane": key.plane,
            "kind": kind or key.resource,
            "object": str(key.ref),
            "reconcile": f"{controller.name}-{number}",
        }

    def reconcile_with_fields(context: C, key: Key) -> Awaitable[Outcome]:
        RECONCILE.set(partial(fields_of, key, next(numbers)))
        return reconcile(context, key)

    async def reconcile_with_span(context: C, key: Key) -> Outcome:
        assert tracer is not None
        fields = partial(fields_of, key, next(numbers))
        RECONCILE.set(fields)
        with tracer("reconcile", {f"datum.{k}": v for k, v in fields().items()}, ""):
            return await reconcile(context, key)

    instrumented = reconcile_with_fields if tracer is None else reconcile_with_span
    return replace(controller, reconcile=instrumented)
