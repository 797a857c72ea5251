"""The card of a machine that ended: all that is known of the end, kept when the machine is gone.

Nothing of the environment is on it; what the process itself printed is, as in its log. Built from
values; who keeps it is told by the driver.
"""
# MERGED-DOC """What has happened to a machine, told in order; the last few of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from datum_compute.api.timestamps import timestamp
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.status import crashed_state
from datum_compute.drivers.queries import CrashReport, MachineEvent

MOMENTS_MAX = 20
TEXT_MAX = 500


def note(moments: list[MachineEvent], now_s: float, text: str) -> None:
    """The same again right after itself says nothing new."""
    text = text[:TEXT_MAX]
    if moments and moments[-1].text == text:
        return
    moments.append(MachineEvent(at=timestamp(now_s), text=text))
    del moments[:-MOMENTS_MAX]


LINE_MAX = 500


class CrashReportArchive(Protocol):
    """The last cards of machines, bounded in number, size and age."""

    def keep(self, machine_id: str, card: CrashReport) -> None: ...

    def kept(self, server: str) -> list[CrashReport]:
        """Of all machines of a Server's name, the oldest first."""
        ...


def build_crash_report(machine: Machine, now_s: float) -> CrashReport:
    """Of an end that has just been noted in the machine's record."""
    record = machine.record
    seen = machine.seen.get(record.container)
    return CrashReport(
        ended_at=_time(record.ended_s),
        message=crashed_state(machine.plan, machine.sight(now_s)).message,
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


def build_removal_report(
    machine: Machine, seen: InspectedContainer | None, lines: Sequence[str], now_s: float
) -> CrashReport:
    """Of a machine that was asked to go; ``seen`` is its first container, stopped, if there was
    one. What kept it from running until then is said."""
    why = _trouble(machine, now_s)
    return CrashReport(
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
    return (
        crashed_state(machine.plan, machine.sight(now_s)).message if machine.record.is_down else ""
    )


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
