"""Bugs in what is told: counts, conditions, observed generations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from datum_compute.api.conditions import TRUE
from datum_compute.api.kinds import WORKLOAD
from datum_compute.planning import federation, rollup
from datum_compute.planning.objects import plan_status
from datum_compute.planning.silence import silence_of
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import function_replaced


@contextmanager
def _observed_goes_back() -> Iterator[None]:
    """What a recreated copy echoes replaces what was known already."""

    def make(original: Any) -> Any:
        def mirrored(deployment: Any, hub: Any, now: str) -> Any:
            status = original(deployment, hub, now)
            if hub.deployment is None:
                return msgspec.structs.replace(status, observed_generation=0)
            echoed = hub.deployment.status.observed_source.generation
            return msgspec.structs.replace(status, observed_generation=echoed)

        return mirrored

    with function_replaced(federation.mirrored_status, make):
        yield


@contextmanager
def _nothing_is_all_ready() -> Iterator[None]:
    """No deployment has said that it is unavailable, therefore all are available."""

    def make(original: Any) -> Any:
        def available(deployments: Any, *arguments: Any) -> Any:
            found = original(deployments, *arguments)
            said = any(deployment.status.conditions for deployment in deployments)
            return found if said else msgspec.structs.replace(found, status=TRUE)

        return available

    with function_replaced(rollup._available, make):
        yield


@contextmanager
def _written_although_equal() -> Iterator[None]:
    """The guard against equal statuses compares nothing, and each write wakes its own writer.
    Of one kind, because a loop for each object would only make the run slow."""

    def make(original: Any) -> Any:
        def plan(plane: Any, kind: Any, observed: Any, desired: Any, reason: str = "") -> Any:
            found = original(plane, kind, observed, desired, reason)
            listed = getattr(desired, "conditions", None)
            if found or not listed or kind is not WORKLOAD:
                return found
            mark = "." if not listed[0].message.endswith(".") else ""
            touched = msgspec.structs.replace(
                listed[0], message=listed[0].message.rstrip(".") + mark
            )
            changed = msgspec.structs.replace(desired, conditions=[touched, *listed[1:]])
            return original(plane, kind, observed, changed, reason)

        return plan

    with function_replaced(plan_status, make):
        yield


@contextmanager
def _silence_not_noticed() -> Iterator[None]:
    """The last word of a cell counts for ever."""
    with function_replaced(silence_of, lambda _original: lambda _cluster: None):
        yield


BUGS = (
    PlantedBug(
        "available-outlives-its-cell",
        "a city that burnt down is still called available: Karmada keeps the last status (I7)",
        _silence_not_noticed,
        meets=("cell lost",),
    ),
    PlantedBug(
        "observed-generation-goes-back",
        "a recreated hub copy makes the project forget what it saw (I8)",
        _observed_goes_back,
        meets=("EmptyHost", "DeleteObject"),
    ),
    PlantedBug(
        "nothing-is-all-ready",
        "an empty set is called healthy: Karmada #7455 (I23)",
        _nothing_is_all_ready,
        meets=("Move",),
    ),
    PlantedBug(
        "written-although-equal",
        "a hot loop of writes that change nothing: Fly, May 2025 (F28)",
        _written_although_equal,
    ),
)
