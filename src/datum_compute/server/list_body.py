"""Bodies of lists. A large one is not built as a whole: its pieces are made as the client reads.

The items of a list are the stored bytes of objects, which all responses share. So a large response
that nobody reads costs a few bytes for each item, and no request copies a whole list at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from datum_compute.api.codec import JsonObject, encode

PIECE_BYTES = 64 * 1024
WHOLE_BYTES_MAX = 256 * 1024  # smaller lists are one bytes object


@dataclass(frozen=True, slots=True)
class ListBody:
    """``left_out`` is what every item begins with and the list does not repeat; the opening brace
    that it contains is part of ``start`` and ``separator`` instead."""

    start: bytes
    items: list[bytes]
    left_out: bytes = b""

    @property
    def size_bytes(self) -> int:
        separators = len(_separator(self.left_out)) * (len(self.items) - 1)
        items = sum(map(len, self.items)) - len(self.left_out) * len(self.items)
        return len(self.start) + items + separators + len(_END)

    def __iter__(self) -> Iterator[bytes]:
        separator, skipped = _separator(self.left_out), len(self.left_out)
        parts: list[bytes | memoryview] = [self.start]
        size = 0
        for number, item in enumerate(self.items):
            if number:
                parts.append(separator)
            parts.append(memoryview(item)[skipped:] if skipped else item)
            size += len(item) + len(separator)
            if size >= PIECE_BYTES:
                yield b"".join(parts)
                parts, size = [], 0
        parts.append(_END)
        yield b"".join(parts)


def list_body(
    head: JsonObject, items: list[bytes], left_out: bytes = b"", field: str = "items"
) -> bytes | ListBody:
    """``head`` with the encoded ``items`` as its last field."""
    start = _start(head, field)
    if not items:
        return start + _END
    body = ListBody(start + b"{" if left_out else start, items, left_out)
    return b"".join(body) if body.size_bytes <= WHOLE_BYTES_MAX else body


def joined_list(head: JsonObject, items: list[bytes], field: str = "items") -> bytes:
    """The same as one bytes object."""
    return _start(head, field) + b",".join(items) + _END


def _start(head: JsonObject, field: str) -> bytes:
    return encode(head)[:-1] + b',"' + field.encode() + b'":['


_END = b"]}"


def _separator(left_out: bytes) -> bytes:
    return b",{" if left_out else b","
