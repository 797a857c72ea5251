"""Prints data to stdout and notes to stderr; renders tables and ages.

Control characters are removed from all text. Colors are used only on a terminal and without
NO_COLOR. Table columns are left aligned with a gap of three, and cut to the width of a terminal,
but not in a pipe. Characters that a stream cannot encode are replaced.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TextIO

from datum_compute.cli.environment import CliEnvironment

COLORS = {"red": "31", "green": "32", "yellow": "33"}
_GAP = 3
# Replacements of the same length, so that columns stay aligned.
_ASCII = {"\N{HORIZONTAL ELLIPSIS}": "~", "\N{FULL BLOCK}": "#", "\N{LIGHT SHADE}": "."}
_MINUTE, _HOUR, _DAY = 60, 3600, 86400


@dataclass(frozen=True, slots=True)
class Output:
    stdout: TextIO
    stderr: TextIO
    color_stdout: bool = False
    color_stderr: bool = False
    width: int | None = None  # of the terminal that stdout is, if it is one
    # Prints text and its color above a live display on stderr, while there is one.
    print_above: Callable[[str, str], None] | None = None

    def data(self, text: str, color: str = "") -> None:
        _print(self.stdout, _add_color(strip_controls(text), color if self.color_stdout else ""))

    def note(self, text: str, color: str = "") -> None:
        shown, shown_color = strip_controls(text), color if self.color_stderr else ""
        if self.print_above is not None:
            self.print_above(shown, shown_color)
        else:
            _print(self.stderr, _add_color(shown, shown_color))

    def error(self, message: str, hint: str = "") -> None:
        prefix = _add_color("error:", "red" if self.color_stderr else "")
        _print(self.stderr, f"{prefix} {after_prefix(strip_controls(message))}")
        if hint:
            _print(self.stderr, strip_controls(hint))

    def json(self, value: Any) -> None:
        _print(self.stdout, render_json(value))

    def json_line(self, value: Any) -> None:
        _print(self.stdout, json.dumps(value, ensure_ascii=True))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
        return render_table(headings, rows, self.width)

    def yaml(self, value: Any) -> None:
        import yaml

        _print(self.stdout, yaml.safe_dump(value, sort_keys=False).rstrip("\n"))


def build_output(environment: CliEnvironment) -> Output:
    return Output(
        environment.stdout,
        environment.stderr,
        environment.may_color(environment.stdout),
        environment.may_color(environment.stderr),
        environment.columns() if environment.stdout.isatty() else None,
    )


def strip_controls(text: str) -> str:
    """Return the text without control characters, except line breaks."""
    if text.replace("\n", "").isprintable():
        return text  # the common case, checked quickly
    return "".join(
        c
        for c in text.replace("\t", " ")
        if c == "\n" or unicodedata.category(c) not in ("Cc", "Cf", "Cs")
    )


def after_prefix(message: str) -> str:
    """Return a message in the form that follows ``error:``, as in kubectl.

    It starts in lower case, unless the first word is a name such as Ctrl-C or Secret/db. A single
    sentence has no period at the end.
    """
    first, space, rest = message.partition(" ")
    text = f"{first.lower()}{space}{rest}" if re.fullmatch(r"[A-Z]?[a-z']+", first) else message
    is_single = text.endswith(".") and ". " not in text and "\n" not in text
    return text[:-1] if is_single and not text.endswith("..") else text


def one_line(text: str) -> str:
    return strip_controls(" ".join(text.split()))


def render_json(value: Any) -> str:
    """Return indented JSON in ASCII: control characters are escaped."""
    return json.dumps(value, indent=2, ensure_ascii=True)


def render_table(
    headings: Sequence[str], rows: Sequence[Sequence[object]], width: int | None = None
) -> str:
    lines = [list(headings), *([one_line(str(cell)) for cell in row] for row in rows)]
    natural = [max(len(line[column]) for line in lines) for column in range(len(headings))]
    widths, gap = (natural, _GAP) if width is None else fit_columns(natural, headings, width)
    return "\n".join(
        (" " * gap)
        .join(clip(cell, size).ljust(size) for cell, size in zip(line, widths, strict=True))
        .rstrip()
        for line in lines
    )


def fit_columns(
    natural: Sequence[int], headings: Sequence[str], width: int
) -> tuple[list[int], int]:
    """Return column widths and a gap that fit the width, if possible.

    The widest column is cut first and the first column, which is a name to copy, last. No column
    becomes narrower than its heading. The gap is reduced only if that does not suffice.
    """
    least = [min(size, max(len(head), 4)) for size, head in zip(natural, headings, strict=True)]
    gaps = len(natural) - 1
    gap = next((g for g in range(_GAP, 1, -1) if sum(least) + g * gaps <= width), 1)
    widths = list(natural)
    surplus = sum(widths) + gap * gaps - width
    while surplus > 0:
        shrinkable = [i for i in range(len(widths)) if widths[i] > least[i]]
        candidates = [i for i in shrinkable if i > 0] or shrinkable
        if not candidates:
            break
        widths[max(candidates, key=lambda column: (widths[column], column))] -= 1
        surplus -= 1
    return widths, gap


def clip(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "\N{HORIZONTAL ELLIPSIS}"


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


def _add_color(text: str, color: str) -> str:
    return f"\x1b[{COLORS[color]}m{text}\x1b[0m" if color else text


def _print(stream: TextIO, text: str) -> None:
    stream.write(replace_unencodable(stream, text) + "\n")
    stream.flush()


def replace_unencodable(stream: TextIO, text: str) -> str:
    """Return the text with replacements for characters that the stream cannot encode."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError:
        for mark, plain in _ASCII.items():
            text = text.replace(mark, plain)
        return text.encode(encoding, "replace").decode(encoding)
    return text
