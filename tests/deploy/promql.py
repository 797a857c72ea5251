"""As much of PromQL as our rules and panels use: enough to find a metric, a label, a function or a
bracket that is wrong.

``parsed`` gives what an expression names; it raises BadExpression where Prometheus would.
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
class Named:
    """Metrics with the labels that are asked of each, and labels of groupings."""

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


def parsed(expression: str) -> Named:
    named, listed = Named(), list(tokens(expression))
    _check_brackets(listed)
    at = 0
    while at < len(listed):
        kind, word = listed[at]
        following = listed[at + 1][1] if at + 1 < len(listed) else ""
        if kind == "name" and word in ("by", "without", "on", "ignoring"):
            at = _grouping(listed, at + 1, named)
            continue
        if kind == "name" and following == "(" and word not in _WORDS:
            if word not in FUNCTIONS | AGGREGATIONS:
                raise BadExpression(f"there is no function {word}")
        elif kind == "name" and word not in _WORDS | AGGREGATIONS:
            at = _selector(listed, at, named)
            continue
        at += 1
    _check_rates(listed)
    return named


def _check_brackets(listed: list[tuple[str, str]]) -> None:
    opened: list[str] = []
    for _, word in listed:
        if word in _PAIRS:
            opened.append(_PAIRS[word])
        elif word in _PAIRS.values() and (not opened or opened.pop() != word):
            raise BadExpression(f"{word} closes nothing")
    if opened:
        raise BadExpression(f"{opened[-1]} is missing")


def _grouping(listed: list[tuple[str, str]], at: int, named: Named) -> int:
    if listed[at][1] != "(":
        raise BadExpression("a grouping needs labels in brackets")
    while listed[at][1] != ")":
        if listed[at][0] == "name":
            named.grouped.add(listed[at][1])
        at += 1
    return at + 1


def _selector(listed: list[tuple[str, str]], at: int, named: Named) -> int:
    labels = named.metrics.setdefault(listed[at][1], set())
    at += 1
    if at < len(listed) and listed[at][1] == "{":
        while listed[at][1] != "}":
            if listed[at][0] == "name":
                labels.add(listed[at][1])
                if listed[at + 1][1] not in ("=", "!=", "=~", "!~") or listed[at + 2][0] != "text":
                    raise BadExpression(f"the matcher of {listed[at][1]} is not one")
            at += 1
        at += 1
    return at


def _check_rates(listed: list[tuple[str, str]]) -> None:
    """Counters are looked at over a time, and nothing else is."""
    ranges = sum(kind == "range" for kind, _ in listed)
    timed = sum(word in ("rate", "increase", "irate", "changes", "delta") for _, word in listed)
    if ranges != timed:
        raise BadExpression("a function over a time needs one, and nothing else may have one")
