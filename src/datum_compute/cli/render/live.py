"""The progress of a rollout: drawn in place on a terminal, otherwise as lines or events.

Rich draws the display of a terminal. It is imported only then, because it delays each command.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from datum_compute.cli.connect.session import Session
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.render.documents import extend_document
from datum_compute.cli.render.events import RowEvent, WaitingEvent
from datum_compute.cli.render.output import one_line, render_age, replace_unencodable
from datum_compute.cli.workload.rollout import Phase, PlaceProgress, Progress, place_document
from datum_compute.planning.workload.names import Place

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.live import Live

_COLUMNS_MIN = 20
_WIDE_COLUMNS = 80  # a narrower table has no bars and smaller gaps
_BAR_WIDTH = 12
_ELLIPSIS = "\N{HORIZONTAL ELLIPSIS}"


@dataclass(slots=True)
class LiveDisplay:
    """A table at the bottom of a terminal that is drawn again in place.

    The size of the terminal is read for each drawing. A line that is too long is cut, because the
    cursor moves back by the number of lines.
    """

    live: Live
    environment: CliEnvironment
    _table: RenderableType = ""

    def draw(self, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.console import Group

        self._resize()
        self._table = self._render(title, headings, rows)
        self.live.start()
        # The terminal prints typed keys, such as ^C, in the empty line. It is erased afterwards.
        self.live.update(Group(self._table, ""), refresh=True)

    def print_above(self, text: str, color: str) -> None:
        """Print lines that stay, above the table. The terminal wraps them, so that a command in
        them can be copied."""
        from rich.text import Text

        self._resize()
        encodable = replace_unencodable(self.environment.stderr, text)
        self.live.console.print(Text(encodable, style=color), soft_wrap=True)

    def close(self) -> None:
        """Keep the table; the next line is printed below it."""
        self._resize()
        self.live.update(self._table)
        self.live.stop()

    @property
    def is_wide(self) -> bool:
        return self.environment.columns() >= _WIDE_COLUMNS

    def _resize(self) -> None:
        """Adapt to the size of the terminal.

        A terminal that became narrower has wrapped the drawn lines. Rich moves the cursor back by
        the number of lines, so the rows in addition to these are erased here.
        """
        from rich.cells import chop_cells
        from rich.console import ConsoleDimensions
        from rich.control import Control
        from rich.segment import ControlType

        console, columns = self.live.console, max(_COLUMNS_MIN, self.environment.columns())
        if self.live.is_started:
            drawn = console.render_lines(self.live.renderable, pad=False)[: console.height]
            texts = ["".join(segment.text for segment in line) for line in drawn]
            wrapped = sum(max(0, len(chop_cells(text, columns)) - 1) for text in texts)
            erase_row = (ControlType.ERASE_IN_LINE, 2), (ControlType.CURSOR_UP, 1)
            console.control(Control(*erase_row * wrapped))
        # A character in the last column would wrap in some terminals.
        console.size = ConsoleDimensions(columns - 1, self.environment.rows())

    def _render(
        self, title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]
    ) -> RenderableType:
        """Return the table. Only the last column becomes narrower, as long as that suffices."""
        from rich.console import Group
        from rich.table import Table
        from rich.text import Text

        def text(value: str) -> Text:
            encodable = replace_unencodable(self.environment.stderr, one_line(value))
            return Text(encodable, no_wrap=True, overflow="ellipsis" if can_cut else "crop")

        can_cut = replace_unencodable(self.environment.stderr, _ELLIPSIS) == _ELLIPSIS
        gap = 3 if self.is_wide else 1
        table = Table(box=None, pad_edge=False, padding=(0, gap, 0, 0), header_style=None)
        for heading in headings:
            table.add_column(text(heading), no_wrap=heading != headings[-1])
        for row in rows:
            table.add_row(*map(text, row))
        return Group(text(title), table)


def build_live_display(environment: CliEnvironment) -> LiveDisplay:
    from rich.console import Console
    from rich.live import Live

    console = Console(
        file=environment.stderr,
        force_terminal=True,
        force_interactive=True,
        force_jupyter=False,
        color_system="standard" if environment.may_color(environment.stderr) else None,
        highlight=False,
        _environ=environment.environ,
    )
    live = Live(console=console, auto_refresh=False, redirect_stdout=False, redirect_stderr=False)
    return LiveDisplay(live, environment)


def render_bar(done: int, total: int, width: int = _BAR_WIDTH) -> str:
    full = round(width * min(done, total) / total) if total else width
    return "\N{FULL BLOCK}" * full + "\N{LIGHT SHADE}" * (width - full)


# --- Progress of a rollout
# On a terminal a table with bars that is drawn in place; otherwise a new line for each change; with
# ``-o json`` the same changes as events.


@dataclass(slots=True)
class RolloutView:
    """Shows progress. ``session`` prints notes above the live display, if there is one."""

    session: Session
    name: str
    live: LiveDisplay | None
    _printed: dict[Place | None, str] = field(default_factory=dict)

    def show(self, progress: Progress, generation: int, elapsed_s: float) -> None:
        """Show the cities, or a waiting line until the platform has observed the generation."""
        waiting = "" if progress.observed else _waiting_text(generation)
        if self.live is not None:
            title = f"Rolling out {self.name}: {render_age(elapsed_s)}"
            if waiting:
                self.live.draw(title, [waiting], [])
            else:
                headings, rows = _table_of(progress, with_bars=self.live.is_wide)
                self.live.draw(title, headings, rows)
            return
        lines: dict[Place | None, str] = {None: waiting} if waiting else {}
        if progress.observed:
            for place in (*progress.places, *progress.removing):
                lines[place.place] = render_place_line(place)
                if self._printed.get(place.place) != lines[place.place]:
                    event = extend_document(RowEvent, place_document(place))
                    self.session.emit_event(event, lines[place.place])
        elif self._printed.get(None) != waiting:
            self.session.emit_event(WaitingEvent(generation=generation), waiting)
        self._printed = lines

    def close(self) -> None:
        if self.live is not None:
            self.live.close()


def build_view(session: Session, name: str) -> RolloutView:
    environment = session.environment
    if session.as_json or not environment.may_redraw(environment.stderr):
        return RolloutView(session, name, None)
    live = build_live_display(environment)
    output = replace(session.output, print_above=live.print_above)
    return RolloutView(replace(session, output=output), name, live)


def _waiting_text(generation: int) -> str:
    return f"Waiting for the platform to observe generation {generation}"


def _table_of(
    progress: Progress, *, with_bars: bool
) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    bar_heading = ("PROGRESS",) if with_bars else ()
    headings = ("CITY", "PLACEMENT", "ROLLOUT", "READY", "UP-TO-DATE", *bar_heading, "REASON")
    rows = []
    for place_progress in (*progress.places, *progress.removing):
        # An instance with the old template is ready, but not yet progress.
        finished = min(place_progress.ready, place_progress.updated)
        bar = render_bar(
            0 if place_progress.phase is Phase.REMOVING else finished, place_progress.desired
        )
        rows.append(
            (
                place_progress.place.city,
                place_progress.place.placement,
                place_progress.phase,
                f"{place_progress.ready}/{place_progress.desired}",
                f"{place_progress.updated}/{place_progress.desired}",
                *((bar,) if with_bars else ()),
                _cause_text(place_progress) or "-",
            )
        )
    return headings, rows


def render_place_line(progress: PlaceProgress) -> str:
    place = progress.place
    name = place.city if place.placement == "default" else f"{place.city} ({place.placement})"
    line = (
        f"{name}: {progress.phase}, {progress.ready}/{progress.desired} ready, "
        f"{progress.updated}/{progress.desired} up to date"
    )
    if progress.available < progress.ready:
        line += f", {progress.available}/{progress.desired} available"
    if progress.covered:
        line += f", {progress.covered} covered by surge"
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
