"""What a Workload reaches must be within the reach of whoever writes it.

The platform attaches networks and reads ConfigMaps and Secrets on behalf of the workload, with
rights of its own. So the writer must hold the verb ``use`` on each network, and ``get`` on each
source of data, in the namespace that it lies in.

A network is asked about when it is named for the first time. Data is asked about again whenever the
template changes: whoever chooses the image, the command or a further container chooses who gets to
see the data. A restart runs the same code with the same data, and scale, pause and placements lie
outside of the template: others may do all that with what somebody else was allowed to set up.

A workload that names no network is in the project's own (``default``), which is there for every
namespace: for that one, the right to use a network of that name in the own namespace is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from datum_compute.admission.findings import AdmissionWarning, Finding, hint
from datum_compute.admission.questions import AccessQuery, Answers, ListQuery, Write
from datum_compute.admission.rules.template import interfaces
from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.instance_type import BUILT_IN_SIZES, size_name
from datum_compute.api.compute.referenced_data import references
from datum_compute.api.conditions import FALSE
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import CONFIG_MAP, INSTANCE_TYPE, LOCATION_BINDING, NETWORK, SECRET
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import DecodeError, JsonObject, from_json
from datum_compute.api.meta.fields import CITY_CODE_KEY
from datum_compute.api.meta.objects import Ref
from datum_compute.api.networking.network import DEFAULT_NETWORK
from datum_compute.api.planes import normalize_city

_INTERFACES = "spec.template.spec.networkInterfaces"
_DEFAULT = "default"
_SOURCES = {kind.kind: kind for kind in (CONFIG_MAP, SECRET)}


@dataclass(frozen=True, slots=True)
class Reached:
    """Something that the workload names, where it does, and the right that it takes."""

    field: str
    what: str
    right: AccessQuery
    is_kept: bool = False


def asks_for_access(write: Write) -> Iterable[AccessQuery]:
    for reached in _to_ask_about(write):
        yield reached.right


def references_are_allowed(write: Write, answers: Answers) -> Iterable[Cause]:
    for reached in _to_ask_about(write):
        if not answers.allowed[reached.right]:
            why = _why_kept(reached) if reached.is_kept else _why(reached)
            yield Cause(reached.field, "FieldValueForbidden", f"Forbidden: {why}")


def _to_ask_about(write: Write) -> list[Reached]:
    if not write.changes_spec:
        return []
    before = _before(write)
    if before is None:
        return list(_reached(write.new, write.namespace))
    runs_other = _what_runs(write.new) != _what_runs(before)
    known = {reached.right for reached in _reached(before, write.namespace)}
    found = (replace(r, is_kept=r.right in known) for r in _reached(write.new, write.namespace))
    return [r for r in found if not r.is_kept or (runs_other and r.right.verb == "get")]


def _before(write: Write) -> JsonObject | None:
    """None also for what another release wrote: then everything counts as new."""
    if write.old is None:
        return None
    try:
        _template(write.old)
    except DecodeError:
        return None
    return write.old


def _template(workload: JsonObject) -> InstanceTemplate:
    return from_json(workload["spec"]["template"], InstanceTemplate)


def _what_runs(workload: JsonObject) -> InstanceTemplate:
    """The template without the mark of a restart. Typed, so that a field that another release did
    not know yet is no change while it has its default."""
    template = _template(workload)
    marks = {k: v for k, v in template.metadata.annotations.items() if k != RESTARTED_AT}
    return structs.replace(template, metadata=structs.replace(template.metadata, annotations=marks))


def _reached(workload: JsonObject, namespace: str) -> Iterator[Reached]:
    yield from _networks(workload, namespace)
    for reference in references(_template(workload)):
        kind = _SOURCES[reference.kind]
        right = AccessQuery("get", kind.group, kind.plural, namespace, reference.name)
        what = f'{reference.kind} "{reference.name}"'
        yield Reached(f"spec.template.{reference.field}", what, right)


def _networks(workload: JsonObject, namespace: str) -> Iterator[Reached]:
    interfaces = workload["spec"]["template"]["spec"].get("networkInterfaces", ())
    for index, interface in enumerate(interfaces):
        network = interface["network"]
        there = network.get("namespace") or namespace
        yield _network(f"{_INTERFACES}[{index}].network", there, network["name"])
    if not interfaces:
        yield _network(_INTERFACES, namespace, _DEFAULT)


def _network(field: str, namespace: str, name: str) -> Reached:
    right = AccessQuery("use", NETWORK.group, NETWORK.plural, namespace, name)
    return Reached(field, f'network "{name}"', right)


def _why(reached: Reached) -> str:
    right = reached.right
    resource = f"{right.resource}.{right.group}" if right.group else right.resource
    return (
        f'you may not {right.verb} {reached.what} in the namespace "{right.namespace}"; '
        f'ask for the verb "{right.verb}" on {resource} there, or name another'
    )


def _why_kept(reached: Reached) -> str:
    right = reached.right
    return (
        f"the template takes {reached.what}, which you may not {right.verb} in the namespace "
        f'"{right.namespace}"; to change what runs with it ask for the verb "{right.verb}" on '
        f"{right.resource} there (without it you may scale, pause, restart and place the workload)"
    )


# --- A Workload may name the cities that its project has: those of its LocationBindings
# Asked on create, and on update of the cities that are named for the first time: a workload whose
# city was withdrawn can still be edited, scaled and taken elsewhere. A city that cannot be used now
# is no mistake of the workload's, which may wait for it: the caller is warned.


LOCATIONS = ListQuery(LOCATION_BINDING)
_NONE = "the project has no locations yet; an operator gives it some as LocationBindings"


def asks_for_locations(write: Write) -> Iterable[ListQuery]:
    if _new_cities(write):
        yield LOCATIONS


def cities_are_known(write: Write, answers: Answers) -> Iterable[Finding]:
    named = _new_cities(write)
    known = _known_cities(answers) if named else []
    closed = _closed_cities(answers) if named else {}
    for path, city in named:
        if city in closed:
            yield AdmissionWarning(f"{path}: {city} cannot be used now: {closed[city]}")
        if city not in known:
            why = f"the project has no such location; {hint(city, known)}" if known else _NONE
            yield Cause(path, "FieldValueNotSupported", f'Unsupported value: "{city}": {why}')


def _new_cities(write: Write) -> list[tuple[str, str]]:
    if not write.changes_spec:
        return []
    before = {city for _, city in _cities(write.old)} if write.old is not None else set()
    return [(path, city) for path, city in _cities(write.new) if city not in before]


def _cities(workload: JsonObject) -> Iterator[tuple[str, str]]:
    """Each with its field; what was stored before cities were normalised counts too."""
    for index, placement in enumerate(workload["spec"]["placements"]):
        for field in ("cityCodes", "fallbackCityCodes"):
            for position, city in enumerate(placement.get(field, ())):
                yield f"spec.placements[{index}].{field}[{position}]", normalize_city(city)


def _known_cities(answers: Answers) -> list[str]:
    found = {_city_of(binding) for binding in answers.listed[LOCATIONS]}
    return sorted(found - {""})


def _closed_cities(answers: Answers) -> dict[str, str]:
    """Those of which every location says that it cannot be used, with what the first says."""
    closed: dict[str, str] = {}
    opened: set[str] = set()
    for binding in answers.listed[LOCATIONS]:
        said = _available(binding)
        if said.get("status") == FALSE:
            closed.setdefault(_city_of(binding), said.get("message") or said.get("reason", ""))
        else:
            opened.add(_city_of(binding))
    return {city: why for city, why in closed.items() if city not in opened}


def _available(binding: JsonObject) -> JsonObject:
    conditions: list[JsonObject] = binding.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c.get("type") == "Available"), {})


def _city_of(binding: JsonObject) -> str:
    return normalize_city(binding["spec"].get("topology", {}).get(CITY_CODE_KEY, ""))


# --- The size that a Workload asks for must be one that is offered
# Active types are offered; a Deprecated one warns and names its replacement; a Disabled or unknown
# one is refused. A workload that keeps the type it has is only warned, so that it can be scaled and
# repaired whatever becomes of its type. Where there is no catalogue the built-in sizes count.


TYPES = ListQuery(INSTANCE_TYPE, catalogue=True)
_FIELD = "spec.template.spec.runtime.resources.instanceType"


def asks_for_types(write: Write) -> Iterable[ListQuery]:
    if write.changes_spec:
        yield TYPES


def size_is_offered(write: Write, answers: Answers) -> Iterable[Finding]:
    if not write.changes_spec:
        return
    asked = _asked(write.new)
    name = size_name(asked)
    types = _lifecycles(answers)
    kept = write.old is not None and size_name(_asked(write.old)) == name
    if name not in types:
        if not kept:
            yield Cause(_FIELD, "FieldValueNotSupported", _unknown(asked, types))
        return
    phase = types[name].get("phase", "Active")
    instead = types[name].get("replacementInstanceType", "")
    if phase == "Active":
        return
    advice = f"; use {instead} instead" if instead else ""
    text = f"instance type {name} is {phase.lower()}{advice}"
    if phase == "Disabled" and not kept:
        yield Cause(_FIELD, "FieldValueForbidden", f'Forbidden: "{asked}": {text}')
    else:
        yield AdmissionWarning(f"{_FIELD}: {text}")


def _asked(workload: JsonObject) -> str:
    runtime = workload["spec"]["template"]["spec"]["runtime"]
    return str(runtime.get("resources", {}).get("instanceType", ""))


def _lifecycles(answers: Answers) -> Mapping[str, JsonObject]:
    found = {t["metadata"]["name"]: t["spec"].get("lifecycle", {}) for t in answers.listed[TYPES]}
    return found or {name: {} for name in BUILT_IN_SIZES}


def _unknown(asked: str, types: Mapping[str, JsonObject]) -> str:
    offered = [name for name, lifecycle in types.items() if lifecycle.get("phase") != "Disabled"]
    advice = hint(size_name(asked), offered)
    return f'Unsupported value: "{asked}": there is no such instance type; {advice}'.rstrip("; ")


# --- Nobody joins a network that is being deleted: it stays while it is used, so it would never go
# Asked about networks that are named for the first time; a workload that is in one may be scaled
# and edited there until its owner moves it. A network that there is not (yet) is no fault here:
# instances wait for it and say so.


NETWORKS = ListQuery(NETWORK)


def asks_for_networks(write: Write) -> Iterable[ListQuery]:
    if _joined(write):
        yield NETWORKS


def networks_stay(write: Write, answers: Answers) -> Iterable[Cause]:
    joined = _joined(write)
    leaving = _leaving(answers) if joined else {}
    for field, network in joined:
        if network in leaving:
            why = (
                f'network "{network.name}" in the namespace "{network.namespace}" is being deleted '
                f"since {leaving[network]} and takes no new workloads; name another, or wait until "
                "it is gone and made again"
            )
            yield Cause(field, "FieldValueForbidden", f"Forbidden: {why}")


def _joined(write: Write) -> list[tuple[str, Ref]]:
    if not write.changes_spec:
        return []
    old = write.old
    before = (
        {ref for _, ref in _referenced_networks(old, write.namespace)} if old is not None else set()
    )
    return [
        (f, ref) for f, ref in _referenced_networks(write.new, write.namespace) if ref not in before
    ]


def _referenced_networks(workload: JsonObject, namespace: str) -> Iterator[tuple[str, Ref]]:
    named = list(interfaces(workload))
    for path, interface in named:
        network = interface["network"]
        yield f"{path}.network", Ref(network.get("namespace") or namespace, network["name"])
    if not named:
        yield _INTERFACES, DEFAULT_NETWORK


def _leaving(answers: Answers) -> dict[Ref, str]:
    """Since when, by network."""
    found = (network["metadata"] for network in answers.listed[NETWORKS])
    return {
        Ref(metadata["namespace"], metadata["name"]): metadata["deletionTimestamp"]
        for metadata in found
        if metadata.get("deletionTimestamp")
    }
