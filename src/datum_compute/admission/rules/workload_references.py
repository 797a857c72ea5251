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

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from msgspec import structs

from datum_compute.admission.questions import Answers, May, Write
from datum_compute.api.compute.instance import InstanceTemplate
from datum_compute.api.compute.referenced_data import references
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import CONFIG_MAP, NETWORK, SECRET
from datum_compute.api.labels import RESTARTED_AT
from datum_compute.api.meta.codec import DecodeError, JsonObject, typed

_INTERFACES = "spec.template.spec.networkInterfaces"
_DEFAULT = "default"
_SOURCES = {kind.kind: kind for kind in (CONFIG_MAP, SECRET)}


@dataclass(frozen=True, slots=True)
class Reached:
    """Something that the workload names, where it does, and the right that it takes."""

    field: str
    what: str
    right: May
    is_kept: bool = False


def asks_for_access(write: Write) -> Iterable[May]:
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
    return typed(workload["spec"]["template"], InstanceTemplate)


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
        right = May("get", kind.group, kind.plural, namespace, reference.name)
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
    right = May("use", NETWORK.group, NETWORK.plural, namespace, name)
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
