"""What a Workload reaches must be within the reach of whoever writes it.

The platform attaches networks and reads ConfigMaps and Secrets on behalf of the workload, with
rights of its own. So the writer must hold the verb ``use`` on each network, and ``get`` on each
source of data, in the namespace that it lies in. Only what is named for the first time is asked
about: others may scale and repair what somebody else was allowed to set up.

A workload that names no network is in the project's own (``default``), which is there for every
namespace: for that one, the right to use a network of that name in the own namespace is enough.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from datum_compute.admission.questions import Answers, May, Write
from datum_compute.api.codec import DecodeError, JsonObject, typed
from datum_compute.api.errors import Cause
from datum_compute.api.instance import InstanceTemplate
from datum_compute.api.kinds import CONFIG_MAP, NETWORK, SECRET
from datum_compute.api.references import references

_INTERFACES = "spec.template.spec.networkInterfaces"
_DEFAULT = "default"
_SOURCES = {kind.kind: kind for kind in (CONFIG_MAP, SECRET)}


@dataclass(frozen=True, slots=True)
class Reached:
    """Something that the workload names, where it does, and the right that it takes."""

    field: str
    what: str
    right: May


def asks_for_access(write: Write) -> Iterable[May]:
    for reached in _newly_reached(write):
        yield reached.right


def references_are_allowed(write: Write, answers: Answers) -> Iterable[Cause]:
    for reached in _newly_reached(write):
        if not answers.allowed[reached.right]:
            yield Cause(reached.field, "FieldValueForbidden", f"Forbidden: {_why(reached)}")


def _newly_reached(write: Write) -> list[Reached]:
    if not write.changes_spec:
        return []
    before = _rights_before(write.old, write.namespace) if write.old is not None else set()
    return [r for r in _reached(write.new, write.namespace) if r.right not in before]


def _rights_before(old: JsonObject, namespace: str) -> set[May]:
    try:
        return {reached.right for reached in _reached(old, namespace)}
    except DecodeError:
        return set()  # written by another release: everything counts as new


def _reached(workload: JsonObject, namespace: str) -> Iterator[Reached]:
    yield from _networks(workload, namespace)
    template = typed(workload["spec"]["template"], InstanceTemplate)
    for reference in references(template):
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
