"""Times on the wire: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache


def timestamp(unix_s: float) -> str:
    return _timestamp(int(unix_s))


@lru_cache(maxsize=16)  # thousands of objects are stamped in one second
def _timestamp(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> float:
    """Unix seconds of a wire time; offsets and fractions are accepted."""
    return datetime.fromisoformat(text).timestamp()
