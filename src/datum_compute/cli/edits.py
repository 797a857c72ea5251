"""What a deploy asks for, as an edit: from the object as read to the object as wanted.

An edit can be repeated on a newer reading, which is what a conflict needs. Flags touch only what
they name: the container ``app`` and the placement ``default``, or the only one that there is;
everything else in the object stays as it is. A file replaces the spec, and adds its labels and
annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from datum_compute.api.codec import JsonObject, copied
from datum_compute.api.identity import normalized_city
from datum_compute.api.kinds import WORKLOAD
from datum_compute.cli.errors import UsageError
from datum_compute.cli.manifest import with_defaults

CONTAINER, PLACEMENT, PORT = "app", "default", "http"

Edit = Callable[[JsonObject | None], JsonObject]


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says; None and empty mean not said."""

    name: str
    image: str | None = None
    cities: tuple[str, ...] = ()
    minimum: int | None = None
    port: int | None = None
    env: tuple[tuple[str, str], ...] = ()


def flags_edit(flags: Flags, namespace: str, first_deploy: str) -> Edit:
    """``first_deploy`` is the command to show when a new workload lacks image or city."""

    def edit(observed: JsonObject | None) -> JsonObject:
        desired = copied(observed) if observed else _new_workload(flags, namespace, first_deploy)
        if flags.image is not None or flags.port is not None or flags.env:
            _edit_container(_item(_containers(desired), CONTAINER, "container", flags), flags)
        if flags.cities or flags.minimum is not None:
            placements = desired["spec"]["placements"]
            _edit_placement(_item(placements, PLACEMENT, "placement", flags), flags)
        return desired

    return edit


def manifest_edit(manifest: JsonObject, namespace: str) -> Edit:
    metadata, spec = manifest["metadata"], _with_normal_cities(manifest["spec"])

    def edit(observed: JsonObject | None) -> JsonObject:
        if observed is None:
            return _object({**metadata, "namespace": namespace}, spec)
        desired = copied(observed)
        for key in ("labels", "annotations"):
            if key in metadata:
                present = desired["metadata"].get(key) or {}
                desired["metadata"][key] = {**present, **metadata[key]}
        # Fields that differ only by a default are the same, whoever filled it in.
        if _with_normal_cities(with_defaults(observed["spec"])) != spec:
            desired["spec"] = spec
        return desired

    return edit


def _object(metadata: JsonObject, spec: JsonObject) -> JsonObject:
    return {
        "apiVersion": WORKLOAD.api_version,
        "kind": WORKLOAD.kind,
        "metadata": metadata,
        "spec": spec,
    }


def _new_workload(flags: Flags, namespace: str, first_deploy: str) -> JsonObject:
    needed = {"--image": flags.image, "--city": flags.cities}
    missing = " and ".join(flag for flag, value in needed.items() if not value)
    if missing:
        raise UsageError(
            f"There is no workload {flags.name!r} yet, and a new one needs {missing}.",
            f"For example: {first_deploy}",
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


def _edit_container(container: JsonObject, flags: Flags) -> None:
    if flags.image is not None:
        container["image"] = flags.image
    if flags.port is not None:
        _named_or_new(container.setdefault("ports", []), PORT)["port"] = flags.port
    for name, value in flags.env:
        _named_or_new(container.setdefault("env", []), name)["value"] = value


def _edit_placement(placement: JsonObject, flags: Flags) -> None:
    if flags.cities and [normalized_city(c) for c in placement["cityCodes"]] != [*flags.cities]:
        placement["cityCodes"] = list(flags.cities)
    if flags.minimum is not None:
        placement.setdefault("scaleSettings", {})["minReplicas"] = flags.minimum


def _containers(workload: JsonObject) -> list[JsonObject]:
    containers: list[JsonObject] = workload["spec"]["template"]["spec"]["runtime"]["sandbox"][
        "containers"
    ]
    return containers


def _item(items: Sequence[JsonObject], name: str, what: str, flags: Flags) -> JsonObject:
    """The item the flags speak about: the one of our name, or else the only one there is."""
    found = next((item for item in items if item.get("name") == name), None)
    if found is None and len(items) == 1:
        return items[0]
    if found is None:
        present = ", ".join(str(item.get("name")) for item in items)
        raise UsageError(
            f"Workload {flags.name!r} has no {what} named {name!r} (it has: {present}), "
            "and flags change only that one.",
            "Change it with a file: -f FILE",
        )
    return found


def _named_or_new(items: list[JsonObject], name: str) -> JsonObject:
    for item in items:
        if item.get("name") == name:
            return item
    new: dict[str, Any] = {"name": name}
    items.append(new)
    return new


def _with_normal_cities(spec: JsonObject) -> JsonObject:
    placements = [
        {**placement, "cityCodes": [normalized_city(c) for c in placement["cityCodes"]]}
        for placement in spec["placements"]
    ]
    return {**spec, "placements": placements}
