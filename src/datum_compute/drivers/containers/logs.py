"""Output of containers as the engine frames it: eight bytes that say the stream and the length,
then so many bytes."""

from __future__ import annotations

from collections.abc import AsyncGenerator

LINE_MAX = 4096
_HEADER = 8
_FRAME_MAX = 16 * 1024 * 1024


class Unframed:
    """Takes bytes as they come and gives back what was said; incomplete frames wait."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, chunk: bytes) -> list[tuple[int, bytes]]:
        """Stream (1 output, 2 errors) and bytes, in order."""
        self._rest += chunk
        found: list[tuple[int, bytes]] = []
        while len(self._rest) >= _HEADER:
            stream, size = self._rest[0], int.from_bytes(self._rest[4:_HEADER])
            if stream > 2 or size > _FRAME_MAX:  # of a terminal: nothing is framed
                found.append((1, self._rest))
                self._rest = b""
                break
            if len(self._rest) < _HEADER + size:
                break
            found.append((stream, self._rest[_HEADER : _HEADER + size]))
            self._rest = self._rest[_HEADER + size :]
        return found


def last_frames(framed: bytes, bytes_max: int) -> bytes:
    """As many whole frames from the end as there is room for."""
    kept: list[bytes] = []
    room = bytes_max
    for stream, part in reversed(Unframed().take(framed)):
        room -= _HEADER + len(part)
        if room < 0:
            break
        kept.append(bytes((stream, 0, 0, 0)) + len(part).to_bytes(4) + part)
    return b"".join(reversed(kept))


def last_lines(framed: bytes, count: int) -> tuple[str, ...]:
    """The last lines of both streams, in the order in which they were said."""
    said = b"".join(part for _, part in Unframed().take(framed))
    lines = said.decode(errors="replace").splitlines()
    return tuple(line[:LINE_MAX] for line in lines[-count:])


async def unframed(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[tuple[int, bytes], None]:
    frames = Unframed()
    async for chunk in chunks:
        for part in frames.take(chunk):
            yield part
