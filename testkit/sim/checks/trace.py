"""What happened in a world, line by line. Lines are written when somebody reads them: of nearly
every run nobody ever does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from datum_compute.api.codec import JsonObject
from testkit.sim.checks.truth import Step, is_terminating


class Trace(Sequence[str]):
    """Reads like the list of its lines. Rows are never changed in place, so that a line which is
    written later says the same."""

    def __init__(self) -> None:
        self._entries: list[str | Step] = []

    def committed(self, step: Step) -> None:
        self._entries.append(step)

    def said(self, at_s: float, text: str) -> None:
        self._entries.append(f"{at_s:9.3f} === {text}")

    def __len__(self) -> int:
        return len(self._entries)

    @overload
    def __getitem__(self, index: int) -> str: ...

    @overload
    def __getitem__(self, index: slice) -> list[str]: ...

    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [_line(entry) for entry in self._entries[index]]
        return _line(self._entries[index])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]


def _line(entry: str | Step) -> str:
    """Of a row: virtual time, where, what, and the state in a word."""
    if isinstance(entry, str):
        return entry
    key = entry.key
    what = "deleted" if entry.after is None else _state(entry.after)
    name = f"{key.namespace}/{key.name}" if key.namespace else key.name
    return f"{entry.at_s:9.3f} {entry.plane:16} {entry.version:5} {key.resource} {name}: {what}"


def _state(row: JsonObject) -> str:
    parts = ["terminating"] if is_terminating(row) else []
    conditions = (row.get("status") or {}).get("conditions") or ()
    parts += [f"{c['type']}={c['status']}/{c['reason']}" for c in conditions]
    return " ".join(parts) or "stored"
