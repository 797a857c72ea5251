"""What the planes of a topology hold when a test has failed on it, as a section of its report: who
waits for what, and what processes said last. Whatever cannot be asked is named and left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tests.e2e.processes import CLUSTERS, COMPUTE, DEPLOYMENTS, INSTANCES, SERVERS, WORKS, Object
from tests.e2e.topologies import CENTRE, Topology

CLAIMS = "/apis/quota.miloapis.com/v1alpha1/resourceclaims"
BINDINGS = "/apis/work.karmada.io/v1alpha2/resourcebindings"
ON = {
    "project/default": (f"{COMPUTE}/workloads", DEPLOYMENTS, INSTANCES, CLAIMS),
    "hub": (CLUSTERS, DEPLOYMENTS, BINDINGS, WORKS, INSTANCES),
    "cell": (DEPLOYMENTS, INSTANCES, SERVERS),
}
LINES = 15
MESSAGE_MAX = 160


def aftermath(topology: Topology) -> str:
    planes = ["project/default", "hub", *(f"cell/{cell}" for cell in topology.cells)]
    told = [line for plane in planes for line in _plane(topology, plane)]
    told += _last_words(getattr(topology, "folder", None), (CENTRE, *topology.cells))
    return "\n".join(told)


def _plane(topology: Topology, plane: str) -> Iterable[str]:
    for path in ON.get(plane) or ON["cell"]:
        kind = path.rpartition("/")[2]
        found = _unless_refused(lambda: topology.api(plane, manager=True).items(path))  # noqa: B023
        if isinstance(found, str):
            yield f"{plane} {kind}: {found}"
            continue
        yield f"{plane} {kind}: {len(found)}"
        yield from (f"  {_told(obj)}" for obj in found)


def _unless_refused(ask: Callable[[], list[Object]]) -> list[Object] | str:
    try:
        return ask()
    except (OSError, KeyError, ValueError) as error:  # the plane may be what has failed
        return repr(error)


def _told(obj: Object) -> str:
    metadata, status = obj["metadata"], obj.get("status", {})
    name = "/".join(filter(None, (metadata.get("namespace", ""), metadata["name"])))
    going = " (going)" if metadata.get("deletionTimestamp") else ""
    taints = [t["key"] for t in obj.get("spec", {}).get("taints", [])]
    said = [_condition(c) for c in status.get("conditions", [])]
    phase = [status["phase"]] if "phase" in status else []
    return f"{name}{going}: {', '.join([*phase, *taints, *said]) or 'nothing said'}"


def _condition(condition: Object) -> str:
    told = f"{condition['type']}={condition['status']}/{condition.get('reason', '')}"
    if condition["status"] == "True":
        return told
    return f"{told} ({condition.get('message', '')[:MESSAGE_MAX]})"


def _last_words(folder: Path | None, parts: Iterable[str]) -> Iterable[str]:
    """Of our managers, where they write into a folder."""
    for log in (folder / f"{part}.log" for part in parts) if folder is not None else ():
        yield f"--- {log.name}"
        written = log.read_text(errors="replace") if log.exists() else "it has not begun"
        yield from written.splitlines()[-LINES:]
