"""Lines of containers, and how far a reader has come.

Engines tell the time of a line in seconds only. So a reader's place is a second and how many lines
of that second it has had: asked for all lines from that second on, the engine gives those again,
and they are passed over. Nothing is missed and nothing comes twice, whatever restarts in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from datum_compute.api.codec import ApiStruct
from datum_compute.drivers.containers.logs import LINE_MAX, Unframed
from datum_compute.drivers.containers.seen import unix_time

LINES_MAX = 5000


class LogLine(ApiStruct, frozen=True, kw_only=True):
    """One line that a container said."""

    time: str
    container: str
    stream: str  # out or err
    text: str


class Place(ApiStruct, frozen=True, kw_only=True):
    """Everything before the second is read, and so many lines of it."""

    second: int
    lines: int


Cursor = Mapping[str, Place]  # by machine and container


class LogPage(ApiStruct, frozen=True, kw_only=True):
    lines: list[LogLine]
    cursor: dict[str, Place]


class LogArchive(Protocol):
    """What machines that are gone have said, bounded in size and age."""

    def keep(self, machine_id: str, container: str, framed: bytes) -> None: ...

    def kept(self, server: str) -> list[tuple[str, str, bytes]]:
        """Machine, container and framed lines of all machines of a Server's name, oldest first."""
        ...


def read_lines(container: str, framed: bytes) -> list[LogLine]:
    """Frames of lines that begin with their time."""
    found = []
    for stream, part in Unframed().take(framed):
        found += plain_lines(container, part, "err" if stream == 2 else "out")
    return found


def plain_lines(container: str, text: bytes, stream: str = "out") -> list[LogLine]:
    """Lines that begin with their time, of one stream."""
    found = []
    # Only a line feed ends a line: it may hold whatever else ends lines elsewhere.
    for line in filter(None, text.decode(errors="replace").split("\n")):
        time, _, said = line.partition(" ")
        said = said.rstrip("\r")[:LINE_MAX]
        found.append(LogLine(time=time, container=container, stream=stream, text=said))
    return found


def lines_after(lines: Sequence[LogLine], place: Place | None) -> list[LogLine]:
    if place is None:
        return list(lines)
    seconds = [int(unix_time(line.time)) for line in lines]
    had = 0
    found = []
    for line, second in zip(lines, seconds, strict=True):
        if second == place.second and had < place.lines:
            had += 1
        elif second >= place.second:
            found.append(line)
    return found


def place_after(lines: Sequence[LogLine], place: Place | None) -> Place | None:
    """Where a reader is who has had these lines, coming from the place."""
    if not lines:
        return place
    last = int(unix_time(lines[-1].time))
    own = sum(1 for line in lines if int(unix_time(line.time)) == last)
    before = place.lines if place is not None and place.second == last else 0
    return Place(second=last, lines=own + before)
