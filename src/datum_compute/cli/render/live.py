"""A block of lines at the bottom of a terminal that is drawn again in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TextIO

from datum_compute.cli.render.output import cleaned, clipped, encodable

_UP_AND_CLEAR = "\x1b[{}A\x1b[J"
BAR = 20


@dataclass(slots=True)
class LiveBlock:
    """Lines are cut to the terminal, whose width is asked for at every drawing: a line that wraps
    would make the count of lines wrong. A window that became narrower has wrapped what was drawn
    before; so the way back is counted in its width."""

    stream: TextIO
    columns: Callable[[], int]
    drawn: tuple[int, ...] = ()  # lengths of the lines

    def draw(self, lines: Sequence[str]) -> None:
        width = max(20, self.columns())
        shown = [clipped(cleaned(line), width - 1) for line in lines]
        text = encodable(self.stream, "".join(f"{line}\n" for line in shown))
        self.stream.write(self._back(width) + text)
        self.stream.flush()
        self.drawn = tuple(len(line) for line in shown)

    def leave(self) -> None:
        """What was drawn stays; the next block begins below it."""
        self.drawn = ()

    def clear(self) -> None:
        self.stream.write(self._back(max(20, self.columns())))
        self.stream.flush()
        self.drawn = ()

    def _back(self, width: int) -> str:
        rows = sum(max(1, -(-length // width)) for length in self.drawn)
        return _UP_AND_CLEAR.format(rows) if rows else ""


def render_bar(done: int, total: int, width: int = BAR) -> str:
    full = round(width * min(done, total) / total) if total else width
    return "\N{FULL BLOCK}" * full + "\N{LIGHT SHADE}" * (width - full)
