"""Bugs in what feeds controllers: watches, caches, queues and workers."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from datum_compute.api.kinds import SERVER
from datum_compute.client import quiet
from datum_compute.client.answers import Listed, WatchEvent
from datum_compute.client.watching import _follow
from datum_compute.runtime.objects import Objects
from datum_compute.runtime.queue import WorkQueue
from datum_compute.runtime.view import View
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import (
    attribute_replaced,
    controller_named,
    function_replaced,
)


@contextmanager
def _relist_not_compared() -> Iterator[None]:
    def make(original: Any) -> Any:
        async def follow_from_now(source: Any, random: Any) -> Any:
            listed_before = False
            async for item in original(source, random):
                if isinstance(item, Listed) and listed_before:
                    yield WatchEvent("BOOKMARK", item.version, None)
                else:
                    listed_before = listed_before or isinstance(item, Listed)
                    yield item

        return follow_from_now

    with function_replaced(_follow, make):
        yield


@contextmanager
def _silent_watch_trusted() -> Iterator[None]:
    with attribute_replaced(quiet, "STALL_S", lambda _: 100_000.0):
        yield


def reading_anything(_original: Any) -> Any:
    """Reads of whatever the cache holds, complete or not."""
    return lambda self, kind: Objects(self._informer(kind).cache)


@contextmanager
def _key_in_flight_twice() -> Iterator[None]:
    def make(_original: Any) -> Any:
        def add(self: Any, key: Any) -> None:
            self._cancel_timer(key)
            self._make_ready(key)

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
def _owned_objects_not_watched() -> Iterator[None]:
    """The edge from the machine's Server back to its Instance is missing."""
    controller = controller_named("provisioner")

    def make(edges: Any) -> Any:
        return tuple(_mute(edge) if edge.kind is SERVER else edge for edge in edges)

    with attribute_replaced(controller, "edges", make):
        yield


def _mute(edge: Any) -> Any:
    return replace(edge, to_keys=lambda _view, _change: (), expects_one="")


@contextmanager
def _tasks_left_behind() -> Iterator[None]:
    """Each delete leaves somebody who waits for news that never come."""

    def make(original: Any) -> Any:
        async def delete(self: Any, *arguments: Any, **options: Any) -> None:
            await original(self, *arguments, **options)
            asyncio.get_running_loop().create_task(asyncio.Event().wait())

        return delete

    with attribute_replaced(View, "delete", make):
        yield


BUGS = (
    PlantedBug(
        "tasks-left-behind",
        "a waiter for each object that went: memory grows until the process is killed (I20)",
        _tasks_left_behind,
        shows=("I20",),
    ),
    PlantedBug(
        "relist-not-compared",
        "a list after 410 only moves the version on: Sieve, unobserved states",
        _relist_not_compared,
        meets=("LoseDeletes",),
    ),
    PlantedBug(
        "half-open-watch-trusted",
        "silence is never suspicious: OpenSandbox #1534, kopf #1276 (F7)",
        _silent_watch_trusted,
        meets=("HalfOpenWatches",),
    ),
    PlantedBug(
        "key-in-flight-twice",
        "per-key exclusion lost: two workers reconcile one object",
        _key_in_flight_twice,
    ),
    PlantedBug(
        "wake-up-edge-missing",
        "the Server's state does not wake its Instance: control-plane.md h.7",
        _owned_objects_not_watched,
    ),
)
