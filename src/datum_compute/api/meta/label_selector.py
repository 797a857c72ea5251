"""Label selectors: as text (``labelSelector`` of a request) and as fields of an object.

Both forms become ``LabelTerm`` values, which match the labels of an object. As text a selector is a
list of ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a notin (b,c)``, ``a`` and ``!a``.

Watches keep their selectors and check them in every commit, so length, terms and values are
limited. The expressions use possessive quantifiers, so parsing takes linear time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, Literal

from datum_compute.api.errors import BadRequest, shorten
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import doc
from datum_compute.api.meta.names import label_value_problem, qualified_name_problem

SELECTOR_LENGTH_MAX = 16 * 1024
TERMS_MAX = 100
VALUES_MAX = 1000
_CACHED_MAX = 256  # many watches have the same selectors

_WORD = r"[^\s,()=!<>]++"
_TERM = re.compile(
    rf"""\s*+(?:
        !\s*+(?P<absent>{_WORD})
      | (?P<key>{_WORD}) \s*+ (?:
            (?P<operator>==|=|!=) \s*+ (?P<value>{_WORD})?
          | (?P<set>in|notin) \s*+ \( (?P<values>[^()]*+) \)
        )?
    )\s*+(?:,|\Z)""",
    re.VERBOSE,
)


class LabelRequirement(ApiStruct, frozen=True, kw_only=True):
    """A requirement for the value of a label."""

    key: Annotated[str, doc("Key of the label.")]
    operator: Annotated[
        Literal["In", "NotIn", "Exists", "DoesNotExist"],
        doc(
            "In and NotIn compare the value with values. Exists and DoesNotExist check whether "
            "the label exists."
        ),
    ]
    values: Annotated[list[str], doc("Values for In and NotIn.")] = []


class LabelSelector(ApiStruct, frozen=True, kw_only=True):
    """A label selector. All requirements must match. An empty selector matches all objects."""

    match_labels: Annotated[dict[str, str], doc("Labels with the required values.")] = {}
    match_expressions: Annotated[list[LabelRequirement], doc("Requirements for label values.")] = []


@dataclass(frozen=True, slots=True)
class LabelTerm:
    """Requires that the label ``key`` has one of ``values``, or exists if ``values`` is None.
    ``negative`` inverts the term."""

    key: str
    negative: bool
    values: frozenset[str] | None

    def matches(self, labels: Mapping[str, str]) -> bool:
        if self.values is None:
            return (self.key in labels) is not self.negative
        return (labels.get(self.key) in self.values) is not self.negative


def match_labels(terms: Iterable[LabelTerm], labels: Mapping[str, str]) -> bool:
    """Return True if the labels match all terms."""
    for term in terms:  # noqa: SIM110 - a generator costs more, and watches check every event
        if not term.matches(labels):
            return False
    return True


def selector_terms(selector: LabelSelector) -> tuple[LabelTerm, ...]:
    """Return the terms of a selector of an object. An empty selector has none and matches all."""
    pairs = (LabelTerm(k, False, frozenset({v})) for k, v in selector.match_labels.items())
    return (*pairs, *map(_requirement_term, selector.match_expressions))


def _requirement_term(requirement: LabelRequirement) -> LabelTerm:
    match requirement.operator:
        case "In":
            return LabelTerm(requirement.key, False, frozenset(requirement.values))
        case "NotIn":
            return LabelTerm(requirement.key, True, frozenset(requirement.values))
        case "Exists":
            return LabelTerm(requirement.key, False, None)
        case "DoesNotExist":
            return LabelTerm(requirement.key, True, None)


def parse_label_selector(selector: str) -> tuple[LabelTerm, ...]:
    """Parse a selector. Terms that occur twice are returned once."""
    if len(selector) > SELECTOR_LENGTH_MAX:
        raise BadRequest(
            f"labelSelector: must have at most {SELECTOR_LENGTH_MAX} characters, "
            f"has {len(selector)}"
        )
    return _parse(selector.strip())


@lru_cache(maxsize=_CACHED_MAX)
def _parse(selector: str) -> tuple[LabelTerm, ...]:
    terms: dict[LabelTerm, None] = {}
    position, values = 0, 0
    while position < len(selector):
        found = _TERM.match(selector, position)
        if found is None or (found.end() == len(selector) and selector.endswith(",")):
            raise BadRequest(f'unable to parse labelSelector "{shorten(selector)}"')
        term = _build_term(found)
        if term not in terms:
            values += len(term.values or ())
            if len(terms) >= TERMS_MAX or values > VALUES_MAX:
                raise BadRequest(
                    f"labelSelector: must have at most {TERMS_MAX} requirements and {VALUES_MAX}"
                    " values; select by fewer labels"
                )
            _validate(term)
            terms[term] = None
        position = found.end()
    return tuple(terms)


def _build_term(found: re.Match[str]) -> LabelTerm:
    if absent := found["absent"]:
        return LabelTerm(absent, True, None)
    if operator := found["operator"]:
        return LabelTerm(found["key"], operator == "!=", frozenset((found["value"] or "",)))
    if set_operator := found["set"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        return LabelTerm(found["key"], set_operator == "notin", values)
    return LabelTerm(found["key"], False, None)


def _validate(term: LabelTerm) -> None:
    problem = qualified_name_problem(term.key) or next(
        filter(None, map(label_value_problem, sorted(term.values or ()))), ""
    )
    if problem:
        raise BadRequest(f'labelSelector: "{shorten(term.key)}": {problem}')
