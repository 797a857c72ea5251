"""Answers without what no two servers have in common, and how they differ.

Versions, uids and generated names are numbered in the order in which they first come, so that it
shows whether two are the same; the version of a list is only that it is one, because others write
too. Times are only times. A difference is named by sequence, step and place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from tests.differential.steps import Answer

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})")
_UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_AGE = re.compile(r"\d+(s|m|ms)|<invalid>")
_PLAIN = re.compile(r"[A-Za-z_$][A-Za-z0-9_$]*")
_WARNING_AGENT = re.compile(r"^(299) \S+ ")
ABSENT = "(absent)"


class Numbered:
    """Each value by the order in which it came."""

    def __init__(self, word: str) -> None:
        self._word = word
        self._known: dict[str, str] = {}

    def __call__(self, value: str) -> str:
        return self._known.setdefault(value, f"{self._word}-{len(self._known) + 1}")


class Transcript:
    """The answers to one sequence by one server, as they can be compared."""

    def __init__(self, answers: Mapping[str, Answer]) -> None:
        self._versions, self._uids = Numbered("version"), Numbered("uid")
        self.answers = {name: self._answer(answer) for name, answer in answers.items()}

    def _answer(self, answer: Answer) -> dict[str, Any]:
        headers = dict(answer.headers)
        if "warning" in headers:
            headers["warning"] = _WARNING_AGENT.sub(r"\1 - ", headers["warning"])
        return {"code": answer.code, "headers": headers, "body": self._value(answer.body)}

    def _value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, list):
            return [self._value(inner, key) for inner in value]
        if isinstance(value, dict):
            return {
                self._text(name): self._field(name, inner, value) for name, inner in value.items()
            }
        if isinstance(value, str):
            return self._text(value)
        return value

    def _field(self, name: str, value: Any, around: dict[str, Any]) -> Any:
        if name == "resourceVersion" and isinstance(value, str):
            # A list, or a bookmark, has no name.
            return self._versions(value) if "uid" in around else "version of the whole"
        if name == "continue" and value:
            return "token"
        if name == "name" and around.get("generateName"):
            return "generated"
        if name == "verbs" or (name == "resources" and isinstance(value, list)):
            return sorted(self._value(value), key=str)  # the order says nothing
        if name == "cells" and isinstance(value, list):
            return [self._age(self._value(cell)) for cell in value]
        return self._value(value, name)

    def _text(self, value: str) -> str:
        value = _UID.sub(lambda found: self._uids(found[0]), value)
        return _TIME.sub(lambda found: "micro time" if found[1] else "time", value)

    def _age(self, cell: Any) -> Any:
        return "age" if isinstance(cell, str) and _AGE.fullmatch(cell) else cell


def differences(
    sequence: str, ours: Transcript, theirs: Transcript
) -> Iterator[tuple[str, Any, Any]]:
    """(where, what we say, what Kubernetes says)."""
    for name, answer in ours.answers.items():
        for place, mine, other in _differing("", answer, theirs.answers[name]):
            yield f"{sequence}/{name}{place}", mine, other


def _differing(place: str, mine: Any, other: Any) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(mine, dict) and isinstance(other, dict):
        for key in sorted({**mine, **other}):
            step = f".{key}" if _PLAIN.fullmatch(key) else f"[{key!r}]"
            yield from _differing(place + step, mine.get(key, ABSENT), other.get(key, ABSENT))
    elif isinstance(mine, list) and isinstance(other, list) and len(mine) == len(other):
        for at, (one, two) in enumerate(zip(mine, other, strict=True)):
            yield from _differing(f"{place}[{at}]", one, two)
    elif mine != other:
        yield place, mine, other
