"""Edits: functions from the stored workload to the desired one.

An edit can be repeated on a newer version of the object, which a write conflict requires. Flags
change only the fields that they name, in the container ``app`` and the placement ``default``, or in
the only one. A manifest replaces the spec, except restarts that it does not mention, and merges its
labels and annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject, deep_copy
from datum_compute.api.planes import normalize_city
from datum_compute.cli.errors import UsageError
from datum_compute.cli.workload.manifest import with_defaults
from datum_compute.cli.workload.request import WorkloadFlags

CONTAINER, PLACEMENT, PORT = "app", "default", "http"

Edit = Callable[[JsonObject | None], JsonObject]


@dataclass(frozen=True, slots=True)
class DeployTarget:
    """One workload, the edit to apply, and the request as plain JSON, from which the digest of a
    deploy key is made."""

    name: str
    edit: Edit
    request: Any


def flags_edit(
    flags: WorkloadFlags, namespace: str, example: str, first_cities: tuple[str, ...] = ()
) -> Edit:
    """``example`` is a command for the error if a new workload has no image or city.

    ``first_cities`` are the cities of a new workload if no flag names any.
    """

    def edit(observed: JsonObject | None) -> JsonObject:
        if observed is None:
            first = replace(flags, cities=flags.cities or first_cities)
            desired = _new_workload(first, namespace, example)
        else:
            desired = deep_copy(observed)
        if flags.image is not None or flags.port is not None or flags.env:
            _edit_container(_find_item(_containers(desired), CONTAINER, "container", flags), flags)
        if flags.cities or flags.minimum is not None:
            placements = desired["spec"]["placements"]
            _edit_placement(_find_item(placements, PLACEMENT, "placement", flags), flags)
        if flags.instance_type is not None:
            runtime = desired["spec"]["template"]["spec"]["runtime"]
            runtime.setdefault("resources", {})["instanceType"] = flags.instance_type
        if flags.auto_rollback is not None:
            action = "Rollback" if flags.auto_rollback else "Stop"
            desired["spec"].setdefault("rollout", {})["onFailure"] = action
        return desired

    return edit


def manifest_edit(manifest: JsonObject, namespace: str) -> Edit:
    metadata, spec = manifest["metadata"], _with_normal_cities(manifest["spec"])

    def edit(observed: JsonObject | None) -> JsonObject:
        if observed is None:
            return _object({**metadata, "namespace": namespace}, spec)
        desired = deep_copy(observed)
        for key in ("labels", "annotations"):
            if key in metadata:
                present = desired["metadata"].get(key) or {}
                desired["metadata"][key] = {**present, **metadata[key]}
        # A field that differs only by a default is unchanged.
        desired_spec = _with_restarts(spec, observed["spec"])
        if _with_normal_cities(with_defaults(observed["spec"])) != desired_spec:
            desired["spec"] = desired_spec
        return desired

    return edit


def _with_restarts(spec: JsonObject, observed: JsonObject) -> JsonObject:
    """Keep the restarts of the stored workload that the manifest does not mention, and its stop.

    Otherwise the template would change, and every instance would be replaced again. A deploy does
    not start a stopped workload.
    """
    kept = deep_copy(spec)
    if "stopped" not in kept and observed.get("stopped"):
        kept["stopped"] = True
    if "restarts" not in kept and observed.get("restarts"):
        kept["restarts"] = observed["restarts"]
    annotations = observed["template"].get("metadata", {}).get("annotations") or {}
    if RESTARTED_AT in annotations:
        metadata = kept["template"].setdefault("metadata", {})
        metadata["annotations"] = {
            RESTARTED_AT: annotations[RESTARTED_AT],
            **(metadata.get("annotations") or {}),
        }
    return kept


def _object(metadata: JsonObject, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _new_workload(flags: WorkloadFlags, namespace: str, example: str) -> JsonObject:
    required = {"--image": flags.image, "--city": flags.cities}
    missing = " and ".join(flag for flag, value in required.items() if not value)
    if missing:
        raise UsageError(
            f"There is no workload {flags.name!r} yet, and a new one needs {missing}.",
            f"For example: {example}",
        )
    container = {"name": CONTAINER, "image": flags.image}
    placement = {
        "name": PLACEMENT,
        "cityCodes": list(flags.cities),
        "scaleSettings": {"minReplicas": flags.minimum or 1},
    }
    template = {"spec": {"runtime": {"sandbox": {"containers": [container]}}}}
    return _object(
        {"name": flags.name, "namespace": namespace},
        {"template": template, "placements": [placement]},
    )


def _edit_container(container: JsonObject, flags: WorkloadFlags) -> None:
    if flags.image is not None:
        container["image"] = flags.image
    if flags.port is not None:
        _find_or_append(container.setdefault("ports", []), PORT)["port"] = flags.port
    for name, value in flags.env:
        variables = container.setdefault("env", [])
        if value is None:
            container["env"] = [item for item in variables if item.get("name") != name]
            continue
        variable = _find_or_append(variables, name)
        variable.pop("valueFrom", None)
        variable["value"] = value
    if "env" in container and not container["env"]:
        del container["env"]


def _edit_placement(placement: JsonObject, flags: WorkloadFlags) -> None:
    if flags.cities and [normalize_city(c) for c in placement["cityCodes"]] != [*flags.cities]:
        placement["cityCodes"] = list(flags.cities)
    if flags.minimum is not None:
        placement.setdefault("scaleSettings", {})["minReplicas"] = flags.minimum


def _containers(workload: JsonObject) -> list[JsonObject]:
    containers: list[JsonObject] = workload["spec"]["template"]["spec"]["runtime"]["sandbox"][
        "containers"
    ]
    return containers


def _find_item(
    items: Sequence[JsonObject], name: str, noun: str, flags: WorkloadFlags
) -> JsonObject:
    """Return the item of this name, or the only item."""
    found = next((item for item in items if item.get("name") == name), None)
    if found is None and len(items) == 1:
        return items[0]
    if found is None:
        present = ", ".join(str(item.get("name")) for item in items)
        raise UsageError(
            f"Workload {flags.name!r} has no {noun} named {name!r} (it has: {present}), "
            "and flags change only that one.",
            "Change it with a file: -f FILE",
        )
    return found


def _find_or_append(items: list[JsonObject], name: str) -> JsonObject:
    for item in items:
        if item.get("name") == name:
            return item
    appended: JsonObject = {"name": name}
    items.append(appended)
    return appended


def _with_normal_cities(spec: JsonObject) -> JsonObject:
    placements = [
        {**placement, "cityCodes": [normalize_city(c) for c in placement["cityCodes"]]}
        for placement in spec["placements"]
    ]
    return {**spec, "placements": placements}
