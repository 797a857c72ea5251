"""Plans as lines of text: the fields of a new workload, the changes to an existing one, and the
effect on instances, quota and images.

Environment variables are listed by name only, because their values often hold secrets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from datum_compute.api.compute.workload import Workload
from datum_compute.api.meta.codec import JsonObject, decode, encode, from_json
from datum_compute.api.object_diff import render_change, strip_common_prefix
from datum_compute.cli.render.output import render_count
from datum_compute.cli.workload.plan import WorkloadPlan
from datum_compute.cli.workload.preview import InstanceChanges, Preview

_NAMES_SHOWN_MAX = 6


def render_plan(plan: WorkloadPlan) -> list[str]:
    """Return one line per change, or the fields of a new workload."""
    if plan.observed is None:
        return [*_main_fields(plan.outcome["spec"]), *_other_fields(plan.desired)]
    return [render_change(change) for change in plan.changes]


# --- a new workload: containers and placements first, then every other field that is not a default

# Fields that `_main_fields` shows.
_CONTAINER_FIELDS = ("name", "image", "ports", "env")
_PLACEMENT_FIELDS = ("name", "cityCodes")
_METADATA_FIELDS = ("labels", "annotations")


def _main_fields(spec: JsonObject) -> Iterator[str]:
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


def _other_fields(desired: JsonObject) -> Iterator[str]:
    without_defaults = decode(encode(from_json(desired, Workload)))
    metadata = without_defaults.get("metadata", {})
    shown = {k: metadata[k] for k in _METADATA_FIELDS if metadata.get(k)}
    root = {**({"metadata": shown} if shown else {}), "spec": without_defaults["spec"]}
    for path, value in _leaves(root, ""):
        yield f"{strip_common_prefix(path)}: {_format_value(value)}"


def _leaves(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            if not _is_main_field(path, name) and not _is_empty_default(name, inner):
                yield from _leaves(inner, f"{path}.{name}" if path else name)
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{item.get('name', index)}]")
    else:
        yield path, value


def _is_main_field(path: str, name: str) -> bool:
    parent, _, _ = path.rpartition("[")
    if parent.endswith(".containers"):
        return path.endswith("]") and name in _CONTAINER_FIELDS
    if parent.endswith("spec.placements"):
        is_minimum = path.endswith(".scaleSettings") and name == "minReplicas"
        return name in _PLACEMENT_FIELDS or is_minimum
    return False


def _is_empty_default(name: str, value: Any) -> bool:
    """Some fields are always present, and empty if all their values are defaults."""
    return name in ("resources", "rollout") and value == {}


def _format_value(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(str(item) for item in value) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "set" if value == {} else str(value)


# --- the preview


def render_preview(preview: Preview) -> list[str]:
    lines, changes = [], preview.instances
    if changes.recreated:
        count = render_count(len(changes.recreated), "instance")
        lines.append(f"Recreates {count}, {_pace(changes)}: {_first_names(changes.recreated)}")
    for found in changes.interruptions:
        count = render_count(found.instances, "instance")
        lines.append(f"{found.city}: {count}, about {found.seconds} s without service")
    if changes.removed:
        count = render_count(len(changes.removed), "instance")
        lines.append(f"Removes {count}: {_first_names(changes.removed)}")
    if changes.created:
        lines.append(f"Creates {render_count(changes.created, 'instance')}")
    for title, texts in (("Quota", preview.quota), ("Refers to", preview.references)):
        if texts:
            lines.append(f"{title}: {', '.join(texts)}")
    lines += [f"Image {image}" for image in preview.images]
    return [*lines, *preview.warnings]


_CITY_ORDERS = {
    "Parallel": "in each of {cities} cities",
    "Sequential": "in {cities} cities, one city after the other",
    "CanaryCity": "in {cities} cities, in one city before the others",
}


def _pace(changes: InstanceChanges) -> str:
    pace = "one at a time" if changes.at_once == 1 else f"up to {changes.at_once} at a time"
    if changes.cities == 1:
        return pace
    order = _CITY_ORDERS[changes.city_order].format(cities=changes.cities)
    return f"{pace} {order}"


def _first_names(names: Sequence[str]) -> str:
    further = len(names) - _NAMES_SHOWN_MAX
    more = f" and {further} more" if further > 0 else ""
    return ", ".join(names[:_NAMES_SHOWN_MAX]) + more
