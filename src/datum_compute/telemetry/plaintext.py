"""Text of strangers on its way to a terminal, a log or an event: visible, and nothing else."""

from __future__ import annotations


def printable(text: str) -> str:
    """The text with everything that is not plainly visible written out."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def cut_bytes(text: str, bytes_max: int) -> str:
    """At most so many bytes of UTF-8, never half a character; what was cut is marked."""
    encoded = text.encode("utf-8", errors="replace")
    if len(encoded) <= bytes_max:
        return encoded.decode()
    mark = "..."
    return encoded[: bytes_max - len(mark)].decode("utf-8", errors="ignore") + mark
