"""A parser for the part of PromQL that the alerts and the dashboard use.

It finds unknown functions, unbalanced brackets and invalid matchers. ``parse_expression`` returns
the metrics and labels of an expression, and raises BadExpression for those that Prometheus rejects.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>"(?:[^"\\]|\\.)*")
  | (?P<range>\[(?:\d+(?:ms|[smhdwy])|\$__rate_interval)\])
  | (?P<number>\d+(?:\.\d+)?(?:e-?\d+)?)
  | (?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)
  | (?P<operator>=~|!~|!=|>=|<=|==|[-+*/%^><=(){},])
)""",
    re.VERBOSE,
)
FUNCTIONS = frozenset(
    {"rate", "increase", "irate", "changes", "absent", "histogram_quantile", "delta", "clamp_min"}
)
AGGREGATIONS = frozenset({"sum", "min", "max", "avg", "count", "topk"})
_WORDS = frozenset({"by", "without", "on", "ignoring", "and", "or", "unless", "bool"})
_PAIRS = {"(": ")", "{": "}"}


class BadExpression(Exception):
    pass


@dataclass
class ParsedExpression:
    """The metrics, each with the labels that its matchers use, and the labels of groupings."""

    metrics: dict[str, set[str]] = field(default_factory=dict)
    grouped: set[str] = field(default_factory=set)


def tokens(expression: str) -> Iterator[tuple[str, str]]:
    at = 0
    while expression[at:].strip():
        found = _TOKEN.match(expression, at)
        if found is None:
            raise BadExpression(f"at {expression[at : at + 20]!r}")
        at = found.end()
        assert found.lastgroup is not None
        yield found.lastgroup, found[found.lastgroup]


def parse_expression(expression: str) -> ParsedExpression:
    parsed, listed = ParsedExpression(), list(tokens(expression))
    _check_brackets(listed)
    at = 0
    while at < len(listed):
        kind, word = listed[at]
        following = listed[at + 1][1] if at + 1 < len(listed) else ""
        if kind == "name" and word in ("by", "without", "on", "ignoring"):
            at = _parse_grouping(listed, at + 1, parsed)
            continue
        if kind == "name" and following == "(" and word not in _WORDS:
            if word not in FUNCTIONS | AGGREGATIONS:
                raise BadExpression(f"unknown function {word}")
        elif kind == "name" and word not in _WORDS | AGGREGATIONS:
            at = _parse_selector(listed, at, parsed)
            continue
        at += 1
    _check_rates(listed)
    return parsed


def _check_brackets(listed: list[tuple[str, str]]) -> None:
    opened: list[str] = []
    for _, word in listed:
        if word in _PAIRS:
            opened.append(_PAIRS[word])
        elif word in _PAIRS.values() and (not opened or opened.pop() != word):
            raise BadExpression(f"{word} without an opening bracket")
    if opened:
        raise BadExpression(f"{opened[-1]} is missing")


def _parse_grouping(listed: list[tuple[str, str]], at: int, parsed: ParsedExpression) -> int:
    if listed[at][1] != "(":
        raise BadExpression("a grouping needs labels in brackets")
    while listed[at][1] != ")":
        if listed[at][0] == "name":
            parsed.grouped.add(listed[at][1])
        at += 1
    return at + 1


def _parse_selector(listed: list[tuple[str, str]], at: int, parsed: ParsedExpression) -> int:
    labels = parsed.metrics.setdefault(listed[at][1], set())
    at += 1
    if at < len(listed) and listed[at][1] == "{":
        while listed[at][1] != "}":
            if listed[at][0] == "name":
                labels.add(listed[at][1])
                if listed[at + 1][1] not in ("=", "!=", "=~", "!~") or listed[at + 2][0] != "text":
                    raise BadExpression(f"invalid matcher of {listed[at][1]}")
            at += 1
        at += 1
    return at


def _check_rates(listed: list[tuple[str, str]]) -> None:
    """Functions over a range need a range vector; all other expressions must not have one."""
    ranges = sum(kind == "range" for kind, _ in listed)
    timed = sum(word in ("rate", "increase", "irate", "changes", "delta") for _, word in listed)
    if ranges != timed:
        raise BadExpression("ranges are required by functions over a range, and allowed only there")
