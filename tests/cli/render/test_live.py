"""Live progress on a terminal: drawn in place, with correct widths. Elsewhere appended lines."""

from __future__ import annotations

import fcntl
import io
import os
import re
import struct
import subprocess
import sys
import termios
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request
from datum_compute.cli.environment import CliEnvironment, CliTimeouts
from datum_compute.cli.render.live import (
    LiveDisplay,
    RolloutView,
    build_live_display,
    render_bar,
    render_place_line,
)
from datum_compute.cli.render.output import build_output, replace_unencodable
from datum_compute.cli.workload.rollout import (
    Phase,
    PlaceProgress,
    Progress,
    RolloutCause,
)
from datum_compute.client.client import Client
from datum_compute.planning.workload.names import Place
from tests.cli.runner import CliRunner, quiet_environment
from tests.cli.world import World, no_controllers, write_kubeconfig

DEPLOY = ("deploy", "web", "--image=web:1", "--city=DFW,ORD", "--min=2", "-y")
HEADINGS = ("CITY", "PLACEMENT", "READY", "REASON")
ROWS = [
    ("DFW", "default", "2/2", "-"),
    ("ORD", "東京", "1/2", "イメージを取得できません: registry.example.com に接続できません"),
]
_TOKEN = re.compile(r"\x1b\[\??([\d;]*)([A-Za-z])|(.)", re.DOTALL)


def cells(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


@dataclass
class Screen:
    """A terminal that wraps long lines, also those that a smaller window no longer fits."""

    columns: int = 80
    rows: list[str] = field(default_factory=lambda: [""])
    row: int = 0
    returned: bool = False  # to the start of the row
    is_cursor_visible: bool = True
    colors: set[str] = field(default_factory=set)

    def write(self, text: str) -> None:
        for numbers, code, character in _TOKEN.findall(text):
            if code:
                self._control(code, numbers)
            elif character == "\r":
                self.returned = True
            elif character == "\n":
                self._next_row()
            else:
                self._put(character)

    def resize(self, columns: int) -> None:
        self.columns = columns
        rows, self.rows, self.row = self.rows[: self.row + 1], [""], 0
        for number, line in enumerate(rows):
            if number:
                self._next_row()
            for character in line:
                self._put(character)

    @property
    def lines(self) -> list[str]:
        return [row.rstrip() for row in self.rows if row.strip()]

    def _control(self, code: str, numbers: str) -> None:
        if code == "A":
            self.row = max(0, self.row - int(numbers))
        elif code == "K":
            self.rows[self.row] = ""
        elif code == "m":
            self.colors.add(numbers)
        else:
            assert (code, numbers) in (("l", "25"), ("h", "25")), f"unknown control {code}"
            self.is_cursor_visible = code == "h"

    def _put(self, character: str) -> None:
        if self.returned:
            self.rows[self.row], self.returned = "", False
        if cells(self.rows[self.row] + character) > self.columns:
            self._next_row()
        self.rows[self.row] += character

    def _next_row(self) -> None:
        self.row, self.returned = self.row + 1, False
        if self.row == len(self.rows):
            self.rows.append("")


@dataclass
class Window:
    """A pseudo-terminal, and the screen that shows what is written to it."""

    keyboard: int
    terminal: int
    screen: Screen
    environment: CliEnvironment

    def resize(self, columns: int, rows: int = 24) -> None:
        self.show()
        fcntl.ioctl(self.terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.screen.resize(columns)

    def show(self) -> Screen:
        """Return the screen after all output so far."""
        data = b""
        while True:
            try:
                data += os.read(self.keyboard, 65536)
            except BlockingIOError:
                self.screen.write(data.decode())
                return self.screen


@pytest.fixture
def window() -> Iterator[Window]:
    keyboard, terminal = os.openpty()
    os.set_blocking(keyboard, False)
    with os.fdopen(os.dup(terminal), "w", encoding="utf-8") as stream:
        environment = replace(
            quiet_environment(),
            stderr=stream,
            columns=lambda: os.get_terminal_size(terminal).columns,
            rows=lambda: os.get_terminal_size(terminal).lines,
        )
        window = Window(keyboard, terminal, Screen(), environment)
        window.resize(80)
        yield window
    os.close(keyboard)
    os.close(terminal)


@pytest.fixture
def display(window: Window) -> LiveDisplay:
    return build_live_display(window.environment)


@pytest.fixture
def cli(tmp_path: Path, world: World) -> CliRunner:
    write_kubeconfig(tmp_path / ".local/state/datum-compute/kubeconfig")
    cli = CliRunner(home=tmp_path, open_transport=world.open)
    cli.is_terminal, cli.environ = True, {"NO_COLOR": "1"}
    return cli


def shown(cli: CliRunner) -> Screen:
    screen = Screen(cli.columns)
    screen.write(cli.err)
    return screen


def test_a_rollout_is_one_table_that_is_redrawn_in_place(cli: CliRunner) -> None:
    assert cli.run(*DEPLOY) == 0
    screen = shown(cli)
    *table, last = screen.lines[-5:]
    bar = "\N{FULL BLOCK}" * 12
    assert [re.sub(" +", " ", line) for line in table] == [
        "Rolling out web: 0s",
        "CITY PLACEMENT ROLLOUT READY UP-TO-DATE PROGRESS REASON",
        f"DFW default Done 2/2 2/2 {bar} -",
        f"ORD default Done 2/2 2/2 {bar} -",
    ]
    assert re.fullmatch(r"web is ready: 4 instances in 2 cities \(\d+\.\d s\)\.", last)
    assert sum(line.startswith("Rolling out") for line in screen.lines) == 1
    assert cli.err.count("Rolling out") > 1
    assert screen.is_cursor_visible


@pytest.mark.parametrize("columns", [20, 40, 60, 100])
def test_the_table_is_narrower_than_the_window(cli: CliRunner, columns: int) -> None:
    cli.columns = columns
    assert cli.run(*DEPLOY) == 0
    drawn = cli.err[cli.err.index("Rolling out") : cli.err.rindex("web is ready")]
    lines = re.sub(r"\x1b\[\??[\d;]*[A-Za-z]", "\n", drawn).splitlines()
    assert max(cells(line) for line in lines) < columns
    assert sum(line.startswith("Rolling out") for line in shown(cli).lines) == 1


def test_a_narrow_window_shows_all_columns_but_the_bars(cli: CliRunner) -> None:
    cli.columns = 60
    assert cli.run(*DEPLOY) == 0
    headings = next(line for line in shown(cli).lines if line.startswith("CITY"))
    assert headings.split() == ["CITY", "PLACEMENT", "ROLLOUT", "READY", "UP-TO-DATE", "REASON"]


def test_a_ready_instance_with_the_old_template_is_not_progress(
    window: Window, display: LiveDisplay
) -> None:
    place = PlaceProgress(
        Place("default", "DFW"), Phase.UPDATING, ready=2, updated=1, replicas=2, desired=2
    )
    progress = Progress(True, (place,), (), RolloutCause())
    view = RolloutView(session=None, name="web", live=display)  # type: ignore[arg-type]
    view.show(progress, generation=2, elapsed_s=1.0)
    view.close()
    *_, row = window.show().lines
    assert row.split()[3:6] == ["2/2", "1/2", render_bar(1, 2)]


def test_wide_characters_keep_the_columns_aligned(window: Window, display: LiveDisplay) -> None:
    for _ in range(3):
        display.draw("Rolling out 東京", HEADINGS, ROWS)
    display.close()
    screen = window.show()
    title, headings, first, second = screen.lines
    assert title == "Rolling out 東京"
    for heading, one, other in (("READY", "2/2", "1/2"), ("REASON", "-", "イメ")):
        column = cells(headings.partition(heading)[0])
        assert cells(first.partition(one)[0]) == column
        assert cells(second.partition(other)[0]) == column
    assert second.endswith("\N{HORIZONTAL ELLIPSIS}")
    assert 76 <= cells(second) < 80


@pytest.mark.parametrize("columns", [60, 41, 23, 120])
def test_a_resized_window_shows_one_table_of_the_new_width(
    window: Window, display: LiveDisplay, columns: int
) -> None:
    window.environment.stderr.write("Applied web.\n")
    display.draw("Rolling out web: 1s", HEADINGS, ROWS)
    window.resize(columns)
    display.draw("Rolling out web: 2s", HEADINGS, ROWS)
    display.close()
    lines = window.show().lines
    assert lines[:2] == ["Applied web.", "Rolling out web: 2s"]
    assert [line[:3] for line in lines[2:]] == ["CIT", "DFW", "ORD"]
    assert max(map(cells, lines)) < columns


def test_a_printed_ctrl_c_is_erased(window: Window, display: LiveDisplay) -> None:
    display.draw("Rolling out web: 1s", HEADINGS, ROWS)
    window.show().write("^C")
    display.close()
    window.environment.stderr.write("error: stopped\n")
    window.environment.stderr.flush()
    rows = window.show().rows
    assert [row[:3] for row in rows] == ["Rol", "CIT", "DFW", "ORD", "err", ""]


@pytest.mark.parametrize("columns", [80, 50])
def test_notes_scroll_above_the_table_and_are_not_cut(
    window: Window, display: LiveDisplay, columns: int
) -> None:
    output = replace(build_output(window.environment), print_above=display.print_above)
    note = "No progress for 30s. Next: datumctl compute explain web " + "--project=東京 " * 4
    display.draw("Rolling out web: 1s", HEADINGS, ROWS)
    window.resize(columns)
    output.note(note.strip(), color="yellow")
    lines = window.show().lines
    title = lines.index("Rolling out web: 1s")
    assert len(lines) == title + 4
    assert re.sub(r"\s", "", "".join(lines[:title])) == re.sub(r"\s", "", note)
    assert title == -(-cells(note.strip()) // columns)


def test_the_table_of_a_low_window_is_complete_at_the_end(
    window: Window, display: LiveDisplay
) -> None:
    window.resize(80, rows=6)
    rows = [(f"C{number:02}", "default", "2/2", "-") for number in range(20)]
    display.draw("Rolling out web: 1s", HEADINGS, rows)
    assert len(window.show().lines) == 6
    display.close()
    assert [line[:3] for line in window.show().lines] == ["Rol", "CIT", *(row[0] for row in rows)]


@pytest.mark.parametrize(("environ", "colors"), [({}, {"33", "0"}), ({"NO_COLOR": "1"}, set())])
def test_no_color_turns_the_colors_of_notes_off(
    window: Window, environ: dict[str, str], colors: set[str]
) -> None:
    environment = replace(window.environment, environ=environ)
    display = build_live_display(environment)
    output = replace(build_output(environment), print_above=display.print_above)
    display.draw("Rolling out web: 1s", HEADINGS, ROWS)
    output.note("No progress for 30s.", color="yellow")
    assert window.show().colors == colors


@pytest.mark.parametrize("terminal", ["dumb", "unknown"])
def test_a_terminal_without_cursor_control_gets_appended_lines(
    cli: CliRunner, terminal: str
) -> None:
    cli.environ = {"TERM": terminal, "NO_COLOR": "1"}
    assert cli.run(*DEPLOY) == 0
    assert "\x1b" not in cli.err + cli.out
    assert "DFW: Done, 2/2 ready" in cli.err


def test_a_line_counts_instances_that_a_surge_instance_covers() -> None:
    place = PlaceProgress(Place("default", "DFW"), Phase.UPDATING, covered=1, desired=1)
    line = "DFW: Updating, 0/1 ready, 0/1 up to date, 1 covered by surge"
    assert render_place_line(place) == line


def test_json_output_draws_no_table(cli: CliRunner) -> None:
    assert cli.run(*DEPLOY, "-o", "json") == 0
    assert "\x1b" not in cli.err + cli.out


def test_a_timeout_keeps_the_table_and_prints_the_cause_below(cli: CliRunner, world: World) -> None:
    world.player = no_controllers
    assert cli.run(*DEPLOY, "--timeout=0s") == 21
    screen = shown(cli)
    assert screen.lines[-2].startswith("error: the rollout of 'web' is not done")
    assert screen.lines[-4].startswith("Rolling out web")
    assert screen.is_cursor_visible


def test_a_lost_connection_is_reported_above_the_table(cli: CliRunner, world: World) -> None:
    reads: list[Request] = []

    async def lose_a_read_during_the_rollout(request: Request, _client: Client) -> None:
        if world.writes and request.method == "GET":
            reads.append(request)
            if len(reads) == 4:
                raise Unreachable("connection refused")

    world.before = lose_a_read_during_the_rollout
    cli.timeouts = CliTimeouts(retry_s=0.01)
    assert cli.run(*DEPLOY) == 0
    lines = shown(cli).lines
    notes = ["The server does not respond, retrying: connection refused"]
    notes.append("The server responds again.")
    first = lines.index(notes[0])
    assert lines[first : first + 2] == notes
    assert lines[first + 2].startswith("Rolling out web")
    assert sum(line.startswith("Rolling out") for line in lines) == 1


class Latin1Terminal(io.StringIO):
    encoding = "latin-1"

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        text.encode(self.encoding)
        return super().write(text)


def test_a_terminal_without_unicode_shows_replacements() -> None:
    stream = Latin1Terminal()
    display = build_live_display(replace(quiet_environment(), stderr=stream))
    row = ("DFW", render_bar(1, 2, 4), "1/2", "東京 " + "x" * 100)
    display.draw("Rolling out web", HEADINGS, [row])
    display.print_above("東京", "")
    display.close()
    screen = Screen()
    screen.write(stream.getvalue())
    note, _, _, line = screen.lines
    assert note == "??"
    assert re.fullmatch(r"DFW +##\.\. +1/2 +\?\? x+", line)
    assert replace_unencodable(stream, render_bar(1, 2, 4)) == "##.."


@pytest.mark.parametrize("is_terminal", [False, True])
def test_rich_is_imported_only_when_stderr_is_a_terminal(tmp_path: Path, is_terminal: bool) -> None:
    script = f"""
import sys
from pathlib import Path
from tests.cli.runner import CliRunner
from tests.cli.world import World, healthy, write_kubeconfig

home = Path({str(tmp_path)!r})
write_kubeconfig(home / ".local/state/datum-compute/kubeconfig")
cli = CliRunner(home, is_terminal={is_terminal}, open_transport=World(player=healthy).open)
assert cli.run(*{DEPLOY!r}) == 0
print(sorted(name for name in sys.modules if name.partition(".")[0] == "rich")[:1])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stderr, done.stdout) == ("", "['rich']\n" if is_terminal else "[]\n")
