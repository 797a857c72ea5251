"""Bugs in what happens to whole planes and whole stores, and in who is meant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.meta import ref_of
from datum_compute.controllers.cell import machine
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.management import workload
from datum_compute.planes.bootstrap import ensure_cells
from datum_compute.planes.lifecycle import delete_held_objects
from datum_compute.planning.placement import plan_workload
from datum_compute.runtime.controller import Done, Requeue
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.patching import attribute_replaced, function_replaced

_HEARD_S = 15.0


@contextmanager
def _plane_removed_undrained() -> Iterator[None]:
    """A plane that is revoked goes at once, with the finalizers that were to clean up after it."""

    async def nobody_asked(_client: Any, _held_back: Any) -> list[str]:
        return []

    with function_replaced(delete_held_objects, lambda _: nobody_asked):
        yield


@contextmanager
def _prefix_matches_too_much() -> Iterator[None]:
    """What belongs to a workload is told by how its name begins."""

    async def reconcile(context: Any, key: Any) -> Any:
        view = context.planes.require(key.plane)
        found = view.read(WORKLOAD).get(key.ref)
        if found is None:
            return Done()
        deployments = [
            d
            for d in view.read(DEPLOYMENT).in_namespace(key.ref.namespace)
            if d.metadata.labels.get(labels.WORKLOAD_NAME, "").startswith(key.ref.name)
        ]
        plan = plan_workload(key.plane, found, deployments, context.now())
        return await carry_out(context.planes, plan)

    with attribute_replaced(workload.CONTROLLER, "reconcile", lambda _: reconcile):
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


@contextmanager
def _machines_need_the_centre() -> Iterator[None]:
    """A cell does nothing with its machines while it has not heard from the hub."""

    def make(original: Any) -> Any:
        async def reconcile(context: Any, key: Any) -> Any:
            if context.planes.hub.informer(INSTANCE).age() > _HEARD_S:
                return Requeue(_HEARD_S)
            return await original(context, key)

        return reconcile

    with attribute_replaced(machine.CONTROLLER, "reconcile", make):
        yield


BUGS = (
    PlantedBug(
        "machines-need-the-centre",
        "what runs cannot heal while the control plane is gone: no static stability (I19)",
        _machines_need_the_centre,
        meets=("LoseMachine",),
        shows=("I19",),
    ),
    PlantedBug(
        "plane-removed-undrained",
        "a project is revoked and its workloads run on: nobody is left to remove them (I15)",
        _plane_removed_undrained,
        meets=("RevokeProject",),
    ),
    PlantedBug(
        "prefix-matches-too-much",
        "one host too many is deleted: Fly, June 2024 (F34)",
        _prefix_matches_too_much,
        meets=("names alike",),
    ),
    PlantedBug(
        "written-at-every-start",
        "an upgrade writes every row, and the world resyncs: Fly, a nullable column (F30, I24)",
        _written_at_every_start,
        shows=("I24",),
    ),
)
