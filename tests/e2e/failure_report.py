"""A report section for a failed test: the objects on each plane, and the last log lines.

A plane that cannot be listed appears with its error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tests.e2e.processes import (
    CENTER,
    CLUSTERS,
    COMPUTE,
    DEPLOYMENTS,
    INSTANCES,
    SERVERS,
    WORKS,
    Object,
)
from tests.e2e.topologies import Topology

CLAIMS = "/apis/quota.miloapis.com/v1alpha1/resourceclaims"
BINDINGS = "/apis/work.karmada.io/v1alpha2/resourcebindings"
PATHS = {
    "project/default": (f"{COMPUTE}/workloads", DEPLOYMENTS, INSTANCES, CLAIMS),
    "hub": (CLUSTERS, DEPLOYMENTS, BINDINGS, WORKS, INSTANCES),
    "cell": (DEPLOYMENTS, INSTANCES, SERVERS),
}
LOG_LINES = 15
MESSAGE_MAX = 160


def describe_topology(topology: Topology) -> str:
    planes = ["project/default", "hub", *(f"cell/{cell}" for cell in topology.cells)]
    lines = [line for plane in planes for line in _describe_plane(topology, plane)]
    lines += _last_log_lines(getattr(topology, "folder", None), (CENTER, *topology.cells))
    return "\n".join(lines)


def _describe_plane(topology: Topology, plane: str) -> Iterable[str]:
    for path in PATHS.get(plane) or PATHS["cell"]:
        kind = path.rpartition("/")[2]
        found = _list_or_error(lambda: topology.api(plane, manager=True).items(path))  # noqa: B023
        if isinstance(found, str):
            yield f"{plane} {kind}: {found}"
            continue
        yield f"{plane} {kind}: {len(found)}"
        yield from (f"  {_describe_object(obj)}" for obj in found)


def _list_or_error(list_objects: Callable[[], list[Object]]) -> list[Object] | str:
    try:
        return list_objects()
    except (OSError, KeyError, ValueError) as error:  # the plane itself may have failed
        return repr(error)


def _describe_object(obj: Object) -> str:
    metadata, status = obj["metadata"], obj.get("status", {})
    name = "/".join(filter(None, (metadata.get("namespace", ""), metadata["name"])))
    terminating = " (terminating)" if metadata.get("deletionTimestamp") else ""
    taints = [t["key"] for t in obj.get("spec", {}).get("taints", [])]
    conditions = [_describe_condition(c) for c in status.get("conditions", [])]
    phase = [status["phase"]] if "phase" in status else []
    return f"{name}{terminating}: {', '.join([*phase, *taints, *conditions]) or 'no status'}"


def _describe_condition(condition: Object) -> str:
    text = f"{condition['type']}={condition['status']}/{condition.get('reason', '')}"
    if condition["status"] == "True":
        return text
    return f"{text} ({condition.get('message', '')[:MESSAGE_MAX]})"


def _last_log_lines(folder: Path | None, parts: Iterable[str]) -> Iterable[str]:
    """Yield the last lines of each log of our managers, if they write to a folder."""
    for log in (folder / f"{part}.log" for part in parts) if folder is not None else ():
        yield f"--- {log.name}"
        written = log.read_text(errors="replace") if log.exists() else "it was not started"
        yield from written.splitlines()[-LOG_LINES:]
