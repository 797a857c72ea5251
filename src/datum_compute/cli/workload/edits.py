"""What a deploy asks for, as an edit: from the object as read to the object as wanted.

An edit can be repeated on a newer reading, which is what a conflict needs. Flags touch only what
they name: the container ``app`` and the placement ``default``, or the only one that there is;
everything else in the object stays as it is. A file replaces the spec, but for restarts that it
does not speak of, and adds its labels and annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject, copied
from datum_compute.api.planes import normalize_city
from datum_compute.cli.errors import UsageError
from datum_compute.cli.workload.manifest import with_defaults

CONTAINER, PLACEMENT, PORT = "app", "default", "http"

Edit = Callable[[JsonObject | None], JsonObject]


@dataclass(frozen=True, slots=True)
class Target:
    """One workload, what is to become of it, and what was asked for (it makes the key's digest)."""

    name: str
    edit: Edit
    asked: Any


@dataclass(frozen=True, slots=True)
class Flags:
    """What the command line says; None and empty mean not said."""

    name: str
    image: str | None = None
    cities: tuple[str, ...] = ()
    minimum: int | None = None
    port: int | None = None
    env: tuple[tuple[str, str | None], ...] = ()  # None: take the variable away
    instance_type: str | None = None


def flags_edit(
    flags: Flags, namespace: str, first_deploy: str, first_cities: tuple[str, ...] = ()
) -> Edit:
    """``first_deploy`` is the command to show when a new workload lacks image or city, and
    ``first_cities`` are those of a new workload where the flags name none."""

    def edit(observed: JsonObject | None) -> JsonObject:
        if observed is None:
            first = replace(flags, cities=flags.cities or first_cities)
            desired = _new_workload(first, namespace, first_deploy)
        else:
            desired = copied(observed)
        if flags.image is not None or flags.port is not None or flags.env:
            _edit_container(_item(_containers(desired), CONTAINER, "container", flags), flags)
        if flags.cities or flags.minimum is not None:
            placements = desired["spec"]["placements"]
            _edit_placement(_item(placements, PLACEMENT, "placement", flags), flags)
        if flags.instance_type is not None:
            runtime = desired["spec"]["template"]["spec"]["runtime"]
            runtime.setdefault("resources", {})["instanceType"] = flags.instance_type
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
        wanted = _with_restarts(spec, observed["spec"])
        if _with_normal_cities(with_defaults(observed["spec"])) != wanted:
            desired["spec"] = wanted
        return desired

    return edit


def _with_restarts(spec: JsonObject, observed: JsonObject) -> JsonObject:
    """A file that says nothing of restarts does not take back those that there were: that alone
    would replace every instance once more."""
    kept = copied(spec)
    if "restarts" not in kept and observed.get("restarts"):
        kept["restarts"] = observed["restarts"]
    marks = observed["template"].get("metadata", {}).get("annotations") or {}
    if RESTARTED_AT in marks:
        metadata = kept["template"].setdefault("metadata", {})
        metadata["annotations"] = {
            RESTARTED_AT: marks[RESTARTED_AT],
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
        variables = container.setdefault("env", [])
        if value is None:
            container["env"] = [item for item in variables if item.get("name") != name]
            continue
        variable = _named_or_new(variables, name)
        variable.pop("valueFrom", None)
        variable["value"] = value
    if "env" in container and not container["env"]:
        del container["env"]


def _edit_placement(placement: JsonObject, flags: Flags) -> None:
    if flags.cities and [normalize_city(c) for c in placement["cityCodes"]] != [*flags.cities]:
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
        {**placement, "cityCodes": [normalize_city(c) for c in placement["cityCodes"]]}
        for placement in spec["placements"]
    ]
    return {**spec, "placements": placements}
