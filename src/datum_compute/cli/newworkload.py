"""A workload that does not exist yet, in lines: first what runs and where, then whatever else the
manifest sets that is not the default. Environment variables are told by name only: their values are
where secrets end up.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from datum_compute.api.compute.workload import Workload
from datum_compute.api.meta.codec import JsonObject, decode, encode, from_json
from datum_compute.api.object_diff import shortened

_CONTAINER = ("name", "image", "ports", "env")
_PLACEMENT = ("name", "cityCodes")
_METADATA = ("labels", "annotations")


def summary(outcome: JsonObject, desired: JsonObject) -> list[str]:
    """``outcome`` is the workload as the server would store it, ``desired`` what was written."""
    return [*_first(outcome["spec"]), *_further(desired)]


def _first(spec: JsonObject) -> Iterator[str]:
    for container in spec["template"]["spec"]["runtime"]["sandbox"]["containers"]:
        yield f"container {container['name']}: {container['image']}"
        if container.get("ports"):
            yield "  ports: " + ", ".join(str(p["port"]) for p in container["ports"])
        if container.get("env"):
            yield "  env: " + ", ".join(e["name"] for e in container["env"])
    for placement in spec["placements"]:
        cities = ", ".join(placement["cityCodes"])
        minimum = placement["scaleSettings"]["minReplicas"]
        yield f"placement {placement['name']}: at least {minimum} in each of {cities}"


def _further(desired: JsonObject) -> Iterator[str]:
    desired = decode(encode(from_json(desired, Workload)))  # without what is as it would be anyway
    metadata = desired.get("metadata", {})
    marks = {k: metadata[k] for k in _METADATA if metadata.get(k)}
    told = {"metadata": marks} if marks else {}
    for path, value in _leaves({**told, "spec": desired["spec"]}, ""):
        yield f"{shortened(path)}: {_shown(value)}"


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            if not _is_told(path, name) and not _is_usual(name, inner):
                yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{item.get('name', index)}]")
    else:
        yield path, value


def _is_told(path: str, name: str) -> bool:
    """Whether the first lines have it."""
    place, _, _ = path.rpartition("[")
    if place.endswith(".containers"):
        return path.endswith("]") and name in _CONTAINER
    if place.endswith("spec.placements"):
        return name in _PLACEMENT or (path.endswith(".scaleSettings") and name == "minReplicas")
    return False


def _is_usual(name: str, value: Any) -> bool:
    """A size is always there, and empty if it is the usual one."""
    return name == "resources" and value == {}


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "set" if value == {} else str(value)
