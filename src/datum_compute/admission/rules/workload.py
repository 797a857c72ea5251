"""Rules for Workloads: cities are upper-case codes, names inside a template are unique, and the
template is small enough for all that is made from it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.admission.rules.template import containers
from datum_compute.api.errors import Cause
from datum_compute.api.identity import normalized_city
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.names import label_value_problem, qualified_name_problem

# Deployments, Works, instances and machines carry the template and, beside it, who owns each of its
# fields, which takes up to three times as much.
TEMPLATE_BYTES_MAX = 256 * 1024


def with_upper_case_cities(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """Cities lie outside the template, so writing them in another case rolls nothing."""
    placements = [_with_upper_case(placement) for placement in new["spec"]["placements"]]
    spec = {**new["spec"], "placements": placements}
    if spec.get("restarts"):
        spec["restarts"] = [
            {**restart, "cityCode": normalized_city(restart["cityCode"])}
            for restart in spec["restarts"]
        ]
    return {**new, "spec": spec}


def _with_upper_case(placement: JsonObject) -> JsonObject:
    found: JsonObject = {
        field: [normalized_city(city) for city in placement[field]]
        for field in ("cityCodes", "fallbackCityCodes")
        if field in placement
    }
    if "cityFloors" in placement:
        found["cityFloors"] = [
            {**floor, "cityCode": normalized_city(floor["cityCode"])}
            for floor in placement["cityFloors"]
        ]
    return {**placement, **found}


def template_labels_are_labels(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """They become labels of instances, where it would be too late to refuse them."""
    template = new["spec"]["template"].get("metadata", {})
    for key, value in template.get("labels", {}).items():
        problem = qualified_name_problem(key) or label_value_problem(value)
        if problem:
            message = f'Invalid value: "{key}={value}": {problem}'
            yield Cause("spec.template.metadata.labels", "FieldValueInvalid", message)
    for key in template.get("annotations", {}):
        if problem := qualified_name_problem(key.lower()):
            message = f'Invalid value: "{key}": {problem}'
            yield Cause("spec.template.metadata.annotations", "FieldValueInvalid", message)


def template_fits(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """A template that is only kept may be as large as it is."""
    template = new["spec"]["template"]
    if old is not None and old["spec"].get("template") == template:
        return
    size = len(encode(template))
    if size > TEMPLATE_BYTES_MAX:
        why = (
            f"Too long: may not be more than {TEMPLATE_BYTES_MAX} bytes, got {size}; every "
            "instance carries it. Put large data into the image, or fetch it when the container "
            "starts"
        )
        yield Cause("spec.template", "FieldValueTooLong", why)


def cities_are_unique(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Within one placement; the schema could not see that dfw and DFW are the same city. A city
    that a placement runs in is no fallback of it."""
    for index, placement in enumerate(new["spec"]["placements"]):
        yield from _duplicates(
            (f"spec.placements[{index}].{field}[{position}]", normalized_city(city))
            for field in ("cityCodes", "fallbackCityCodes")
            for position, city in enumerate(placement.get(field, ()))
        )


def floors_can_be_kept(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Each of a city of the placement, and not above what runs there."""
    for index, placement in enumerate(new["spec"]["placements"]):
        cities = [normalized_city(city) for city in placement["cityCodes"]]
        most = placement["scaleSettings"]["minReplicas"]
        path = f"spec.placements[{index}].cityFloors"
        floors = placement.get("cityFloors", ())
        for position, floor in enumerate(floors):
            city, ready = normalized_city(floor["cityCode"]), floor["readyReplicas"]
            if city not in cities:
                why = f'Invalid value: "{city}": must be one of cityCodes: {", ".join(cities)}'
                yield Cause(f"{path}[{position}].cityCode", "FieldValueInvalid", why)
            if ready > most:
                why = f"Invalid value: {ready}: must not be above minReplicas, which is {most}"
                yield Cause(f"{path}[{position}].readyReplicas", "FieldValueInvalid", why)
        yield from _duplicates(
            (f"{path}[{position}].cityCode", normalized_city(floor["cityCode"]))
            for position, floor in enumerate(floors)
        )
        if floors and not placement.get("fallbackCityCodes"):
            why = "Forbidden: has no effect without fallbackCityCodes; name some, or leave it out"
            yield Cause(path, "FieldValueForbidden", why)


def port_names_are_unique(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Over all containers: they share one address, and a port is found by its name."""
    yield from _duplicates(
        (f"{path}.ports[{position}].name", port["name"])
        for path, container in containers(new)
        for position, port in enumerate(container.get("ports", ()))
    )


def env_names_are_unique(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for path, container in containers(new):
        yield from _duplicates(
            (f"{path}.env[{position}].name", variable["name"])
            for position, variable in enumerate(container.get("env", ()))
        )


def _duplicates(named: Iterable[tuple[str, str]]) -> Iterator[Cause]:
    first: dict[str, str] = {}
    for path, name in named:
        if name in first:
            message = f'Duplicate value: "{name}" is already at {first[name]}'
            yield Cause(path, "FieldValueDuplicate", message)
        first.setdefault(name, path)
