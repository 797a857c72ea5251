"""Label and field selectors, parsed once into predicates over a record.

Labels: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``, ``a``, ``!a``.
Fields: ``metadata.name``, ``metadata.namespace`` and those the kind declares, with ``=``, ``==``
and ``!=``.

Watches keep their selectors and check them in every commit, so length, terms and values are
limited. The expressions use possessive quantifiers: parsing takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

from datum_compute.api.errors import BadRequest
from datum_compute.api.meta.names import label_value_problem, qualified_name_problem
from datum_compute.server.discovery.resources import ServedResource
from datum_compute.server.encoding.representation import text_at
from datum_compute.server.encoding.responses import shortened
from datum_compute.store.records import Record
from datum_compute.store.watch_log import EventFilter, StoreEvent

Matches = Callable[[Record], bool]

SELECTOR_LENGTH_MAX = 16 * 1024
TERMS_MAX = 100
VALUES_MAX = 1000
_SELECTOR_CACHE_MAX = 256  # label selectors, which many watches have in common

_WORD = r"[^\s,()=!<>]++"
_LABEL = re.compile(
    rf"""\s*+(?:
        !\s*+(?P<absent>{_WORD})
      | (?P<key>{_WORD}) \s*+ (?:
            (?P<operator>==|=|!=) \s*+ (?P<value>{_WORD})?
          | (?P<set>in|notin) \s*+ \( (?P<values>[^()]*+) \)
        )?
    )\s*+(?:,|\Z)""",
    re.VERBOSE,
)
_FIELD = re.compile(
    r"\s*+(?P<field>[^=!\s]++)\s*+(?P<operator>==|=|!=)\s*+(?P<value>[^=!\s]*+)\s*+"
)


@dataclass(frozen=True, slots=True)
class Requirement:
    """Requires that the label ``key`` has one of ``values``, or exists if ``values`` is None.
    ``negative`` inverts it."""

    key: str
    negative: bool
    values: frozenset[str] | None

    def holds(self, labels: Mapping[str, str]) -> bool:
        if self.values is None:
            return (self.key in labels) is not self.negative
        return (labels.get(self.key) in self.values) is not self.negative


def label_requirements(selector: str) -> tuple[Requirement, ...]:
    """Parse a label selector. Requirements that occur twice are returned once."""
    _check_length("labelSelector", selector)
    return _parse_labels(selector)


@lru_cache(maxsize=_SELECTOR_CACHE_MAX)
def _parse_labels(selector: str) -> tuple[Requirement, ...]:
    found: dict[Requirement, None] = {}
    position, values = 0, 0
    while position < len(selector):
        term = _LABEL.match(selector, position)
        if term is None or (term.end() == len(selector) and selector.rstrip().endswith(",")):
            raise BadRequest(f'unable to parse labelSelector "{shortened(selector)}"')
        requirement = _requirement(term)
        if requirement not in found:
            values += len(requirement.values or ())
            if len(found) >= TERMS_MAX or values > VALUES_MAX:
                raise BadRequest(
                    f"labelSelector: must have at most {TERMS_MAX} requirements and {VALUES_MAX}"
                    " values; select by fewer labels"
                )
            _validate(requirement)
            found[requirement] = None
        position = term.end()
    return tuple(found)


def _check_length(parameter: str, selector: str) -> None:
    if len(selector) > SELECTOR_LENGTH_MAX:
        raise BadRequest(
            f"{parameter}: must have at most {SELECTOR_LENGTH_MAX} characters, has {len(selector)}"
        )


def build_matcher(served: ServedResource, query: Mapping[str, str], *, namespace: str) -> Matches:
    """Return a predicate: the record is in the namespace (any, if empty) and matches the selectors
    of the query."""
    labels = label_requirements(query.get("labelSelector", "").strip())
    checks = [*_field_checks(served, query.get("fieldSelector", "")), *map(_label_check, labels)]
    if namespace:
        checks.insert(0, lambda record: record.key.namespace == namespace)
    if not checks:
        return lambda _: True
    if len(checks) == 1:
        return checks[0]
    return lambda record: all(check(record) for check in checks)


def build_wake_filter(query: Mapping[str, str], *, namespace: str) -> EventFilter | None:
    """Return a predicate for events that can affect a watch, by namespace and labels; None for all.
    It only avoids wake-ups: ``build_matcher`` selects the events."""
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


def _validate(requirement: Requirement) -> None:
    problem = qualified_name_problem(requirement.key) or next(
        filter(None, map(label_value_problem, sorted(requirement.values or ()))), ""
    )
    if problem:
        raise BadRequest(f'labelSelector: "{shortened(requirement.key)}": {problem}')


def _field_checks(served: ServedResource, selector: str) -> tuple[Matches, ...]:
    """Empty terms are legal: some clients end the selector with a comma."""
    _check_length("fieldSelector", selector)
    terms = dict.fromkeys(_field_term(t) for t in selector.split(",") if t.strip())
    if len(terms) > TERMS_MAX:
        raise BadRequest(f"fieldSelector: must have at most {TERMS_MAX} different terms")
    paths = {selectable.label: selectable.path for selectable in served.kind.selectable}
    checks: list[Matches] = []
    object_terms: list[tuple[_FieldTerm, str]] = []
    for term in terms:
        if term.field == "metadata.name":
            checks.append(partial(_has_name, term))
        elif term.field == "metadata.namespace" and served.kind.namespaced:
            checks.append(partial(_is_in_namespace, term))
        elif term.field in paths:
            object_terms.append((term, paths[term.field]))
        else:
            raise BadRequest(f"field label not supported: {shortened(term.field)}")
    if object_terms:
        checks.append(_decoded_check(served, object_terms))
    return tuple(checks)


class _FieldTerm(NamedTuple):
    field: str
    negative: bool
    wanted: str

    def holds(self, value: str) -> bool:
        return (value == self.wanted) is not self.negative


def _field_term(text: str) -> _FieldTerm:
    parsed = _FIELD.fullmatch(text)
    if parsed is None:
        raise BadRequest(f'invalid field selector: "{shortened(text)}"')
    return _FieldTerm(parsed["field"], parsed["operator"] == "!=", parsed["value"])


def _has_name(term: _FieldTerm, record: Record) -> bool:
    return term.holds(record.key.name)


def _is_in_namespace(term: _FieldTerm, record: Record) -> bool:
    return term.holds(record.key.namespace)


def _decoded_check(served: ServedResource, terms: Sequence[tuple[_FieldTerm, str]]) -> Matches:
    """Check all terms that need the object, which is decoded once."""

    def matches(record: Record) -> bool:
        decoded = served.conversion.object_of(record)
        return all(term.holds(text_at(decoded, path)) for term, path in terms)

    return matches
