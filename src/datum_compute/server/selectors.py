"""Label and field selectors, parsed once into predicates over a record.

Labels: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``, ``a``, ``!a``.
Fields: ``metadata.name``, ``metadata.namespace`` and those the kind declares, with ``=``, ``==``
and ``!=``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from datum_compute.api.errors import BadRequest
from datum_compute.api.names import label_value_problem, qualified_name_problem
from datum_compute.server.catalogue import Served
from datum_compute.server.columns import text_at
from datum_compute.server.problems import shortened
from datum_compute.store.record import Record
from datum_compute.store.watchlog import Concerns, StoreEvent

Matches = Callable[[Record], bool]

_WORD = r"[^\s,()=!<>]+"
_LABEL = re.compile(
    rf"""\s*(?:
        !\s*(?P<absent>{_WORD})
      | (?P<key>{_WORD}) \s* (?:
            (?P<operator>==|=|!=) \s* (?P<value>{_WORD})?
          | (?P<set>in|notin) \s* \( (?P<values>[^()]*) \)
        )?
    )\s*(?:,|\Z)""",
    re.VERBOSE,
)
_FIELD = re.compile(r"\s*(?P<field>[^=!\s]+)\s*(?P<operator>==|=|!=)\s*(?P<value>[^=!\s]*)\s*")


@dataclass(frozen=True, slots=True)
class Requirement:
    """The label ``key`` is (or is not) one of ``values``; with no values: is there (or not)."""

    key: str
    negative: bool
    values: frozenset[str] | None

    def holds(self, labels: Mapping[str, str]) -> bool:
        if self.values is None:
            return (self.key in labels) is not self.negative
        return (labels.get(self.key) in self.values) is not self.negative


def label_requirements(selector: str) -> tuple[Requirement, ...]:
    found, position = [], 0
    while position < len(selector):
        term = _LABEL.match(selector, position)
        if term is None or (term.end() == len(selector) and selector.rstrip().endswith(",")):
            raise BadRequest(f'unable to parse labelSelector "{shortened(selector)}"')
        found.append(_checked(_requirement(term)))
        position = term.end()
    return tuple(found)


def selected(served: Served, query: Mapping[str, str], *, namespace: str) -> Matches:
    """Whether a record is in the namespace (any, if empty) and fits the selectors of the query."""
    labels = label_requirements(query.get("labelSelector", "").strip())
    checks = [*_field_checks(served, query.get("fieldSelector", "")), *map(_label_check, labels)]
    if namespace:
        checks.insert(0, lambda record: record.key.namespace == namespace)
    if not checks:
        return lambda _: True
    if len(checks) == 1:
        return checks[0]
    return lambda record: all(check(record) for check in checks)


def concerned(query: Mapping[str, str], *, namespace: str) -> Concerns | None:
    """Which changes may be shown to a watch, told by namespace and labels alone; None for all. The
    lines are selected by all there is to select by; this only lets who waits for others sleep."""
    labels = label_requirements(query.get("labelSelector", "").strip())
    if not labels:
        return (lambda event: event.record.key.namespace == namespace) if namespace else None

    def holds(record: Record) -> bool:
        return all(requirement.holds(record.labels) for requirement in labels)

    def concerns(event: StoreEvent) -> bool:
        if namespace and event.record.key.namespace != namespace:
            return False
        return holds(event.record) or (event.previous is not None and holds(event.previous))

    return concerns


def has_selector(query: Mapping[str, str]) -> bool:
    return bool(query.get("labelSelector") or query.get("fieldSelector"))


def _requirement(term: re.Match[str]) -> Requirement:
    if absent := term["absent"]:
        return Requirement(absent, True, None)
    if operator := term["operator"]:
        return Requirement(term["key"], operator == "!=", frozenset((term["value"] or "",)))
    if several := term["set"]:
        values = frozenset(value.strip() for value in term["values"].split(","))
        return Requirement(term["key"], several == "notin", values)
    return Requirement(term["key"], False, None)


def _label_check(requirement: Requirement) -> Matches:
    return lambda record: requirement.holds(record.labels)


def _checked(requirement: Requirement) -> Requirement:
    problem = qualified_name_problem(requirement.key) or next(
        filter(None, map(label_value_problem, sorted(requirement.values or ()))), ""
    )
    if problem:
        raise BadRequest(f'labelSelector: "{shortened(requirement.key)}": {problem}')
    return requirement


def _field_checks(served: Served, selector: str) -> tuple[Matches, ...]:
    """Empty terms are legal: some clients end the selector with a comma."""
    return tuple(_field_check(served, term) for term in selector.split(",") if term.strip())


def _field_check(served: Served, term: str) -> Matches:
    parsed = _FIELD.fullmatch(term)
    if parsed is None:
        raise BadRequest(f'invalid field selector: "{shortened(term)}"')
    field, wanted, negative = parsed["field"], parsed["value"], parsed["operator"] == "!="
    if field == "metadata.name":
        return lambda record: (record.key.name == wanted) is not negative
    if field == "metadata.namespace" and served.kind.namespaced:
        return lambda record: (record.key.namespace == wanted) is not negative
    for selectable in served.kind.selectable:
        if selectable.label == field:
            return lambda record: (
                (text_at(served.conversion.object_of(record), selectable.path) == wanted)
                is not negative
            )
    raise BadRequest(f"field label not supported: {shortened(field)}")
