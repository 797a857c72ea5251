"""Label and field selectors, parsed once into predicates over a record.

Labels: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``, ``a``, ``!a``.
Fields: ``metadata.name``, ``metadata.namespace`` and what the kind lists as selectable, with ``=``,
``==`` and ``!=``; a field that is absent is equal to the empty text.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from datum_compute.api.codec import decode
from datum_compute.api.errors import BadRequest
from datum_compute.api.meta import KindInfo
from datum_compute.server.columns import value_at
from datum_compute.server.names import label_value_problem, qualified_name_problem
from datum_compute.server.problems import shortened
from datum_compute.store.record import Record

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


def selected(
    kind: KindInfo[Any], query: Mapping[str, str], *, namespace: str, name: str
) -> Matches:
    """Whether a record is in the namespace (any, if empty), has the name (any, if empty) and
    fits the selectors of the query."""
    labels = label_requirements(query.get("labelSelector", "").strip())
    fields = _field_checks(kind, query.get("fieldSelector", ""))

    def matches(record: Record) -> bool:
        key = record.key
        if (namespace and key.namespace != namespace) or (name and key.name != name):
            return False
        return all(check(record) for check in fields) and all(
            requirement.holds(record.labels) for requirement in labels
        )

    return matches


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


def _checked(requirement: Requirement) -> Requirement:
    problem = qualified_name_problem(requirement.key) or next(
        filter(None, map(label_value_problem, sorted(requirement.values or ()))), ""
    )
    if problem:
        raise BadRequest(f'labelSelector: "{shortened(requirement.key)}": {problem}')
    return requirement


def _field_checks(kind: KindInfo[Any], selector: str) -> tuple[Matches, ...]:
    """Empty terms are legal: some clients end the selector with a comma."""
    return tuple(_field_check(kind, term) for term in selector.split(",") if term.strip())


def _field_check(kind: KindInfo[Any], term: str) -> Matches:
    parsed = _FIELD.fullmatch(term)
    if parsed is None:
        raise BadRequest(f'invalid field selector: "{shortened(term)}"')
    field, wanted, negative = parsed["field"], parsed["value"], parsed["operator"] == "!="
    if field == "metadata.name":
        return lambda record: (record.key.name == wanted) is not negative
    if field == "metadata.namespace" and kind.namespaced:
        return lambda record: (record.key.namespace == wanted) is not negative
    for selectable in kind.selectable:
        if selectable.label == field:
            path = selectable.path
            return lambda record: (_text_at(record, path) == wanted) is not negative
    raise BadRequest(f"field label not supported: {shortened(field)}")


def _text_at(record: Record, path: str) -> str:
    match value_at(decode(record.body), path):
        case None:
            return ""
        case bool() as value:
            return str(value).lower()
        case value:
            return str(value)
