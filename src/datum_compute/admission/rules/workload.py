"""Rules for Workloads: cities are upper-case codes, names inside a template are unique, and the
template is small enough for all that is made from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.admission.rules.template import containers, one_of
from datum_compute.api.compute.scale_to_zero import IDLE_MAX_S, IDLE_MIN_S, duration_seconds
from datum_compute.api.errors import Cause
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.names import label_value_problem, qualified_name_problem
from datum_compute.api.planes import normalize_city

# Deployments, Works, instances and machines carry the template and, beside it, who owns each of its
# fields, which takes up to three times as much.
TEMPLATE_BYTES_MAX = 256 * 1024


def with_upper_case_cities(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """Cities lie outside the template, so writing them in another case rolls nothing."""
    placements = [_with_upper_case(placement) for placement in new["spec"]["placements"]]
    spec = {**new["spec"], "placements": placements}
    if spec.get("restarts"):
        spec["restarts"] = [
            {**restart, "cityCode": normalize_city(restart["cityCode"])}
            for restart in spec["restarts"]
        ]
    return {**new, "spec": spec}


def _with_upper_case(placement: JsonObject) -> JsonObject:
    found: JsonObject = {
        field: [normalize_city(city) for city in placement[field]]
        for field in ("cityCodes", "fallbackCityCodes")
        if field in placement
    }
    if "cityFloors" in placement:
        found["cityFloors"] = [
            {**floor, "cityCode": normalize_city(floor["cityCode"])}
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
            (f"spec.placements[{index}].{field}[{position}]", normalize_city(city))
            for field in ("cityCodes", "fallbackCityCodes")
            for position, city in enumerate(placement.get(field, ()))
        )


def floors_can_be_kept(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Each of a city of the placement, and not above what runs there."""
    for index, placement in enumerate(new["spec"]["placements"]):
        cities = [normalize_city(city) for city in placement["cityCodes"]]
        most = placement["scaleSettings"]["minReplicas"]
        path = f"spec.placements[{index}].cityFloors"
        floors = placement.get("cityFloors", ())
        for position, floor in enumerate(floors):
            city, ready = normalize_city(floor["cityCode"]), floor["readyReplicas"]
            if city not in cities:
                why = f'Invalid value: "{city}": must be one of cityCodes: {", ".join(cities)}'
                yield Cause(f"{path}[{position}].cityCode", "FieldValueInvalid", why)
            if ready > most:
                why = f"Invalid value: {ready}: must not be above minReplicas, which is {most}"
                yield Cause(f"{path}[{position}].readyReplicas", "FieldValueInvalid", why)
        yield from _duplicates(
            (f"{path}[{position}].cityCode", normalize_city(floor["cityCode"]))
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


# --- Rules for the probes of containers, and for as whom they run


_PROBES = ("readinessProbe", "livenessProbe")


def probes_ask_one_thing(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Exactly one question, and of a port that there is."""
    for path, container in containers(new):
        named = {port["name"] for port in container.get("ports", ())}
        for field in _PROBES:
            probe = container.get(field)
            if probe is not None:
                yield from one_of(f"{path}.{field}", probe, "httpGet", "tcpSocket", "exec")
                yield from _ports(f"{path}.{field}", probe, named)


def groups_come_with_users(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    for path, container in containers(new):
        context = container.get("securityContext", {})
        if context.get("runAsGroup") is not None and context.get("runAsUser") is None:
            why = "Required value: runAsGroup needs a user; give both or none"
            yield Cause(f"{path}.securityContext.runAsUser", "FieldValueRequired", why)


def _ports(path: str, probe: JsonObject, named: set[str]) -> Iterator[Cause]:
    for question in ("httpGet", "tcpSocket"):
        port = (probe.get(question) or {}).get("port")
        if isinstance(port, str) and port not in named:
            message = f'Not found: "{port}" is not the name of a port of this container'
            yield Cause(f"{path}.{question}.port", "FieldValueNotFound", message)


# --- Rules for scale to zero: what sleeps can be woken, and after a time that makes sense


_FIELD = "spec.template.spec.scaleToZero"


def idle_times_make_sense(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    wish = new["spec"]["template"]["spec"].get("scaleToZero")
    if wish is None:
        return
    idle_after = wish.get("idleAfter", "30s")
    if not IDLE_MIN_S <= duration_seconds(idle_after) <= IDLE_MAX_S:
        why = f'Invalid value: "{idle_after}": must be from 100ms to 24h'
        yield Cause(f"{_FIELD}.idleAfter", "FieldValueInvalid", why)


def sleepers_can_be_woken(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Only a connection to a published port wakes an instance: without one it sleeps for ever."""
    if new["spec"]["template"]["spec"].get("scaleToZero") is None:
        return
    ports = [port for _, container in containers(new) for port in container.get("ports", ())]
    if not any(port.get("protocol", "TCP") == "TCP" for port in ports):
        why = (
            "Invalid value: no container has a TCP port, so nothing could wake an instance; name "
            "the port it listens on (ports: [{name: http, port: 8080}]) or leave scaleToZero out"
        )
        yield Cause(_FIELD, "FieldValueInvalid", why)


# --- Labels and annotations of instances that only the platform writes
# They say whose an instance is, of which cell and deployment, and what became of its copies. A
# template that carries one would say it in the platform's name, and controllers would put it right
# for ever.


_DOMAINS = ("compute.datumapis.com", "meta.datumapis.com", "karmada.io")
_FOR_USERS = frozenset({RESTARTED_AT})


def template_leaves_platform_names_alone(
    new: JsonObject, old: JsonObject | None
) -> Iterable[Cause]:
    """One that was stored before there was this rule can stay, so that its workload can change."""
    asked, kept = _metadata(new), _metadata(old)
    for part in ("labels", "annotations"):
        for key in sorted((asked.get(part) or {}).keys() - (kept.get(part) or {}).keys()):
            if is_reserved(key):
                why = f'Forbidden: "{key}": the platform alone writes names of this domain'
                field = f"spec.template.metadata.{part}"
                yield Cause(field, "FieldValueForbidden", f"{why}; use one of your own")


def is_reserved(key: str) -> bool:
    domain = key.lower().rpartition("/")[0]
    ours = any(domain == one or domain.endswith(f".{one}") for one in _DOMAINS)
    return ours and key not in _FOR_USERS


def _metadata(workload: JsonObject | None) -> JsonObject:
    template: JsonObject = workload["spec"]["template"] if workload is not None else {}
    return template.get("metadata") or {}
