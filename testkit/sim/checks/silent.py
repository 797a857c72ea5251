"""What must hold after the calm of cells that never came back: nobody believes them any more."""

from __future__ import annotations

from collections.abc import Iterator

from datum_compute.api import labels
from datum_compute.api.codec import JsonObject
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, WORKLOAD
from datum_compute.api.plane import project_plane
from testkit.sim.checks.core import Core
from testkit.sim.checks.truth import Truth, is_terminating, is_true

_GOOD = ("Available", "Ready", "ReplicasReady")


def i7_nothing_outlives_its_cell(truth: Truth, core: Core) -> str:
    """I7: nothing that is on lost cells only is called available or ready in its project."""
    for project in core.projects if core.lost else ():
        plane = project_plane(project)
        for name, row in _on_lost_cells(truth, core, plane):
            called = [type_ for type_ in _GOOD if is_true(row, type_)]
            ready = (row.get("status") or {}).get("readyReplicas", 0)
            if called or ready:
                return f"{plane} {name}: {called}, {ready} ready, and its cell is lost"
    return ""


def is_of_any(instance: JsonObject, cells: frozenset[str]) -> bool:
    """By either label: operators edit one at a time."""
    told = instance["metadata"].get("labels", {})
    return told.get(labels.CITY_CODE, "").lower() in cells or told.get(labels.CELL, "") in cells


def _on_lost_cells(truth: Truth, core: Core, plane: str) -> Iterator[tuple[str, JsonObject]]:
    for key, row in truth.of_resource(plane, INSTANCE.resource):
        if is_of_any(row, core.lost) and not is_terminating(row):
            yield f"instance {key.name}", row
    for key, row in truth.of_resource(plane, DEPLOYMENT.resource):
        if row["spec"].get("cityCode", "").lower() in core.lost and not is_terminating(row):
            yield f"deployment {key.name}", row
    for key, row in truth.of_resource(plane, WORKLOAD.resource):
        wanted = core.wanted.get((plane.partition("/")[2], key.name))
        if wanted is None or wanted.fallback:
            continue  # that another city has taken its share is checked with the machines
        if all(city.lower() in core.lost for city in wanted.cities):
            yield f"workload {key.name}", row
