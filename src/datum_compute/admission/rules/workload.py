"""Rules for Workloads: cities, size and labels of the template, probes, scale to zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from datum_compute.admission.rules.template import TemplateParts, check_exactly_one
from datum_compute.api.compute.scale_to_zero import IDLE_MAX_S, IDLE_MIN_S, duration_seconds
from datum_compute.api.errors import Cause
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.names import label_value_problem, qualified_name_problem
from datum_compute.api.planes import normalize_city

# Deployments, Works, instances and machines contain the template and the managers of its fields,
# which take up to three times as much.
TEMPLATE_BYTES_MAX = 256 * 1024


def normalize_cities(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """Write cities in upper case. They are not part of the template: no rollout follows."""
    placements = [_with_upper_case(placement) for placement in new["spec"]["placements"]]
    spec = {**new["spec"], "placements": placements}
    if spec.get("restarts"):
        spec["restarts"] = [
            {**restart, "cityCode": normalize_city(restart["cityCode"])}
            for restart in spec["restarts"]
        ]
    if (spec.get("rollout") or {}).get("canaryCity"):
        canary = normalize_city(spec["rollout"]["canaryCity"])
        spec["rollout"] = {**spec["rollout"], "canaryCity": canary}
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


def check_template_metadata(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Labels and annotations of the template are copied to instances, and must be valid there."""
    template = new["spec"]["template"].get("metadata", {})
    for key, value in template.get("labels", {}).items():
        problem = qualified_name_problem(key) or label_value_problem(value)
        if problem:
            yield Cause.invalid("spec.template.metadata.labels", problem, f"{key}={value}")
    for key in template.get("annotations", {}):
        if problem := qualified_name_problem(key.lower()):
            yield Cause.invalid("spec.template.metadata.annotations", problem, key)


def check_template_size(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Limit the size of a new or changed template."""
    template = new["spec"]["template"]
    if old is not None and old["spec"].get("template") == template:
        return
    size = len(encode(template))
    if size > TEMPLATE_BYTES_MAX:
        why = (
            f"may not be more than {TEMPLATE_BYTES_MAX} bytes, got {size}; every "
            "instance carries it. Put large data into the image, or fetch it when the container "
            "starts"
        )
        yield Cause.too_long("spec.template", why)


def check_cities_unique(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """A placement contains each city once, as a city or as a fallback.

    The schema does not detect that dfw and DFW are the same city.
    """
    for index, placement in enumerate(new["spec"]["placements"]):
        yield from _duplicates(
            (f"spec.placements[{index}].{field}[{position}]", normalize_city(city))
            for field in ("cityCodes", "fallbackCityCodes")
            for position, city in enumerate(placement.get(field, ()))
        )


def check_city_floors(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Each floor is for a city of the placement, and not above its replicas."""
    for index, placement in enumerate(new["spec"]["placements"]):
        cities = [normalize_city(city) for city in placement["cityCodes"]]
        replicas = placement["scaleSettings"]["minReplicas"]
        path = f"spec.placements[{index}].cityFloors"
        floors = placement.get("cityFloors", ())
        for position, floor in enumerate(floors):
            city, ready = normalize_city(floor["cityCode"]), floor["readyReplicas"]
            if city not in cities:
                why = f"must be one of cityCodes: {', '.join(cities)}"
                yield Cause.invalid(f"{path}[{position}].cityCode", why, city)
            if ready > replicas:
                why = f"must not be above minReplicas, which is {replicas}"
                yield Cause.invalid(f"{path}[{position}].readyReplicas", why, ready)
        yield from _duplicates(
            (f"{path}[{position}].cityCode", normalize_city(floor["cityCode"]))
            for position, floor in enumerate(floors)
        )
        if floors and not placement.get("fallbackCityCodes"):
            why = "has no effect without fallbackCityCodes; name some, or leave it out"
            yield Cause.forbidden(path, why)


def check_canary_city(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """``canaryCity`` is a city of a placement, and needs the city order that uses it."""
    policy = new["spec"].get("rollout") or {}
    canary = policy.get("canaryCity")
    if canary is None:
        return
    path = "spec.rollout.canaryCity"
    if policy.get("cityOrder") != "CanaryCity":
        yield Cause.forbidden(path, "has no effect unless cityOrder is CanaryCity")
    cities = [normalize_city(c) for p in new["spec"]["placements"] for c in p["cityCodes"]]
    if normalize_city(canary) not in cities:
        present = ", ".join(dict.fromkeys(cities))
        yield Cause.invalid(path, f"must be a city of a placement: {present}", canary)


_NO_INSTANCES = (0, "0%")


def check_rollout_can_proceed(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """A rollout needs an instance that may be unavailable, or a surge instance."""
    for index, placement in enumerate(new["spec"]["placements"]):
        settings = placement["scaleSettings"]
        surge, replicas = settings.get("maxSurge"), settings["minReplicas"]
        # The default of maxSurge is 1 for one replica; see planning/rollout/surge.py.
        has_surge = replicas == 1 if surge is None else surge not in _NO_INSTANCES
        if settings.get("maxUnavailable") in _NO_INSTANCES and not has_surge:
            path = f"spec.placements[{index}].scaleSettings"
            default = f", its default for {replicas} replicas" if surge is None else ""
            why = (
                f"no rollout could proceed, because {path}.maxSurge is 0{default}; "
                "set maxSurge to 1, or maxUnavailable to 1"
            )
            yield Cause.invalid(f"{path}.maxUnavailable", why, settings["maxUnavailable"])


def check_port_names_unique(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    """Port names are unique in a template: containers share an address, and names select ports."""
    yield from _duplicates(
        (f"{path}.ports[{position}].name", port["name"])
        for path, container in new.containers
        for position, port in enumerate(container.get("ports", ()))
    )


def check_env_names_unique(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    for path, container in new.containers:
        yield from _duplicates(
            (f"{path}.env[{position}].name", variable["name"])
            for position, variable in enumerate(container.get("env", ()))
        )


def _duplicates(named: Iterable[tuple[str, str]]) -> Iterator[Cause]:
    first: dict[str, str] = {}
    for path, name in named:
        if name in first:
            yield Cause.duplicate(path, name, f"also at {first[name]}")
        first.setdefault(name, path)


# --- Probes, and the user of a container


_PROBES = ("readinessProbe", "livenessProbe")


def check_probes(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    """A probe has one action, and a named port exists in its container."""
    for path, container in new.containers:
        named = {port["name"] for port in container.get("ports", ())}
        for field in _PROBES:
            probe = container.get(field)
            if probe is not None:
                yield from check_exactly_one(
                    f"{path}.{field}", probe, "httpGet", "tcpSocket", "exec"
                )
                yield from _check_probe_port(f"{path}.{field}", probe, named)


def check_group_has_user(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    for path, container in new.containers:
        context = container.get("securityContext", {})
        if context.get("runAsGroup") is not None and context.get("runAsUser") is None:
            why = "runAsGroup needs a user; give both or none"
            yield Cause.required(f"{path}.securityContext.runAsUser", why)


def _check_probe_port(path: str, probe: JsonObject, named: set[str]) -> Iterator[Cause]:
    for action in ("httpGet", "tcpSocket"):
        port = (probe.get(action) or {}).get("port")
        if isinstance(port, str) and port not in named:
            why = "must be the name of a port of this container"
            yield Cause.not_found(f"{path}.{action}.port", port, why)


# --- Scale to zero


_FIELD = "spec.template.spec.scaleToZero"


def check_idle_time(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    settings = new.spec.get("scaleToZero")
    if settings is None:
        return
    idle_after = settings.get("idleAfter", "30s")
    if not IDLE_MIN_S <= duration_seconds(idle_after) <= IDLE_MAX_S:
        why = "must be from 100ms to 24h"
        yield Cause.invalid(f"{_FIELD}.idleAfter", why, idle_after)


def check_can_be_woken(new: TemplateParts, old: TemplateParts | None) -> Iterable[Cause]:
    """An instance needs a TCP port: only a connection to a published port wakes it."""
    if new.spec.get("scaleToZero") is None:
        return
    ports = [port for _, container in new.containers for port in container.get("ports", ())]
    if not any(port.get("protocol", "TCP") == "TCP" for port in ports):
        why = (
            "no container has a TCP port, so nothing could wake an instance; name "
            "the port it listens on (ports: [{name: http, port: 8080}]) or leave scaleToZero out"
        )
        yield Cause.invalid(_FIELD, why)


# --- Labels and annotations that only the platform writes
# They contain the owner, cell and deployment of an instance and the state of its copies. If a
# template could set one, controllers would overwrite it again and again.


_DOMAINS = ("compute.datumapis.com", "meta.datumapis.com", "karmada.io")
_FOR_USERS = frozenset({RESTARTED_AT})


def check_reserved_names(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Refuse new reserved keys. A key that was stored before the rule existed can stay."""
    sent, stored = _metadata(new), _metadata(old)
    for part in ("labels", "annotations"):
        for key in sorted((sent.get(part) or {}).keys() - (stored.get(part) or {}).keys()):
            if is_reserved(key):
                why = "only the platform writes names of this domain; use one of your own"
                yield Cause.forbidden(f"spec.template.metadata.{part}", f'"{key}": {why}')


def is_reserved(key: str) -> bool:
    domain = key.lower().rpartition("/")[0]
    in_domain = any(domain == one or domain.endswith(f".{one}") for one in _DOMAINS)
    return in_domain and key not in _FOR_USERS


def _metadata(workload: JsonObject | None) -> JsonObject:
    template: JsonObject = workload["spec"]["template"] if workload is not None else {}
    return template.get("metadata") or {}
