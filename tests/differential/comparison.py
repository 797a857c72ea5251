"""Normalize the responses of two servers, and list their differences.

Versions and uids are numbered in the order of their first use, so that equal values stay equal. The
version of a list is replaced by a fixed text, because other clients write at the same time. Times
and generated names are replaced as well. The name of a difference consists of the sequence, the
step and the path in the response.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.differential.steps import Response

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_AGE = re.compile(r"\d+(s|m|ms)|<invalid>")
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_WARNING_AGENT = re.compile(r"^(299) \S+ ")
ABSENT = "(absent)"


class ValueNumbers:
    """Replaces each value by a number, in the order of first use."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._known: dict[str, str] = {}

    def __call__(self, value: str) -> str:
        return self._known.setdefault(value, f"{self._word}-{len(self._known) + 1}")


class Transcript:
    """The normalized responses of one server to one sequence."""

    def __init__(self, responses: Mapping[str, Response]) -> None:
        self._versions, self._uids = ValueNumbers("version"), ValueNumbers("uid")
        self.responses = {
            name: self._normalize_response(response) for name, response in responses.items()
        }

    def _normalize_response(self, response: Response) -> dict[str, Any]:
        headers = dict(response.headers)
        if "warning" in headers:
            headers["warning"] = _WARNING_AGENT.sub(r"\1 - ", headers["warning"])
        return {
            "code": response.code,
            "headers": headers,
            "body": self._normalize_value(response.body),
        }

    def _normalize_value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, list):
            return [self._normalize_value(inner, key) for inner in value]
        if isinstance(value, dict):
            return {
                self._normalize_text(name): self._normalize_field(name, inner, value)
                for name, inner in value.items()
            }
        if isinstance(value, str):
            return self._normalize_text(value)
        return value

    def _normalize_field(self, name: str, value: Any, around: dict[str, Any]) -> Any:
        if name == "resourceVersion" and isinstance(value, str):
            # Lists and bookmarks have no uid.
            return self._versions(value) if "uid" in around else "version of the whole"
        if name == "continue" and value:
            return "token"
        if name == "name" and around.get("generateName"):
            return "generated"
        if name == "verbs" or (name == "resources" and isinstance(value, list)):
            return sorted(self._normalize_value(value), key=str)  # the order has no meaning
        if name == "cells" and isinstance(value, list):
            return [self._normalize_age(self._normalize_value(cell)) for cell in value]
        return self._normalize_value(value, name)

    def _normalize_text(self, value: str) -> str:
        value = _UID.sub(lambda found: self._uids(found[0]), value)
        return _TIME.sub(lambda found: "micro time" if found[1] else "time", value)

    def _normalize_age(self, cell: Any) -> Any:
        return "age" if isinstance(cell, str) and _AGE.fullmatch(cell) else cell


def find_differences(
    sequence: str, ours: Transcript, theirs: Transcript
) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each difference, our value and the value of Kubernetes."""
    for name, response in ours.responses.items():
        for place, mine, other in _compare_values("", response, theirs.responses[name]):
            yield f"{sequence}/{name}{place}", mine, other


def _compare_values(place: str, mine: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(mine, dict) and isinstance(other, dict):
        for key in sorted({**mine, **other}):
            step = f".{key}" if _PLAIN.fullmatch(key) else f"[{key!r}]"
            yield from _compare_values(place + step, mine.get(key, ABSENT), other.get(key, ABSENT))
    elif isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        for at, (one, two) in enumerate(zip(mine, other, strict=True)):
            yield from _compare_values(f"{place}[{at}]", one, two)
    elif mine != other:
        yield place, mine, other
