"""Log lines of containers, and the position of a reader in them.

Engines filter lines by whole seconds. The place of a reader is therefore a second and the number of
lines of that second that it has received. The engine returns all lines from that second on, and the
collector skips those lines. No line is lost or repeated, even if a process restarts in between.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from datum_compute.api.codec import ApiStruct
from datum_compute.drivers.containers.logs import LineDecoder, RawLine, decode_text
from datum_compute.drivers.containers.seen import unix_time

LINES_MAX = 5000
PAGE_BYTES_MAX = 4 * 1024 * 1024
SECOND_MAX = 253_402_300_799  # the last second of the year 9999
PLACE_LINES_MAX = 2**53
# Lines of stdout and stderr, and so their seconds, can be slightly out of order.
_COUNTED_SECONDS_MAX = 16
_SECOND_CHARS = len("2026-01-01T00:00:00")


class LogLine(ApiStruct, frozen=True, kw_only=True):
    """One line that a container wrote."""

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
    """The last output of deleted machines, bounded in size and age."""

    async def keep(self, machine_id: str, container: str, framed: bytes) -> None: ...

    async def kept(self, server: str) -> list[tuple[str, str, bytes]]:
        """Return machine, container and framed lines of the last machines of a Server's name,
        oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class Selection:
    """Which lines of one container to collect: the first ones after a place, or the last ones.

    ``before_s`` excludes lines from that second on, because a later run of the container wrote
    them. Limits are those of the whole page, divided among its containers.
    """

    place: Place | None = None
    is_first: bool = False  # collect the first lines, not the last ones
    since_s: float = 0.0
    before_s: float = float("inf")
    lines_max: int = LINES_MAX
    bytes_max: int = PAGE_BYTES_MAX


class LineCollector:
    """Collects selected lines of one container from output that arrives piece by piece.

    The selection bounds its memory, independently of the length of the output.
    """

    def __init__(self, container: str, selection: Selection, *, is_framed: bool = True) -> None:
        self._container = container
        self._selection = selection
        self._decoder = LineDecoder(is_framed=is_framed)
        self._kept: deque[tuple[int, RawLine]] = deque()
        self._bytes = 0
        self._skipped = 0
        self._time_start = b""
        self._second = 0
        self._last: int | None = None
        self._counts: dict[int, int] = {}
        if selection.place is not None:
            self._counts[selection.place.second] = selection.place.lines
        self.is_full = False
        self.seconds: set[int] = set()  # of the lines; no more than two are recorded

    def feed(self, data: bytes) -> bool:
        """Return whether no further line will be collected."""
        self._add(self._decoder.feed(data))
        return self.is_full

    def finish(self) -> None:
        self._add(self._decoder.finish())

    @property
    def lines(self) -> list[tuple[int, LogLine]]:
        """The collected lines, each with its second."""
        return [(second, self._line(raw)) for second, raw in self._kept]

    @property
    def place(self) -> Place | None:
        """The place of a reader that has received the collected lines."""
        if self._last is None:
            return self._selection.place
        return Place(second=self._last, lines=self._counts[self._last])

    def _add(self, lines: list[RawLine]) -> None:
        for line in lines:
            if self.is_full:
                return
            second = self._read_second(line[1])
            if second >= self._selection.before_s:
                self.is_full = True
            elif not self._was_read(second):
                self._take(second, line)

    def _read_second(self, line: bytes) -> int:
        """Return the second of a line. Cached, because parsing is slow and most lines share it."""
        start = line[:_SECOND_CHARS]
        if start != self._time_start:
            self._time_start, self._second = start, int(_time_of(line))
            if len(self.seconds) < 2:
                self.seconds.add(self._second)
        return self._second

    def _was_read(self, second: int) -> bool:
        place = self._selection.place
        if place is None or second > place.second:
            return False
        if second == place.second and self._skipped >= place.lines:
            return False
        self._skipped += second == place.second
        return True

    def _take(self, second: int, line: RawLine) -> None:
        wanted = self._selection
        is_shown = second > wanted.since_s or _time_of(line[1]) >= wanted.since_s
        if wanted.is_first and not is_shown:
            return
        self._count(second)
        if not is_shown:
            return
        self._kept.append((second, line))
        self._bytes += len(line[1])
        is_over = len(self._kept) > wanted.lines_max or self._bytes > wanted.bytes_max
        if wanted.is_first:
            self.is_full = len(self._kept) >= wanted.lines_max or is_over
        elif is_over:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        wanted = self._selection
        while len(self._kept) > wanted.lines_max or self._bytes > wanted.bytes_max:
            _, (_, line) = self._kept.popleft()
            self._bytes -= len(line)

    def _count(self, second: int) -> None:
        self._last = second
        if second not in self._counts and len(self._counts) >= _COUNTED_SECONDS_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[second] = self._counts.get(second, 0) + 1

    def _line(self, raw: RawLine) -> LogLine:
        stream, line = raw
        time, _, text = line.partition(b" ")
        return LogLine(
            time=decode_text(time),
            container=self._container,
            stream="err" if stream == 2 else "out",
            text=decode_text(text),
        )


def _time_of(line: bytes) -> float:
    return unix_time(line[:64].partition(b" ")[0].decode("latin-1"))
