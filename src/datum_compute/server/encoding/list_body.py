"""Bodies of lists. A large body is built in pieces, while the client reads it.

The items of a list are the stored bytes of objects, which all responses share. A large response
that a client does not read therefore costs a few bytes for each item, and no request copies a whole
list at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from datum_compute.api.meta.codec import JsonObject, encode

PIECE_BYTES = 64 * 1024
WHOLE_BYTES_MAX = 256 * 1024  # larger bodies are sent in pieces
ENCODED_BYTES_MAX = 16 * 1024 * 1024  # of items that are encoded for one response


@dataclass(frozen=True, slots=True)
class ListBody:
    """The body of a list, as an iterable of pieces.

    ``omitted_prefix`` is removed from each item. It ends after the opening brace and the type, so
    ``start`` and the separator contain the brace instead.
    """

    start: bytes
    items: list[bytes]
    omitted_prefix: bytes = b""

    @property
    def size_bytes(self) -> int:
        separators = len(_separator(self.omitted_prefix)) * (len(self.items) - 1)
        items = sum(map(len, self.items)) - len(self.omitted_prefix) * len(self.items)
        return len(self.start) + items + separators + len(_END_OF_BODY)

    def __iter__(self) -> Iterator[bytes | memoryview]:
        """Yield pieces of about ``PIECE_BYTES``. Those of a large item refer to its stored bytes,
        so that a client that does not read holds no copy of it."""
        separator, skipped = _separator(self.omitted_prefix), len(self.omitted_prefix)
        parts: list[bytes | memoryview] = [self.start]
        size = 0
        for number, item in enumerate(self.items):
            if number:
                parts.append(separator)
            if len(item) > PIECE_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
                yield from slices(memoryview(item)[skipped:], PIECE_BYTES)
                continue
            parts.append(memoryview(item)[skipped:] if skipped else item)
            size += len(item) + len(separator)
            if size >= PIECE_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
        parts.append(_END_OF_BODY)
        yield b"".join(parts)


def list_body(
    head: JsonObject, items: list[bytes], omitted_prefix: bytes = b"", field: str = "items"
) -> bytes | ListBody:
    """Return ``head`` with the encoded ``items`` as its last field."""
    start = _start(head, field)
    if not items:
        return start + _END_OF_BODY
    body = ListBody(start + b"{" if omitted_prefix else start, items, omitted_prefix)
    return b"".join(body) if body.size_bytes <= WHOLE_BYTES_MAX else body


def slices(data: memoryview, size_bytes: int) -> Iterator[memoryview]:
    """Yield the data in parts of ``size_bytes``, without copying it."""
    return (data[at : at + size_bytes] for at in range(0, len(data), size_bytes))


def join_list(head: JsonObject, items: list[bytes], field: str = "items") -> bytes:
    """Return the whole list as one bytes object."""
    return _start(head, field) + b",".join(items) + _END


def _start(head: JsonObject, field: str) -> bytes:
    return encode(head)[:-1] + b',"' + field.encode() + b'":['


_END = b"]}"
_END_OF_BODY = b"]}\n"


def _separator(omitted_prefix: bytes) -> bytes:
    return b",{" if omitted_prefix else b","
