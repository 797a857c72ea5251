"""A block of lines at the bottom of a terminal that is drawn again in place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TextIO

from datum_compute.cli.connect.session import Session
from datum_compute.cli.render.output import (
    clip,
    one_line,
    render_age,
    render_table,
    replace_unencodable,
    strip_controls,
)
from datum_compute.cli.workload.rollout import Phase, Place, PlaceProgress, Progress, place_document

_UP_AND_CLEAR = "\x1b[{}A\x1b[J"
BAR = 20


@dataclass(slots=True)
class LiveBlock:
    """Draws lines in place.

    Lines are cut to the width of the terminal, which is read for each drawing, because a line that
    wraps would make the count of lines wrong. A window that became narrower has wrapped the lines
    drawn before, so the cursor moves back by the rows that they occupy at the new width.
    """

    stream: TextIO
    columns: Callable[[], int]
    drawn: tuple[int, ...] = ()  # lengths of the lines

    def draw(self, lines: Sequence[str]) -> None:
        width = max(20, self.columns())
        shown = [clip(strip_controls(line), width - 1) for line in lines]
        text = replace_unencodable(self.stream, "".join(f"{line}\n" for line in shown))
        self.stream.write(self._back(width) + text)
        self.stream.flush()
        self.drawn = tuple(len(line) for line in shown)

    def leave(self) -> None:
        """Keep the lines; the next drawing starts below them."""
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


# --- Progress of a rollout
# On a terminal a table with bars that is drawn in place; otherwise a new line for each change; with
# ``-o json`` the same changes as events.


_BAR_WIDTH = 12


@dataclass(slots=True)
class RolloutView:
    session: Session
    name: str
    live: LiveBlock | None
    _printed: dict[Place | None, str] = field(default_factory=dict)

    def show(self, progress: Progress, generation: int, elapsed_s: float) -> None:
        """Show the cities, or a waiting line until the platform has observed the generation."""
        waiting = "" if progress.observed else _waiting_text(generation)
        if self.live is not None:
            self.live.draw(_live_lines(self.name, progress, waiting, elapsed_s))
            return
        lines: dict[Place | None, str] = {None: waiting} if waiting else {}
        if progress.observed:
            for place in (*progress.places, *progress.removing):
                lines[place.place] = render_place_line(place)
                if self._printed.get(place.place) != lines[place.place]:
                    self.session.emit_event("row", lines[place.place], **place_document(place))
        elif self._printed.get(None) != waiting:
            self.session.emit_event("waiting", waiting, generation=generation)
        self._printed = lines

    def print_event(self, event: str, text: str, *, color: str = "", **fields: object) -> None:
        """Print a line that stays, above the block."""
        if self.live is not None:
            self.live.clear()
        self.session.emit_event(event, text, color=color, **fields)

    def close(self) -> None:
        if self.live is not None:
            self.live.leave()


def build_view(session: Session, name: str) -> RolloutView:
    environment = session.environment
    live = None
    if not session.as_json and environment.may_redraw(environment.stderr):
        live = LiveBlock(environment.stderr, environment.columns)
    return RolloutView(session, name, live)


def _waiting_text(generation: int) -> str:
    return f"Waiting for the platform to observe generation {generation}"


def _live_lines(name: str, progress: Progress, waiting: str, elapsed_s: float) -> list[str]:
    head = f"Rolling out {name}: {render_age(elapsed_s)}"
    if waiting:
        return [head, waiting]
    rows = [
        (
            p.place.city,
            p.place.placement,
            p.phase,
            f"{p.ready}/{p.desired}",
            f"{p.updated}/{p.desired}",
            render_bar(0 if p.phase is Phase.REMOVING else p.ready, p.desired, _BAR_WIDTH),
            _cause_text(p) or "-",
        )
        for p in (*progress.places, *progress.removing)
    ]
    headings = ("CITY", "PLACEMENT", "ROLLOUT", "READY", "UP-TO-DATE", "PROGRESS", "REASON")
    return [head, *render_table(headings, rows).splitlines()]


def render_place_line(progress: PlaceProgress) -> str:
    place = progress.place
    name = place.city if place.placement == "default" else f"{place.city} ({place.placement})"
    line = (
        f"{name}: {progress.phase}, {progress.ready}/{progress.desired} ready, "
        f"{progress.updated}/{progress.desired} up to date"
    )
    if progress.available < progress.ready:
        line += f", {progress.available}/{progress.desired} available"
    surplus = progress.replicas - progress.desired
    if surplus > 0:
        line += f", {surplus} to be removed"
    cause = _cause_text(progress)
    return f"{line}; {cause}" if cause else line


def _cause_text(progress: PlaceProgress) -> str:
    cause = progress.cause
    if not cause.message:
        return cause.reason
    return f"{cause.reason}: {one_line(cause.message)}" if cause.reason else ""
