"""What is remembered of a machine beside its containers: how often it ended, and how the last time.

A table that outlives the process, like that of simulated machines. Without it (the file was lost)
machines run on and only the count begins anew.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from datum_compute.api.codec import ApiStruct
from datum_compute.api.scaletozero import SleepMode
from datum_compute.drivers.containers.seen import Seen

BACKOFF_S, BACKOFF_MAX_S = 10.0, 300.0
# Who ran for so long has recovered: the next end is a first one again.
RECOVERED_S = 600.0


class Record(ApiStruct, frozen=True, kw_only=True):
    """``is_down``: an end has been noted, and the start after it has not happened yet."""

    restarts: int = 0
    is_down: bool = False
    start_after_s: float = 0.0
    wait_s: float = 0.0
    container: str = ""
    exit_code: int | None = None
    out_of_memory: bool = False
    why: str = ""  # if it was ended by us
    ended_s: float = 0.0
    lines: list[str] = []
    asleep: SleepMode | Literal[""] = ""  # how it sleeps, or is being put to sleep
    woken: bool = False  # its last start was no start after an end


NOTHING = Record()


def after_end(record: Record, seen: Seen, now_s: float) -> Record:
    """The end of one container is the end of the machine; the wait doubles with each."""
    ran_s = max(0.0, seen.finished_s - seen.started_s)
    first = not record.wait_s or ran_s >= RECOVERED_S
    wait_s = BACKOFF_S if first else min(2 * record.wait_s, BACKOFF_MAX_S)
    return Record(
        restarts=record.restarts,
        is_down=True,
        start_after_s=now_s + wait_s,
        wait_s=wait_s,
        container=seen.name,
        exit_code=seen.exit_code,
        out_of_memory=seen.out_of_memory,
        why=record.why,
        ended_s=seen.finished_s or now_s,
    )


def fallen_asleep(record: Record, mode: SleepMode) -> Record:
    """On record before anything is done, so that its end is known for what it is."""
    return msgspec.structs.replace(record, asleep=mode)


def after_wake(record: Record) -> Record:
    return msgspec.structs.replace(record, asleep="", woken=True)


def after_failed_wake(record: Record, again_s: float) -> Record:
    """From now on it is one that ended, and is started again until that works."""
    return msgspec.structs.replace(record, asleep="", is_down=True, start_after_s=again_s)


def after_start(record: Record) -> Record:
    return msgspec.structs.replace(
        record, is_down=False, restarts=record.restarts + int(record.is_down), why=""
    )
