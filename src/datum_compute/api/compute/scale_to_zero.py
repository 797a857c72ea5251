"""Instances that nobody asks for anything sleep, and are woken by the first connection.

Off unless a template asks for it. ``planning``, ``drivers`` and ``app/traffic`` read it from here.
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

# Shorter than that an instance would sleep between two requests of one visitor.
IDLE_MIN_S, IDLE_MAX_S = 0.1, 24 * 3600.0

_UNITS_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(DURATION)


class ScaleToZero(ApiStruct, frozen=True, kw_only=True):
    """When an instance sleeps, and how deeply. It needs a named TCP port: that is what wakes it."""

    idle_after: Annotated[
        Duration,
        doc(
            "How long an instance is without any connection before it sleeps, such as 500ms, 30s, "
            "5m or 1h; from 100ms to 24h."
        ),
    ] = "30s"
    mode: Annotated[
        SleepMode,
        doc(
            "pause: its processes are frozen, keep their memory and go on within milliseconds. "
            "stop: its processes end as when it is removed, and are started again."
        ),
    ] = "pause"


class Wake(ApiStruct, frozen=True, kw_only=True):
    """One wake of a sleeping instance, and where its time went."""

    at: Annotated[Time, doc("When the connection came that asked for it (RFC 3339).")]
    mode: Annotated[SleepMode, doc("How it had slept.")] = "pause"
    queue_milliseconds: Annotated[
        Milliseconds, doc("Until the engine was asked: it may still have been falling asleep.")
    ] = 0
    engine_milliseconds: Annotated[Milliseconds, doc("What the engine took.")] = 0
    ready_milliseconds: Annotated[
        Milliseconds, doc("From there until it was ready and had accepted the connection.")
    ] = 0
    first_byte_milliseconds: Annotated[
        Milliseconds, doc("From there until the first byte of its answer.")
    ] = 0
    failure: Annotated[Text, doc("Why it did not come to serve in time; empty if it did.")] = ""


def seconds_of(duration: str) -> float:
    """Of a duration that matches its pattern."""
    found = _DURATION.match(duration)
    if found is None:
        raise ValueError(f"{duration!r} is no duration")
    return int(found[1]) * _UNITS_S[found[2]]
