"""Bugs in what happens to whole planes and whole stores, and in who is meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api.kinds import CLUSTER
from datum_compute.api.meta import ref_of
from datum_compute.planes.bootstrap import ensure_cells
from datum_compute.planes.revoking import ask_to_go
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import function_replaced

_HEARD_S = 15.0


@contextmanager
def _plane_removed_undrained() -> Iterator[None]:
    """A plane that is revoked goes at once, with the finalizers that were to clean up after it."""

    async def nobody_asked(_client: Any, _held_back: Any) -> list[str]:
        return []

    with function_replaced(ask_to_go, lambda _: nobody_asked):
        yield


@contextmanager
def _written_at_every_start() -> Iterator[None]:
    """A start does not look whether what it brings is there already."""
    marks = iter(range(1_000_000))

    def make(original: Any) -> Any:
        async def ensured(hub: Any, *rest: Any) -> None:
            await original(hub, *rest)
            await _mark(hub, str(next(marks)))

        return ensured

    with function_replaced(ensure_cells, make):
        yield


async def _mark(hub: Any, text: str) -> None:
    for cluster in (await hub.list(CLUSTER)).items:
        mark = {"metadata": {"annotations": {"example.com/started": text}}}
        await hub.patch(CLUSTER, ref_of(cluster), mark)


BUGS = (
    PlantedBug(
        "plane-removed-undrained",
        "a project is revoked and its workloads run on: nobody is left to remove them (I15)",
        _plane_removed_undrained,
        meets=("RevokeProject",),
    ),
    PlantedBug(
        "written-at-every-start",
        "an upgrade writes every row, and the world resyncs: Fly, a nullable column (F30, I24)",
        _written_at_every_start,
        shows=("I24",),
    ),
)
