"""Mutants of watches, caches and work queues."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from datum_compute.api.kinds import SERVER
from datum_compute.client import watch
from datum_compute.client.responses import ListResult, WatchEvent
from datum_compute.client.watch import _follow
from datum_compute.runtime.cache import Lister
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.queue import WorkQueue
from testkit.sim.mutants.mutant import (
    Mutant,
    attribute_replaced,
    controller_named,
    function_replaced,
)


@contextmanager
def _relist_not_applied() -> Iterator[None]:
    def make(original: Any) -> Any:
        async def follow_from_now(source: Any, random: Any) -> Any:
            listed_before = False
            async for item in original(source, random):
                if isinstance(item, ListResult) and listed_before:
                    yield WatchEvent("BOOKMARK", item.version, None)
                else:
                    listed_before = listed_before or isinstance(item, ListResult)
                    yield item

        return follow_from_now

    with function_replaced(_follow, make):
        yield


@contextmanager
def _half_open_watch_not_detected() -> Iterator[None]:
    with attribute_replaced(watch, "IDLE_TIMEOUT_S", lambda _: 100_000.0):
        yield


@contextmanager
def unsynced_reads() -> Iterator[None]:
    """Reads return the content of the cache, even before it is complete or has observed our own
    write."""

    def make(_original: Any) -> Any:
        return lambda self, kind: Lister(self._require_informer(kind).cache)

    with attribute_replaced(CachedClient, "read", make):
        yield


@contextmanager
def _key_reconciled_twice_at_once() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def add(self: Any, key: Any) -> None:
            self._timers.cancel(key)
            self._enqueue(key)

        return add

    def make_done(original: Any) -> Any:
        def done(self: Any, key: Any) -> None:
            if key in self._in_flight:
                original(self, key)

        return done

    with (
        attribute_replaced(WorkQueue, "add", make),
        attribute_replaced(WorkQueue, "done", make_done),
    ):
        yield


@contextmanager
def _watch_edge_missing() -> Iterator[None]:
    """A Server does not requeue its Instance."""
    controller = controller_named("provisioner")

    def make(edges: Any) -> Any:
        return tuple(_without_keys(edge) if edge.kind is SERVER else edge for edge in edges)

    with attribute_replaced(controller, "edges", make):
        yield


def _without_keys(edge: Any) -> Any:
    return replace(edge, to_keys=lambda _view, _change: (), must_map_to_one="")


@contextmanager
def _tasks_left_behind() -> Iterator[None]:
    """Each delete starts a task that waits without end."""

    def make(original: Any) -> Any:
        async def delete(self: Any, *arguments: Any, **options: Any) -> None:
            await original(self, *arguments, **options)
            asyncio.get_running_loop().create_task(asyncio.Event().wait())

        return delete

    with attribute_replaced(CachedClient, "delete", make):
        yield


MUTANTS = (
    Mutant(
        "tasks-left-behind",
        "a task for each deleted object: memory grows until the process is killed (I20)",
        _tasks_left_behind,
        violates=("I20",),
    ),
    Mutant(
        "relist-not-applied",
        "a list after 410 moves only the version: Sieve, unobserved states",
        _relist_not_applied,
        triggers=("LoseDeletes",),
    ),
    Mutant(
        "half-open-watch-not-detected",
        "a watch without data is never reopened: OpenSandbox #1534, kopf #1276 (F7)",
        _half_open_watch_not_detected,
        triggers=("HalfOpenWatches",),
    ),
    Mutant(
        "key-reconciled-twice-at-once",
        "no exclusion for each key: two workers reconcile one object",
        _key_reconciled_twice_at_once,
    ),
    Mutant(
        "watch-edge-missing",
        "a change of the Server's status does not reconcile its Instance",
        _watch_edge_missing,
    ),
)
