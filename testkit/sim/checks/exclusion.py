"""Watches the one rule of the queue that leaves no trace in any row: no key is worked on twice at
once by one controller of one process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.controllers import registry
from testkit.sim.virtual_loop import HOST

Reconcile = Callable[[Any, Any], Awaitable[Any]]


@contextmanager
def exclusion_watched(complain: Callable[[str], None]) -> Iterator[None]:
    """Complains of a key that is in flight twice, as long as the context lasts."""
    groups = (
        registry.MANAGEMENT,
        registry.HUB,
        registry.CELL,
        registry.NEIGHBOURS,
        registry.FOLLOW_PROJECTS,
        registry.FOLLOW_HOMES,
    )
    found = [(controller, controller.reconcile) for group in groups for controller in group]
    for controller, reconcile in found:
        # In place, because hosts hold the controllers themselves.
        watched = watched_reconcile(controller.name, reconcile, complain)
        object.__setattr__(controller, "reconcile", watched)
    try:
        yield
    finally:
        for controller, reconcile in found:
            object.__setattr__(controller, "reconcile", reconcile)


def watched_reconcile(
    name: str, reconcile: Reconcile, complain: Callable[[str], None]
) -> Reconcile:
    in_flight: dict[tuple[str, Any], None] = {}

    async def exclusively(context: Any, key: Any) -> Any:
        place = (HOST.get(), key)  # a process that dies takes its work along
        if place in in_flight:
            complain(f"I20: {name} works on {key} twice at once on {HOST.get()}")
        in_flight[place] = None
        try:
            return await reconcile(context, key)
        finally:
            in_flight.pop(place, None)

    return exclusively
