"""Times on the wire: RFC 3339 in UTC with whole seconds, and with microseconds for some kinds."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

_FIRST_TIME_S = 365 * 86_400.0  # 1971; no event is older
_LENGTH_MAX = 64  # fractions of a second can have any number of digits, and caches keep the text


def timestamp(unix_s: float) -> str:
    return _timestamp(int(unix_s))


@lru_cache(maxsize=16)  # the current second is requested often
def _timestamp(unix_s: int) -> str:
    return datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(unix_s: float) -> str:
    """Return a time with six decimals, as in leases and newer events."""
    at = datetime.fromtimestamp(unix_s, UTC)
    return at.isoformat(timespec="microseconds").replace("+00:00", "Z")


@lru_cache(maxsize=64)  # the times of one object are often equal
def normalize_time(text: str) -> str:
    """Return a time in UTC with whole seconds. Raises ValueError for other texts."""
    return _in_utc(text).isoformat(timespec="seconds").replace("+00:00", "Z")


def normalize_micro_time(text: str) -> str:
    """Return a time in UTC with six decimals. Raises ValueError for other texts."""
    return _in_utc(text).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _parse(text: str) -> datetime:
    if len(text) > _LENGTH_MAX:
        raise ValueError(f"a time has more than {_LENGTH_MAX} characters")
    return datetime.fromisoformat(text)


def _in_utc(text: str) -> datetime:
    parsed = _parse(text)
    if parsed.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone")
    try:
        return parsed.astimezone(UTC)
    except OverflowError as error:
        raise ValueError(f"{text!r} is out of range") from error


@lru_cache(maxsize=1024)  # objects that were created together have equal times
def parse_timestamp(text: str) -> float:
    """Return the Unix seconds of a time. Offsets and decimals are accepted."""
    return _parse(text).timestamp()


def remaining_s(since: str, duration_s: float, now: str) -> float:
    """Seconds until ``duration_s`` has passed since a time that another process may have written.

    Zero when it has passed. A time that is further in the future than ``duration_s`` is ignored,
    because the clocks disagree: no wait is longer than twice the duration.
    """
    left_s = parse_timestamp(since) + duration_s - parse_timestamp(now)
    return left_s if 0 < left_s <= 2 * duration_s else 0.0


def unix_time(text: str) -> float:
    """Return the Unix seconds of a wire time with any number of decimals; 0 if it is none.

    Container engines write a time in the year 1 for an event that has not happened: that is 0 too.
    """
    try:
        seconds = parse_timestamp(text)
    except (ValueError, OverflowError):
        return 0.0
    return seconds if seconds >= _FIRST_TIME_S else 0.0
