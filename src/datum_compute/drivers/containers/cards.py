"""The card of a machine that ended: all that is known of the end, kept when the machine is gone.

Nothing of the environment is on it; what the process itself printed is, as in its log. Built from
values; who keeps it is told by the driver.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from datum_compute.api.codec import ApiStruct
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.moments import Moment
from datum_compute.drivers.containers.seen import Seen
from datum_compute.drivers.containers.state import crashed

LINE_MAX = 500


class CrashCard(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """``planned``: it was asked to end, as a rollout does; else it ended by itself, or was ended
    for a reason that the message gives."""

    ended_at: str
    message: str
    planned: bool = False
    uid: str = ""
    container: str = ""
    started_at: str = ""
    exit_code: int | None = None
    out_of_memory: bool = False
    restarts: int = 0
    lines: list[str] = []
    probes: dict[str, str] = {}  # the last answer to each
    moments: list[Moment] = []


class Crashes(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Those of one instance, the last one last."""

    items: list[CrashCard]


class CardKeeper(Protocol):
    """The last cards of machines, bounded in number, size and age."""

    def keep(self, machine_id: str, card: CrashCard) -> None: ...

    def kept(self, server: str) -> list[CrashCard]:
        """Of all machines of a Server's name, the oldest first."""
        ...


def card_of_end(machine: Machine, now_s: float) -> CrashCard:
    """Of an end that has just been noted in the machine's record."""
    record = machine.record
    seen = machine.seen.get(record.container)
    return CrashCard(
        ended_at=_time(record.ended_s),
        message=crashed(machine.plan, machine.sight(now_s)).message,
        uid=machine.id.rpartition("/")[2],
        container=record.container,
        started_at=seen.started_at if seen is not None else "",
        exit_code=record.exit_code,
        out_of_memory=record.out_of_memory,
        restarts=record.restarts,
        lines=_short(record.lines),
        probes=_last_answers(machine, record.ended_s),
        moments=list(machine.moments),
    )


def card_of_removal(
    machine: Machine, seen: Seen | None, lines: Sequence[str], now_s: float
) -> CrashCard:
    """Of a machine that was asked to go; ``seen`` is its first container, stopped, if there was
    one. What kept it from running until then is said."""
    why = _trouble(machine, now_s)
    return CrashCard(
        ended_at=_time(now_s),
        message=f"it was asked to end; until then: {why}" if why else "it was asked to end",
        planned=True,
        uid=machine.id.rpartition("/")[2],
        container=seen.name if seen is not None else "",
        started_at=seen.started_at if seen is not None else "",
        exit_code=seen.exit_code if seen is not None else None,
        restarts=machine.record.restarts,
        lines=_short(lines),
        probes=_last_answers(machine, now_s),
        moments=list(machine.moments),
    )


def _trouble(machine: Machine, now_s: float) -> str:
    if machine.problem is not None:
        return f"{machine.problem.reason}: {machine.problem.message}"
    return crashed(machine.plan, machine.sight(now_s)).message if machine.record.is_down else ""


def _last_answers(machine: Machine, ended_s: float) -> dict[str, str]:
    """Those from before the end: one that comes after it, or was cut off by it, is about nobody."""
    found = {}
    for title, answers in machine.answered.items():
        before = [words for came_s, words in answers if came_s <= ended_s]
        if before:
            found[title] = before[-1]
    return found


def _short(lines: Sequence[str]) -> list[str]:
    return [line[:LINE_MAX] for line in lines]


def _time(unix_s: float) -> str:
    moment = datetime.fromtimestamp(unix_s, UTC)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
