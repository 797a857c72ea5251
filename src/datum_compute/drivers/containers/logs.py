"""Decodes framed container output of the engine: a header of eight bytes with the stream and the
length of the payload, then the payload.

The decoders process output piece by piece, in linear time, and keep only what was requested. They
never hold a whole frame, and cut long lines.
"""

from __future__ import annotations

from collections import deque

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
