"""Prints: data to stdout, notes to stderr, tables, ages.

Rules it keeps: text from outside never reaches the terminal with control characters in it;
colour only on a terminal and without NO_COLOR; columns are left aligned with a gap of three.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from datum_compute.cli.context import Surroundings

COLORS = {"red": "31", "green": "32", "yellow": "33"}
_GAP = "   "
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Output:
    stdout: TextIO
    stderr: TextIO
    color_stdout: bool = False
    color_stderr: bool = False

    def data(self, text: str, color: str = "") -> None:
        _print(self.stdout, _styled(cleaned(text), color if self.color_stdout else ""))

    def note(self, text: str, color: str = "") -> None:
        _print(self.stderr, _styled(cleaned(text), color if self.color_stderr else ""))

    def error(self, message: str, hint: str = "") -> None:
        prefix = _styled("Error:", "red" if self.color_stderr else "")
        _print(self.stderr, f"{prefix} {cleaned(message)}")
        if hint:
            _print(self.stderr, cleaned(hint))

    def json(self, value: Any) -> None:
        _print(self.stdout, render_json(value))

    def yaml(self, value: Any) -> None:
        import yaml

        _print(self.stdout, yaml.safe_dump(value, sort_keys=False).rstrip("\n"))


def build_output(surroundings: Surroundings) -> Output:
    return Output(
        surroundings.stdout,
        surroundings.stderr,
        surroundings.may_color(surroundings.stdout),
        surroundings.may_color(surroundings.stderr),
    )


def cleaned(text: str) -> str:
    """The text without what a terminal would obey; line breaks stay."""
    return "".join(
        c
        for c in text.replace("\t", " ")
        if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs")
    )


def one_line(text: str) -> str:
    return cleaned(" ".join(text.split()))


def render_json(value: Any) -> str:
    """ASCII only: whatever a terminal might obey comes out as an escape."""
    return json.dumps(value, indent=2, ensure_ascii=True)


def render_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    lines = [list(headings), *([one_line(str(cell)) for cell in row] for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    return "\n".join(
        _GAP.join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


def render_age(seconds: float) -> str:
    whole = max(0, int(seconds))
    if whole < _MINUTE:
        return f"{whole}s"
    if whole < _HOUR:
        return f"{whole // _MINUTE}m"
    if whole < _DAY:
        return f"{whole // _HOUR}h"
    return f"{whole // _DAY}d"


def render_count(count: int, noun: str) -> str:
    plural = noun[:-1] + "ies" if noun.endswith("y") else noun + "s"
    return f"{count} {noun if count == 1 else plural}"


def _styled(text: str, color: str) -> str:
    return f"\x1b[{COLORS[color]}m{text}\x1b[0m" if color else text


def _print(stream: TextIO, text: str) -> None:
    stream.write(text + "\n")
    stream.flush()
