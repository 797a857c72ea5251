"""Mutants of the store and the server: versions, commits, watch history, namespaces."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api.errors import Conflict
from datum_compute.store import store
from datum_compute.store.store import Store
from datum_compute.store.watch_log import WatchLog
from testkit.sim.mutants.mutant import Mutant, attribute_replaced, function_replaced


@contextmanager
def _acknowledged_before_commit() -> Iterator[None]:
    def make(_original: Any) -> Any:
        async def submit(self: Any, change: Any, record: Any) -> None:
            self._enqueue(change, record)
            self._planes[change.plane].pending.add(change.key)

        return submit

    with attribute_replaced(Store, "_submit", make):
        yield


@contextmanager
def _version_reused_after_crash() -> Iterator[None]:
    """At start the version counter is the highest version of an object. Deletions have higher
    versions."""

    def make(original: Any) -> Any:
        def loaded_plane(name: str, loaded: Any) -> Any:
            plane = original(name, loaded)
            newest = max((version for version, _ in loaded.objects.values()), default=0)
            plane.started = plane.version = plane.last_assigned = newest
            return plane

        return loaded_plane

    with function_replaced(store._build_plane, make):
        yield


@contextmanager
def _watch_skips_one() -> Iterator[None]:
    def make(original: Any) -> Any:
        return lambda self, since, *event_filter: original(
            self, since + 1 if since > self._floor else since, *event_filter
        )

    with attribute_replaced(WatchLog, "watch", make):
        yield


@contextmanager
def _lost_update() -> Iterator[None]:
    """The store overwrites changes made since the object was read."""

    def make(original: Any) -> Any:
        def checked(self: Any, plane: str, key: Any, expected: int) -> Any:
            try:
                return original(self, plane, key, expected)
            except Conflict:
                return self._planes[plane]

        return checked

    with attribute_replaced(Store, "_check_precondition", make):
        yield


@contextmanager
def _namespace_removed_during_create() -> Iterator[None]:
    def make(_original: Any) -> Any:
        return lambda _self, _plane: []

    with attribute_replaced(Store, "pending_creates", make):
        yield


MUTANTS = (
    Mutant(
        "acknowledged-before-commit",
        "a response is sent before its batch is durable (I10)",
        _acknowledged_before_commit,
    ),
    Mutant(
        "version-reused-after-crash",
        "the version counter is restored from the remaining objects (I9)",
        _version_reused_after_crash,
        triggers=("CrashAtCommit", "StopHost"),
    ),
    Mutant(
        "watch-skips-one",
        "off by one at the resume version: etcd #19179",
        _watch_skips_one,
        triggers=("CloseWatches", "StopHost", "CutLink"),
    ),
    Mutant("lost-update", "compare-and-swap compares nothing (I11)", _lost_update),
    Mutant(
        "namespace-removed-during-create",
        "a create that is not durable yet does not keep its namespace (I3)",
        _namespace_removed_during_create,
        triggers=("DeleteNewNamespace",),
    ),
)
