"""Log lines of containers, and the position of a reader in them.

Engines filter lines by whole seconds. The place of a reader is therefore a second and the number of
lines of that second that it has received. The engine returns all lines from that second on, and the
collector skips those lines. No line is lost or repeated, even if a process restarts in between.
"""
# MERGED-DOC """Decodes framed container output of the engine: a header of eight bytes with the stream and the
# length of the payload, then the payload.
#
# The decoders process output piece by piece, in linear time, and keep only what was requested. They
# never hold a whole frame, and cut long lines.
# """

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import (
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from typing import Protocol

from datum_compute.api.codec import ApiStruct
from datum_compute.api.timestamps import unix_time

LINE_MAX = 4096  # characters
# A line is cut to this many bytes before it is decoded: its time, and characters of four bytes.
LINE_BYTES_MAX = 4 * LINE_MAX + 64
_HEADER = 8

# Stream (1 stdout, 2 stderr), payload, and whether the payload ends its frame.
FramePart = tuple[int, bytes, bool]
RawLine = tuple[int, bytes]


class FrameDecoder:
    """Returns the payload of frames as it arrives. Keeps only an incomplete header.

    Output of a terminal has no frames: data without a header is returned unchanged.
    """

    def __init__(self) -> None:
        self._header = b""
        self._stream = 1
        self._left = 0  # bytes of the current frame that have not arrived
        self._is_framed = True

    def feed(self, data: bytes) -> list[FramePart]:
        if not self._is_framed:
            return [(1, data, False)]
        if self._header:
            data, self._header = self._header + data, b""
        parts: list[FramePart] = []
        position, end = 0, len(data)
        while position < end:
            if not self._left:
                if end - position < _HEADER:
                    self._header = data[position:]
                    break
                header = data[position : position + _HEADER]
                if header[0] > 2 or header[1:4] != b"\0\0\0":
                    self._is_framed = False
                    parts.append((1, data[position:], False))
                    break
                self._stream, self._left = header[0], int.from_bytes(header[4:])
                position += _HEADER
                continue
            taken = min(self._left, end - position)
            self._left -= taken
            parts.append((self._stream, data[position : position + taken], not self._left))
            position += taken
        return parts


class LineDecoder:
    """Returns the lines of framed output, each cut to ``LINE_BYTES_MAX``.

    Only a line feed ends a line; other line separators of Unicode are part of it. Logs with times
    have at least one frame for each line, so the end of a frame also ends a line.
    """

    def __init__(self, *, is_framed: bool = True, ends_with_frame: bool = True) -> None:
        self._frames = FrameDecoder() if is_framed else None
        self._ends_with_frame = ends_with_frame
        self._stream = 1
        self._partial = b""  # the start of a line whose end has not arrived

    def feed(self, data: bytes) -> list[RawLine]:
        parts = self._frames.feed(data) if self._frames is not None else [(1, data, False)]
        lines: list[RawLine] = []
        for stream, payload, is_end in parts:
            *complete, partial = payload.split(b"\n")
            self._stream = stream
            for piece in complete:
                self._extend(piece)
                self._end_line(lines)
            self._extend(partial)
            if is_end and self._ends_with_frame:
                self._end_line(lines)
        return lines

    def finish(self) -> list[RawLine]:
        """Return the last line, if no line feed ended it."""
        lines: list[RawLine] = []
        self._end_line(lines)
        return lines

    def _extend(self, piece: bytes) -> None:
        if len(self._partial) < LINE_BYTES_MAX:
            self._partial += piece[: LINE_BYTES_MAX - len(self._partial)]

    def _end_line(self, lines: list[RawLine]) -> None:
        if self._partial:
            lines.append((self._stream, self._partial))
            self._partial = b""


class LastFrames:
    """Keeps the last whole frames that fit into ``bytes_max``, each cut to ``LINE_BYTES_MAX``."""

    def __init__(self, bytes_max: int) -> None:
        self._lines = LineDecoder()
        self._kept: deque[bytes] = deque()
        self._bytes_left = bytes_max

    def feed(self, data: bytes) -> bool:
        self._keep(self._lines.feed(data))
        return False

    def frames(self) -> bytes:
        self._keep(self._lines.finish())
        return b"".join(self._kept)

    def _keep(self, lines: list[RawLine]) -> None:
        for stream, line in lines:
            payload = line + b"\n"
            frame = bytes((stream, 0, 0, 0)) + len(payload).to_bytes(4) + payload
            self._kept.append(frame)
            self._bytes_left -= len(frame)
        while self._bytes_left < 0:
            self._bytes_left += len(self._kept.popleft())


class LastLines:
    """Keeps the last lines of both streams, in the order in which they were written."""

    def __init__(self, count: int) -> None:
        self._lines = LineDecoder(ends_with_frame=False)
        self._kept: deque[RawLine] = deque(maxlen=count)

    def feed(self, data: bytes) -> bool:
        self._kept += self._lines.feed(data)
        return False

    def texts(self) -> tuple[str, ...]:
        self._kept += self._lines.finish()
        return tuple(decode_text(line) for _, line in self._kept)


def decode_text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")[:LINE_MAX]


PIECE_BYTES = 32 * 1024


def split_pieces(content: bytes) -> Iterator[bytes]:
    """Yield pieces of the content that take at most a few milliseconds to process."""
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


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


class LogPosition(ApiStruct, frozen=True, kw_only=True):
    """Everything before the second is read, and so many lines of it."""

    second: int
    lines: int


LogCursor = Mapping[str, LogPosition]  # by machine and container


class LogPage(ApiStruct, frozen=True, kw_only=True):
    lines: list[LogLine]
    cursor: dict[str, LogPosition]


class LogArchive(Protocol):
    """The last output of deleted machines, bounded in size and age."""

    async def keep(self, machine_id: str, container: str, framed: bytes) -> None: ...

    async def kept(self, server: str) -> list[tuple[str, str, bytes]]:
        """Return machine, container and framed lines of the last machines of a Server's name,
        oldest first."""
        ...


@dataclass(frozen=True, slots=True)
class LineSelection:
    """Which lines of one container to collect: the first ones after a place, or the last ones.

    ``before_s`` excludes lines from that second on, because a later run of the container wrote
    them. Limits are those of the whole page, divided among its containers.
    """

    place: LogPosition | None = None
    is_first: bool = False  # collect the first lines, not the last ones
    since_s: float = 0.0
    before_s: float = float("inf")
    lines_max: int = LINES_MAX
    bytes_max: int = PAGE_BYTES_MAX


class LineCollector:
    """Collects selected lines of one container from output that arrives piece by piece.

    The selection bounds its memory, independently of the length of the output.
    """

    def __init__(self, container: str, selection: LineSelection, *, is_framed: bool = True) -> None:
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
    def place(self) -> LogPosition | None:
        """The place of a reader that has received the collected lines."""
        if self._last is None:
            return self._selection.place
        return LogPosition(second=self._last, lines=self._counts[self._last])

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


_SOURCE_LINES_MIN, _SOURCE_BYTES_MIN = 100, 64 * 1024


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Which lines. With a cursor those after it; without one the last ``tail`` of them."""

    container: str = ""
    tail: int = 200
    since_s: float = 0.0
    previous: bool = False  # those before the last start
    cursor: LogCursor = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogSource:
    """Lines of one container of one machine, under the key by which a reader's place is kept."""

    key: str
    lines: Sequence[tuple[int, LogLine]]  # each with its second
    place: LogPosition | None


class PageBuilder:
    """Merges the lines of containers into one page. Holds at most a page and one container."""

    def __init__(self, wish: LogQuery, sources: int) -> None:
        self._wish = wish
        self._cursor: dict[str, LogPosition] = dict(wish.cursor)
        self._lines: list[tuple[int, LogLine]] = []
        # A reader with a cursor gets lines of every container, so that a busy one blocks no other.
        self._share = max(1, sources) if wish.cursor else 1

    def selection(self, key: str) -> LineSelection:
        """Return which lines of a container belong on the page."""
        wish = self._wish
        lines_max = LINES_MAX if wish.cursor else min(wish.tail, LINES_MAX)
        return LineSelection(
            place=wish.cursor.get(key),
            is_first=bool(wish.cursor),
            since_s=wish.since_s,
            lines_max=max(lines_max // self._share, min(lines_max, _SOURCE_LINES_MIN)),
            bytes_max=max(PAGE_BYTES_MAX // self._share, _SOURCE_BYTES_MIN),
        )

    def add(self, source: LogSource) -> None:
        # A container without lines is in the cursor too, so that its next line counts as new.
        self._cursor[source.key] = source.place or LogPosition(second=0, lines=0)
        self._lines = sorted([*self._lines, *source.lines], key=lambda line: line[0])
        if not self._wish.cursor:
            self._drop_oldest()

    def page(self) -> LogPage:
        return LogPage(lines=[line for _, line in self._lines], cursor=self._cursor)

    def _drop_oldest(self) -> None:
        excess = len(self._lines) - min(self._wish.tail, LINES_MAX)
        size = sum(len(line.text) for _, line in self._lines)
        start = 0
        while start < len(self._lines) and (start < excess or size > PAGE_BYTES_MAX):
            size -= len(self._lines[start][1].text)
            start += 1
        del self._lines[:start]


def tail_lines(wish: LogQuery) -> int:
    """Return how many lines to request: at least one, which sets the place of the reader."""
    return max(1, min(wish.tail, LINES_MAX))


async def feed_pieces(collector: LineCollector, content: bytes) -> None:
    """Collect lines of output that is in memory. Other work runs after every piece."""
    for piece in split_pieces(content):
        if collector.feed(piece):
            return
        await asyncio.sleep(0)
    collector.finish()


def source_key(machine_id: str, container: str) -> str:
    return f"{machine_id.rpartition('/')[2]}/{container}"


# Fewer than the concurrent requests to the engine, so that logs do not block container starts.
CONCURRENT_LOG_READS_MAX = 4
