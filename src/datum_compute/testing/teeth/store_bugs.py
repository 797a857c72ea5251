"""Bugs in the store and the server: versions, commits, watch history, namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api.errors import Conflict
from datum_compute.server.creations import CreationsUnderWay
from datum_compute.store import store
from datum_compute.store.store import Store
from datum_compute.store.watchlog import WatchLog
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced, function_replaced


@contextmanager
def _acknowledged_before_commit() -> Iterator[None]:
    def make(_original: Any) -> Any:
        async def written(self: Any, change: Any, record: Any) -> None:
            self._enqueued(change, record)
            self._planes[change.plane].pending.add(change.key)

        return written

    with attribute_replaced(Store, "_written", make):
        yield


@contextmanager
def _versions_from_objects() -> Iterator[None]:
    """At start the newest version is taken from the objects; deletions had newer ones."""

    def make(original: Any) -> Any:
        def loaded_plane(name: str, loaded: Any) -> Any:
            plane = original(name, loaded)
            newest = max((version for version, _ in loaded.objects.values()), default=0)
            plane.started = plane.version = plane.assigned = newest
            return plane

        return loaded_plane

    with function_replaced(store._loaded_plane, make):
        yield


@contextmanager
def _watch_skips_one() -> Iterator[None]:
    def make(original: Any) -> Any:
        return lambda self, since, *concerns: original(
            self, since + 1 if since > self._floor else since, *concerns
        )

    with attribute_replaced(WatchLog, "watch", make):
        yield


@contextmanager
def _compare_and_swap_skipped() -> Iterator[None]:
    """The store writes over what changed since it was read."""

    def make(original: Any) -> Any:
        def checked(self: Any, plane: str, key: Any, expected: int) -> Any:
            try:
                return original(self, plane, key, expected)
            except Conflict:
                return self._planes[plane]

        return checked

    with attribute_replaced(Store, "_checked", make):
        yield


@contextmanager
def _arrivals_not_counted() -> Iterator[None]:
    def make(_original: Any) -> Any:
        return lambda _self, _plane, _namespace: False

    with attribute_replaced(CreationsUnderWay, "any_in_namespace", make):
        yield


BUGS = (
    PlantedBug(
        "acknowledged-before-commit",
        "an answer goes out before its batch is durable (I10)",
        _acknowledged_before_commit,
    ),
    PlantedBug(
        "version-reused-after-crash",
        "the version counter is read off the objects that are left (I9)",
        _versions_from_objects,
        meets=("CrashAtCommit", "StopHost"),
    ),
    PlantedBug(
        "watch-skips-one",
        "off by one at the resume point: etcd #19179",
        _watch_skips_one,
        meets=("CloseWatches", "StopHost", "CutLink"),
    ),
    PlantedBug("lost-update", "compare-and-swap compares nothing (I11)", _compare_and_swap_skipped),
    PlantedBug(
        "namespace-gone-while-work-arrives",
        "a create on its way to the disk is not seen by the namespace that goes",
        _arrivals_not_counted,
        meets=("DeleteNewNamespace",),
    ),
)
