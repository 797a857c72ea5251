"""Rules for the objects that a Workload refers to: networks, data, cities and its instance type.

The platform attaches networks and reads ConfigMaps and Secrets with its own permissions. The user
who writes the Workload therefore needs the verb ``use`` on each network, and ``get`` on each source
of data, in the namespace of that object.

Access to a network is checked when the Workload refers to it for the first time. Access to data is
checked on each change of the template: a user who chooses the image, the command or another
container decides who can read the data. A restart runs the same code with the same data, and scale,
pause and placements are not in the template, so they need no access to data.

A Workload without a network uses the network ``default`` of the project, which serves all
namespaces. Its user needs ``use`` on a network of that name in the namespace of the Workload.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from datum_compute.admission.findings import AdmissionWarning, Finding, suggest_names
from datum_compute.admission.queries import AccessQuery, Answers, ListQuery, Write, once_per_write
from datum_compute.admission.rules.template import INTERFACES_FIELD, interfaces
from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.instance_type import BUILT_IN_SIZES, size_name
from datum_compute.api.compute.referenced_data import references_of
from datum_compute.api.conditions import FALSE
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import CONFIG_MAP, INSTANCE_TYPE, LOCATION_BINDING, NETWORK, SECRET
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import DecodeError, JsonObject, from_json
from datum_compute.api.meta.fields import CITY_CODE_KEY
from datum_compute.api.meta.objects import Ref
from datum_compute.api.networking.network import DEFAULT_NETWORK
from datum_compute.api.planes import normalize_city

_DEFAULT = "default"
_SOURCES = {kind.kind: kind for kind in (CONFIG_MAP, SECRET)}


@dataclass(frozen=True, slots=True)
class ReferenceAccess:
    """An object that the Workload refers to, the field, and the access that it needs.

    ``is_kept`` is True if the stored Workload refers to it as well.
    """

    field: str
    description: str
    access: AccessQuery
    is_kept: bool = False


def query_reference_access(write: Write) -> Iterable[AccessQuery]:
    return [reference.access for reference in _references_to_check(write)]


def check_reference_access(write: Write, answers: Answers) -> Iterable[Cause]:
    for reference in _references_to_check(write):
        if not answers.allowed[reference.access]:
            is_kept = reference.is_kept
            why = _describe_kept(reference) if is_kept else _describe_denied(reference)
            yield Cause.forbidden(reference.field, why)


@once_per_write
def _references_to_check(write: Write) -> list[ReferenceAccess]:
    if not write.changes_spec:
        return []
    old = _decode_old(write)
    if old is None:
        return _find_references(write.new, write.namespace)
    template_changed = _template_without_restart(write.new) != _template_without_restart(old)
    known = {reference.access for reference in _find_references(old, write.namespace)}
    found = (
        replace(reference, is_kept=reference.access in known)
        for reference in _find_references(write.new, write.namespace)
    )
    return [r for r in found if not r.is_kept or (template_changed and r.access.verb == "get")]


def _decode_old(write: Write) -> JsonObject | None:
    """Return None if another release wrote a template that is invalid now: all of it is new."""
    if write.old is None:
        return None
    try:
        _template(write.old)
    except DecodeError:
        return None
    return write.old


def _template(workload: JsonObject) -> InstanceTemplate:
    return from_json(workload["spec"]["template"], InstanceTemplate)


def _template_without_restart(workload: JsonObject) -> InstanceTemplate:
    """Return the template without the annotation of a restart.

    The result has defaults, so that a field that an earlier release did not write is not a change.
    """
    template = _template(workload)
    annotations = {k: v for k, v in template.metadata.annotations.items() if k != RESTARTED_AT}
    metadata = structs.replace(template.metadata, annotations=annotations)
    return structs.replace(template, metadata=metadata)


def _find_references(workload: JsonObject, namespace: str) -> list[ReferenceAccess]:
    """Return the networks of a Workload and its sources of data."""
    networks = [
        (f"{path}.network", interface["network"].get("namespace"), interface["network"]["name"])
        for path, interface in interfaces(workload)
    ]
    found = []
    for field, network_namespace, name in networks or [(INTERFACES_FIELD, None, _DEFAULT)]:
        access = AccessQuery(
            "use", NETWORK.group, NETWORK.plural, network_namespace or namespace, name
        )
        found.append(ReferenceAccess(field, f'network "{name}"', access))
    for reference in references_of(_template(workload).spec):
        kind = _SOURCES[reference.kind]
        access = AccessQuery("get", kind.group, kind.plural, namespace, reference.name)
        description = f'{reference.kind} "{reference.name}"'
        found.append(ReferenceAccess(f"spec.template.{reference.field}", description, access))
    return found


def _describe_denied(reference: ReferenceAccess) -> str:
    access = reference.access
    resource = f"{access.resource}.{access.group}" if access.group else access.resource
    return (
        f"you may not {access.verb} {reference.description} in the namespace "
        f'"{access.namespace}"; '
        f'ask for the verb "{access.verb}" on {resource} there, or name another'
    )


def _describe_kept(reference: ReferenceAccess) -> str:
    access = reference.access
    return (
        f"the template uses {reference.description}, which you may not {access.verb} in the "
        f'namespace "{access.namespace}"; to change the template, request the verb '
        f'"{access.verb}" on {access.resource} in that namespace '
        "(without the permission you may scale, pause, restart and place the workload)"
    )


# --- A Workload cannot start to use a network that is being deleted
# The deletion of a network waits until no Workload uses the network, so with new Workloads it would
# never finish. Only references that the write adds are checked: a Workload that already uses the
# network can be scaled and edited. A missing network is not an error: instances wait for it.


NETWORKS = ListQuery(NETWORK)


def query_networks(write: Write) -> Iterable[ListQuery]:
    return (NETWORKS,) if _new_networks(write) else ()


def check_networks_not_deleted(write: Write, answers: Answers) -> Iterable[Cause]:
    new_networks = _new_networks(write)
    terminating = _terminating_networks(answers) if new_networks else {}
    for field, network in new_networks:
        if network in terminating:
            why = (
                f'network "{network.name}" in the namespace "{network.namespace}" is being deleted '
                f"since {terminating[network]} and accepts no new workloads; use another one, or "
                "wait until it is deleted and create it again"
            )
            yield Cause.forbidden(field, why)


@once_per_write
def _new_networks(write: Write) -> list[tuple[str, Ref]]:
    if not write.changes_spec:
        return []
    old, namespace = write.old, write.namespace
    stored = {ref for _, ref in _referenced_networks(old, namespace)} if old is not None else set()
    return [
        (field, ref)
        for field, ref in _referenced_networks(write.new, namespace)
        if ref not in stored
    ]


def _referenced_networks(workload: JsonObject, namespace: str) -> list[tuple[str, Ref]]:
    found = []
    for path, interface in interfaces(workload):
        network = interface["network"]
        ref = Ref(network.get("namespace") or namespace, network["name"])
        found.append((f"{path}.network", ref))
    return found or [(INTERFACES_FIELD, DEFAULT_NETWORK)]


def _terminating_networks(answers: Answers) -> dict[Ref, str]:
    """Return the deletion time of each network that is being deleted."""
    return {
        Ref(metadata["namespace"], metadata["name"]): metadata["deletionTimestamp"]
        for metadata in [network["metadata"] for network in answers.listed[NETWORKS]]
        if metadata.get("deletionTimestamp")
    }


# --- Cities: a Workload can use the cities of the project, those of its LocationBindings
# Only new cities are checked: a Workload whose city was withdrawn can still be edited, scaled and
# moved. A city that is unavailable at the moment is not an error: the Workload waits for it, and
# the response contains a warning.


LOCATIONS = ListQuery(LOCATION_BINDING)
_NO_LOCATIONS = "the project has no locations yet; ask an operator to add a LocationBinding"


def query_locations(write: Write) -> Iterable[ListQuery]:
    return (LOCATIONS,) if _new_cities(write) else ()


def check_cities_known(write: Write, answers: Answers) -> Iterable[Finding]:
    new_cities = _new_cities(write)
    problems = _find_cities(answers) if new_cities else {}
    known = sorted(problems.keys() - {""})
    for path, city in new_cities:
        problem = problems.get(city)
        if problem is not None:
            yield AdmissionWarning(
                f"{path}: {city} cannot start instances now, and the workload waits for it: "
                f"{problem}"
            )
        if city not in known:
            why = (
                f"the project has no such location; {suggest_names(city, known)}"
                if known
                else _NO_LOCATIONS
            )
            yield Cause.unsupported(path, city, why=why)


@once_per_write
def _new_cities(write: Write) -> list[tuple[str, str]]:
    if not write.changes_spec:
        return []
    stored = {city for _, city in _cities(write.old)} if write.old is not None else set()
    return [(path, city) for path, city in _cities(write.new) if city not in stored]


def _cities(workload: JsonObject) -> list[tuple[str, str]]:
    """Return the path and the normal form of each city. Earlier releases stored other forms."""
    return [
        (f"spec.placements[{index}].{field}[{position}]", normalize_city(city))
        for index, placement in enumerate(workload["spec"]["placements"])
        for field in ("cityCodes", "fallbackCityCodes")
        for position, city in enumerate(placement.get(field, ()))
    ]


def _find_cities(answers: Answers) -> dict[str, str | None]:
    """Return the cities of the project. The value is None if a location of the city is available,
    else the message of the first one that is not."""
    problems: dict[str, str | None] = {}
    for binding in answers.listed[LOCATIONS]:
        city = normalize_city(binding["spec"].get("topology", {}).get(CITY_CODE_KEY, ""))
        condition = _available_condition(binding)
        if condition.get("status") == FALSE:
            problems.setdefault(city, condition.get("message") or condition.get("reason", ""))
        else:
            problems[city] = None
    return problems


def _available_condition(binding: JsonObject) -> JsonObject:
    conditions: list[JsonObject] = binding.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c.get("type") == "Available"), {})


# --- Instance type
# Active types are accepted. A Deprecated type causes a warning that names its replacement. Disabled
# and unknown types are refused. A Workload that keeps its type gets at most a warning, so that it
# can be scaled and repaired. Without a catalogue, the built-in types apply.


TYPES = ListQuery(INSTANCE_TYPE, catalogue=True)
_FIELD = "spec.template.spec.runtime.resources.instanceType"


def query_instance_types(write: Write) -> Iterable[ListQuery]:
    return (TYPES,) if write.changes_spec else ()


def check_instance_type_offered(write: Write, answers: Answers) -> Iterable[Finding]:
    if not write.changes_spec:
        return
    value = _instance_type(write.new)
    name = size_name(value)
    types = _lifecycles(answers)
    is_kept = write.old is not None and size_name(_instance_type(write.old)) == name
    if name not in types:
        if not is_kept:
            yield Cause.unsupported(_FIELD, value, why=_describe_unknown(value, types))
        return
    phase = types[name].get("phase", "Active")
    replacement = types[name].get("replacementInstanceType", "")
    if phase == "Active":
        return
    advice = f"; use {replacement} instead" if replacement else ""
    text = f"instance type {name} is {phase.lower()}{advice}"
    if phase == "Disabled" and not is_kept:
        yield Cause.forbidden(_FIELD, f'"{value}": {text}')
    else:
        yield AdmissionWarning(f"{_FIELD}: {text}")


def _instance_type(workload: JsonObject) -> str:
    runtime = workload["spec"]["template"]["spec"]["runtime"]
    return str(runtime.get("resources", {}).get("instanceType", ""))


def _lifecycles(answers: Answers) -> Mapping[str, JsonObject]:
    found = {t["metadata"]["name"]: t["spec"].get("lifecycle", {}) for t in answers.listed[TYPES]}
    return found or {name: {} for name in BUILT_IN_SIZES}


def _describe_unknown(value: str, types: Mapping[str, JsonObject]) -> str:
    offered = [name for name, lifecycle in types.items() if lifecycle.get("phase") != "Disabled"]
    advice = suggest_names(size_name(value), offered)
    return f"there is no such instance type; {advice}".rstrip("; ")
