"""Log lines of containers: decoding, pages, and the position of a reader.

- Sources of logs filter lines by whole seconds. The position of a reader is therefore a second and
  the number of lines of that second that it has received. A source returns all lines from that
  second on, and the collector skips the lines that were received. No line is lost or repeated,
  even if a process restarts in between.
- Container engines frame output: a header of eight bytes with the stream and the length of the
  payload, then the payload.
- Decoders process output in pieces and in linear time, and keep only what was selected. They never
  hold a whole frame, and they cut long lines.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.timestamps import unix_time

LINE_CHARACTERS_MAX = 4096
# A line is cut to this before it is decoded: its time, and characters of four bytes.
LINE_BYTES_MAX = 4 * LINE_CHARACTERS_MAX + 64
PIECE_BYTES = 32 * 1024
LINES_MAX = 5000  # of a page
PAGE_BYTES_MAX = 4 * 1024 * 1024
# Fewer than the concurrent requests to the engine, so that logs do not block container starts.
CONCURRENT_LOG_READS_MAX = 4
SECOND_MAX = 253_402_300_799  # the last second of the year 9999
POSITION_LINES_MAX = 2**53
# Minimum part of a page for each source, for any number of sources.
_SOURCE_LINES_MIN, _SOURCE_BYTES_MIN = 100, 64 * 1024
# Seconds whose lines are counted: the seconds of stdout and stderr can be slightly out of order.
_COUNTED_SECONDS_MAX = 16
_SECOND_CHARACTERS = len("2026-01-01T00:00:00")
_HEADER_BYTES = 8

# Stream (1 stdout, 2 stderr), payload, and whether the payload ends its frame.
FramePart = tuple[int, bytes, bool]
# Stream and content.
RawLine = tuple[int, bytes]


# --- values


class LogLine(ApiStruct, frozen=True, kw_only=True):
    time: str
    container: str
    stream: str  # out or err
    text: str


class LogPosition(ApiStruct, frozen=True, kw_only=True):
    """The reader has received everything before the second, and ``lines`` lines of it."""

    second: int
    lines: int


LogCursor = Mapping[str, LogPosition]  # by source_key()


class LogOwner(ApiStruct, frozen=True, kw_only=True):
    """The workload whose instance a machine is. Empty if an earlier release started the machine."""

    workload: str = ""
    uid: str = ""  # of the workload
    city: str = ""

    def is_selected(self, uid: str) -> bool:
        """Return False if the machine is known to belong to another workload than ``uid``."""
        return not uid or self.uid in ("", uid)


class WorkloadLog(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """An instance of a workload that has a log, also after its deletion."""

    instance: str
    workload_uid: str
    city: str
    written_at: str  # when the machine was removed; now for a machine that exists


class LogPage(ApiStruct, frozen=True, kw_only=True):
    lines: list[LogLine]
    cursor: dict[str, LogPosition]


@dataclass(frozen=True, slots=True)
class LogQuery:
    """Selects the lines after a cursor or, without one, the last ``tail`` lines."""

    container: str = ""
    tail: int = 200
    since_s: float = 0.0
    previous: bool = False  # lines from before the last start
    cursor: LogCursor = field(default_factory=dict)
    workload_uid: str = ""  # only machines of this workload; empty: of all with the name


class LogArchive(Protocol):
    """The last output of deleted machines, bounded in size and age."""

    async def save(
        self, machine_id: str, container: str, framed: bytes, owner: LogOwner
    ) -> None: ...

    async def load(self, server: str, workload_uid: str = "") -> list[tuple[str, str, bytes]]:
        """Return machine, container and framed lines of the deleted machines of a Server.

        The oldest machine comes first. ``workload_uid`` omits machines of other workloads.
        """
        ...

    async def find(self, namespace: str, workload: str) -> list[WorkloadLog]:
        """Return the deleted machines of all workloads that had the name, oldest first."""
        ...


# --- decoding


def split_pieces(content: bytes) -> Iterator[bytes]:
    """Yield pieces of the content that take at most a few milliseconds to process."""
    for start in range(0, len(content), PIECE_BYTES):
        yield content[start : start + PIECE_BYTES]


class FrameDecoder:
    """Returns the payload of frames as it arrives. Keeps only an incomplete header.

    Output of a terminal has no frames: data without a header is returned unchanged.
    """

    def __init__(self) -> None:
        self._header = b""
        self._stream = 1
        self._bytes_left = 0  # of the current frame
        self._is_framed = True

    def feed(self, data: bytes) -> list[FramePart]:
        if not self._is_framed:
            return [(1, data, False)]
        if self._header:
            data, self._header = self._header + data, b""
        parts: list[FramePart] = []
        start, end = 0, len(data)
        while start < end:
            if not self._bytes_left:
                if end - start < _HEADER_BYTES:
                    self._header = data[start:]
                    break
                header = data[start : start + _HEADER_BYTES]
                if header[0] > 2 or header[1:4] != b"\0\0\0":
                    self._is_framed = False
                    parts.append((1, data[start:], False))
                    break
                self._stream, self._bytes_left = header[0], int.from_bytes(header[4:])
                start += _HEADER_BYTES
                continue
            size = min(self._bytes_left, end - start)
            self._bytes_left -= size
            parts.append((self._stream, data[start : start + size], not self._bytes_left))
            start += size
        return parts


class LineDecoder:
    """Returns the lines of output, each cut to ``LINE_BYTES_MAX``.

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
        self._decoder = LineDecoder()
        self._frames: deque[bytes] = deque()
        self._bytes_left = bytes_max

    def feed(self, data: bytes) -> bool:
        self._add(self._decoder.feed(data))
        return False

    def frames(self) -> bytes:
        self._add(self._decoder.finish())
        return b"".join(self._frames)

    def _add(self, lines: list[RawLine]) -> None:
        for stream, line in lines:
            payload = line + b"\n"
            frame = bytes((stream, 0, 0, 0)) + len(payload).to_bytes(4) + payload
            self._frames.append(frame)
            self._bytes_left -= len(frame)
        while self._bytes_left < 0:
            self._bytes_left += len(self._frames.popleft())


class LastLines:
    """Keeps the last lines of both streams, in the order in which they were written."""

    def __init__(self, count: int) -> None:
        self._decoder = LineDecoder(ends_with_frame=False)
        self._lines: deque[RawLine] = deque(maxlen=count)

    def feed(self, data: bytes) -> bool:
        self._lines += self._decoder.feed(data)
        return False

    def texts(self) -> tuple[str, ...]:
        self._lines += self._decoder.finish()
        return tuple(decode_text(line) for _, line in self._lines)


def decode_text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")[:LINE_CHARACTERS_MAX]


# --- selecting


@dataclass(frozen=True, slots=True)
class LineSelection:
    """Which lines of one container to collect: the first ones after a position, or the last ones.

    ``before_s`` excludes lines from that second on, because a later run of the container wrote
    them. Limits are those of the whole page, divided among its containers.
    """

    position: LogPosition | None = None
    is_first: bool = False  # collect the first lines, not the last ones
    since_s: float = 0.0
    before_s: float = float("inf")
    lines_max: int = LINES_MAX
    bytes_max: int = PAGE_BYTES_MAX


class LineCollector:
    """Collects selected lines of one container from output that arrives in pieces.

    The selection bounds its memory, independently of the length of the output.
    """

    def __init__(self, container: str, selection: LineSelection, *, is_framed: bool = True) -> None:
        self._container = container
        self._selection = selection
        self._decoder = LineDecoder(is_framed=is_framed)
        self._lines: deque[tuple[int, RawLine]] = deque()
        self._bytes = 0
        self._skipped = 0
        # The start of the last time that was parsed, and its second.
        self._time_start = b""
        self._second = 0
        self._last_second: int | None = None
        self._counts: dict[int, int] = {}  # lines by second, also of those that were dropped
        if selection.position is not None:
            self._counts[selection.position.second] = selection.position.lines
        self.is_full = False
        self.seconds: set[int] = set()  # of the parsed lines; at most two are recorded

    def feed(self, data: bytes) -> bool:
        """Return True if no further line will be collected."""
        self._add(self._decoder.feed(data))
        return self.is_full

    def finish(self) -> None:
        self._add(self._decoder.finish())

    @property
    def lines(self) -> list[tuple[int, LogLine]]:
        """The collected lines, each with its second."""
        return [(second, self._decode_line(raw)) for second, raw in self._lines]

    @property
    def position(self) -> LogPosition | None:
        """The position of a reader that has received the collected lines."""
        if self._last_second is None:
            return self._selection.position
        return LogPosition(second=self._last_second, lines=self._counts[self._last_second])

    def _add(self, lines: list[RawLine]) -> None:
        for line in lines:
            if self.is_full:
                return
            second = self._parse_second(line[1])
            if second >= self._selection.before_s:
                self.is_full = True
            elif not self._was_received(second):
                self._collect(second, line)

    def _parse_second(self, line: bytes) -> int:
        """Return the second of a line. Cached, because parsing is slow and most lines share it."""
        start = line[:_SECOND_CHARACTERS]
        if start != self._time_start:
            self._time_start, self._second = start, int(_parse_time(line))
            if len(self.seconds) < 2:
                self.seconds.add(self._second)
        return self._second

    def _was_received(self, second: int) -> bool:
        position = self._selection.position
        if position is None or second > position.second:
            return False
        if second == position.second and self._skipped >= position.lines:
            return False
        self._skipped += second == position.second
        return True

    def _collect(self, second: int, line: RawLine) -> None:
        selection = self._selection
        is_selected = second > selection.since_s or _parse_time(line[1]) >= selection.since_s
        if selection.is_first and not is_selected:
            return
        self._count(second)
        if not is_selected:
            return
        self._lines.append((second, line))
        self._bytes += len(line[1])
        is_over = len(self._lines) > selection.lines_max or self._bytes > selection.bytes_max
        if selection.is_first:
            self.is_full = len(self._lines) >= selection.lines_max or is_over
        elif is_over:
            self._drop_oldest()

    def _drop_oldest(self) -> None:
        selection = self._selection
        while len(self._lines) > selection.lines_max or self._bytes > selection.bytes_max:
            _, (_, line) = self._lines.popleft()
            self._bytes -= len(line)

    def _count(self, second: int) -> None:
        self._last_second = second
        if second not in self._counts and len(self._counts) >= _COUNTED_SECONDS_MAX:
            del self._counts[next(iter(self._counts))]
        self._counts[second] = self._counts.get(second, 0) + 1

    def _decode_line(self, raw: RawLine) -> LogLine:
        stream, line = raw
        time, _, text = line.partition(b" ")
        return LogLine(
            time=decode_text(time),
            container=self._container,
            stream="err" if stream == 2 else "out",
            text=decode_text(text),
        )


def _parse_time(line: bytes) -> float:
    return unix_time(line[:64].partition(b" ")[0].decode("latin-1"))


async def collect_pieces(collector: LineCollector, content: bytes) -> None:
    """Collect the lines of output that is in memory. Other tasks run after every piece."""
    for piece in split_pieces(content):
        if collector.feed(piece):
            return
        await asyncio.sleep(0)
    collector.finish()


# --- pages


@dataclass(frozen=True, slots=True)
class LogSource:
    """Lines of one container of one machine. ``key`` is the key of its position in the cursor."""

    key: str
    lines: Sequence[tuple[int, LogLine]]  # each with its second
    position: LogPosition | None


class PageBuilder:
    """Merges the lines of containers into one page. Holds at most a page and one container."""

    def __init__(self, query: LogQuery, sources: int) -> None:
        self._query = query
        self._cursor: dict[str, LogPosition] = dict(query.cursor)
        self._lines: list[tuple[int, LogLine]] = []
        # A reader with a cursor gets lines of every container, so that a busy one blocks no other.
        self._sources = max(1, sources) if query.cursor else 1

    def selection(self, key: str) -> LineSelection:
        """Return which lines of a container belong on the page."""
        query = self._query
        lines_max = LINES_MAX if query.cursor else min(query.tail, LINES_MAX)
        return LineSelection(
            position=query.cursor.get(key),
            is_first=bool(query.cursor),
            since_s=query.since_s,
            lines_max=max(lines_max // self._sources, min(lines_max, _SOURCE_LINES_MIN)),
            bytes_max=max(PAGE_BYTES_MAX // self._sources, _SOURCE_BYTES_MIN),
        )

    def add(self, source: LogSource) -> None:
        # A container without lines is in the cursor too, so that its next line counts as new.
        self._cursor[source.key] = source.position or LogPosition(second=0, lines=0)
        self._lines = sorted([*self._lines, *source.lines], key=lambda line: line[0])
        if not self._query.cursor:
            self._drop_oldest()

    def page(self) -> LogPage:
        return LogPage(lines=[line for _, line in self._lines], cursor=self._cursor)

    def _drop_oldest(self) -> None:
        excess = len(self._lines) - min(self._query.tail, LINES_MAX)
        size = sum(len(line.text) for _, line in self._lines)
        start = 0
        while start < len(self._lines) and (start < excess or size > PAGE_BYTES_MAX):
            size -= len(self._lines[start][1].text)
            start += 1
        del self._lines[:start]


def requested_tail(query: LogQuery) -> int:
    """Return how many lines to request: at least one, which sets the position of the reader."""
    return max(1, min(query.tail, LINES_MAX))


def source_key(machine_id: str, container: str) -> str:
    return f"{machine_id.rpartition('/')[2]}/{container}"
