"""Times on the wire: RFC 3339, UTC, whole seconds."""

from __future__ import annotations

from datetime import UTC, datetime


def timestamp(unix_s: float) -> str:
    return datetime.fromtimestamp(int(unix_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> float:
    """Unix seconds of a wire time; offsets and fractions are accepted."""
    return datetime.fromisoformat(text).timestamp()
