"""The selection of a list or a watch: by namespace, ``labelSelector`` and ``fieldSelector``.

Fields are ``metadata.name``, ``metadata.namespace`` and those that the kind declares, with ``=``,
``==`` and ``!=``. Label selectors are described in ``api/meta/label_selector.py``.

Watches keep their selection and check it in every commit, so length and terms are limited. The
expressions use possessive quantifiers, so parsing takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from datum_compute.api.errors import BadRequest, shorten
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.label_selector import (
    SELECTOR_LENGTH_MAX,
    TERMS_MAX,
    LabelTerm,
    match_labels,
    parse_label_selector,
)
from datum_compute.api.meta.objects import KindInfo
from datum_compute.server.encoding.representation import text_at
from datum_compute.store.records import Record
from datum_compute.store.watch_log import EventFilter, StoreEvent

Matches = Callable[[Record], bool]
DecodeRecord = Callable[[Record], JsonObject]

_FIELD = re.compile(
    r"\s*+(?P<field>[^=!\s]++)\s*+(?P<operator>==|=|!=)\s*+(?P<value>[^=!\s]*+)\s*+"
)


@dataclass(frozen=True, slots=True)
class Selection:
    """``matches`` returns True for the selected records.

    ``wake_filter`` returns True for events that can affect a watch; None means all events. It
    ignores field selectors: it only avoids wake-ups, and ``matches`` selects the events.
    """

    matches: Matches
    wake_filter: EventFilter | None
    has_selector: bool


def parse_selection(
    kind: KindInfo[Any], decode_record: DecodeRecord, query: Mapping[str, str], namespace: str
) -> Selection:
    """Parse the selectors of a query. An empty ``namespace`` selects all namespaces."""
    label_terms = parse_label_selector(query.get("labelSelector", ""))
    field_selector = query.get("fieldSelector", "")
    checks: list[Matches] = []
    if namespace:
        checks.append(lambda record: record.key.namespace == namespace)
    if field_selector:
        checks += _field_checks(kind, decode_record, field_selector)
    if label_terms:
        checks.append(lambda record: match_labels(label_terms, record.labels))
    return Selection(
        _match_all(checks),
        _build_wake_filter(label_terms, namespace),
        bool(field_selector or query.get("labelSelector")),
    )


def _match_all(checks: Sequence[Matches]) -> Matches:
    if not checks:
        return lambda _: True
    if len(checks) == 1:
        return checks[0]
    return lambda record: all(check(record) for check in checks)


def _build_wake_filter(terms: tuple[LabelTerm, ...], namespace: str) -> EventFilter | None:
    if not terms:
        return (lambda event: event.record.key.namespace == namespace) if namespace else None

    def affects(event: StoreEvent) -> bool:
        if namespace and event.record.key.namespace != namespace:
            return False
        if match_labels(terms, event.record.labels):
            return True
        return event.previous is not None and match_labels(terms, event.previous.labels)

    return affects


def _field_checks(kind: KindInfo[Any], decode_record: DecodeRecord, selector: str) -> list[Matches]:
    """Return a check for each field term. Empty terms are valid: some clients end the selector with
    a comma."""
    if len(selector) > SELECTOR_LENGTH_MAX:
        raise BadRequest(
            f"fieldSelector: must have at most {SELECTOR_LENGTH_MAX} characters, "
            f"has {len(selector)}"
        )
    terms = dict.fromkeys(_parse_term(text) for text in selector.split(",") if text.strip())
    if len(terms) > TERMS_MAX:
        raise BadRequest(f"fieldSelector: must have at most {TERMS_MAX} different terms")
    paths = {selectable.label: selectable.path for selectable in kind.selectable}
    checks: list[Matches] = []
    object_terms: list[tuple[_FieldTerm, str]] = []
    for term in terms:
        if term.field == "metadata.name":
            checks.append(partial(_has_name, term))
        elif term.field == "metadata.namespace" and kind.namespaced:
            checks.append(partial(_is_in_namespace, term))
        elif term.field in paths:
            object_terms.append((term, paths[term.field]))
        else:
            raise BadRequest(f"field label not supported: {shorten(term.field)}")
    if object_terms:
        checks.append(_object_check(decode_record, object_terms))
    return checks


class _FieldTerm(NamedTuple):
    field: str
    negative: bool
    value: str

    def matches(self, value: str) -> bool:
        return (value == self.value) is not self.negative


def _parse_term(text: str) -> _FieldTerm:
    found = _FIELD.fullmatch(text)
    if found is None:
        raise BadRequest(f'invalid field selector: "{shorten(text)}"')
    return _FieldTerm(found["field"], found["operator"] == "!=", found["value"])


def _has_name(term: _FieldTerm, record: Record) -> bool:
    return term.matches(record.key.name)


def _is_in_namespace(term: _FieldTerm, record: Record) -> bool:
    return term.matches(record.key.namespace)


def _object_check(decode_record: DecodeRecord, terms: Sequence[tuple[_FieldTerm, str]]) -> Matches:
    """Return one check for all terms on the object, so that it is decoded once."""

    def matches(record: Record) -> bool:
        obj = decode_record(record)
        return all(term.matches(text_at(obj, path)) for term, path in terms)

    return matches
