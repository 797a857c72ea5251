"""Scale to zero: instances without connections sleep, and the next connection wakes them.

It is off unless a template enables it. Packages ``planning``, ``drivers`` and ``ingress`` read it.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from msgspec import Meta

from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.fields import DURATION, Text, Time, doc

SleepMode = Literal["pause", "stop"]
Duration = Annotated[str, Meta(pattern=DURATION, max_length=10)]
Milliseconds = Annotated[int, Meta(ge=0)]

# With a shorter time an instance would sleep between two requests of one client.
IDLE_MIN_S, IDLE_MAX_S = 0.1, 24 * 3600.0

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(DURATION)


class ScaleToZero(ApiStruct, frozen=True, kw_only=True):
    """When an instance sleeps, and in which mode. It requires a named TCP port, because a
    connection wakes the instance.
    """

    idle_after: Annotated[
        Duration,
        doc(
            "Time without connections after which an instance sleeps, such as "
            "500ms, 30s, 5m or 1h. From 100ms to 24h."
        ),
    ] = "30s"
    mode: Annotated[
        SleepMode,
        doc(
            "pause freezes the processes, which keep their memory and continue "
            "within milliseconds. stop ends the processes, as for a removed "
            "instance, and starts them again."
        ),
    ] = "pause"


class Wake(ApiStruct, frozen=True, kw_only=True):
    """A wake-up of a sleeping instance, and how long each step took."""

    at: Annotated[Time, doc("Time of the connection that woke the instance (RFC 3339).")]
    mode: Annotated[SleepMode, doc("Mode in which the instance slept.")] = "pause"
    queue_milliseconds: Annotated[
        Milliseconds,
        doc(
            "Time until the container engine was called. The instance may still "
            "have been going to sleep."
        ),
    ] = 0
    engine_milliseconds: Annotated[Milliseconds, doc("Time that the container engine took.")] = 0
    ready_milliseconds: Annotated[
        Milliseconds, doc("Time from then until the instance accepted the connection.")
    ] = 0
    first_byte_milliseconds: Annotated[
        Milliseconds, doc("Time from then until the first byte of the response.")
    ] = 0
    failure: Annotated[
        Text, doc("Why the instance did not become ready in time. Empty if it did.")
    ] = ""


def duration_seconds(duration: str) -> float:
    """Return the seconds of a duration such as 5m."""
    found = _DURATION.match(duration)
    if found is None:
        raise ValueError(f"{duration!r} is not a duration")
    return int(found[1]) * _UNITS_S[found[2]]
