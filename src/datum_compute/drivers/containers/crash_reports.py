"""Crash reports: what is known about the end of a machine, kept after the machine is gone.

A report contains no environment variables. It contains the last lines that the process wrote, like
its log. An archive that the application provides stores the reports.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Protocol

from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.status import crashed_state
from datum_compute.drivers.queries import CrashReport

LINE_CHARACTERS_MAX = 500


class CrashReportArchive(Protocol):
    """The last crash reports, bounded in number, size and age."""

    def save(self, machine_id: str, report: CrashReport) -> None: ...

    def load(self, server: str) -> list[CrashReport]:
        """Return the reports of all machines of a Server (``namespace/name``), oldest first."""
        ...


def build_crash_report(machine: Machine, now_s: float) -> CrashReport:
    """Report the exit that was recorded last."""
    record = machine.record
    container = machine.inspected.get(record.container)
    return CrashReport(
        ended_at=_timestamp_ms(record.ended_s),
        message=crashed_state(machine.plan, machine.snapshot(now_s)).message,
        uid=machine.id.rpartition("/")[2],
        template_hash=machine.plan.template_hash,
        workload_uid=machine.plan.owner.uid,
        container=record.container,
        started_at=container.started_at if container is not None else "",
        exit_code=record.exit_code,
        out_of_memory=record.out_of_memory,
        restarts=record.restarts,
        lines=_cut_lines(record.last_lines),
        probes=_last_results(machine, record.ended_s),
        moments=list(machine.events),
    )


def build_removal_report(
    machine: Machine, container: InspectedContainer | None, lines: Sequence[str], now_s: float
) -> CrashReport:
    """Report a requested removal, and what kept the machine from running until then.

    ``container`` is the first container after it was stopped, if it exists.
    """
    problem = _last_problem(machine, now_s)
    message = "removal was requested"
    return CrashReport(
        ended_at=_timestamp_ms(now_s),
        message=f"{message}; until then: {problem}" if problem else message,
        planned=True,
        uid=machine.id.rpartition("/")[2],
        template_hash=machine.plan.template_hash,
        workload_uid=machine.plan.owner.uid,
        container=container.name if container is not None else "",
        started_at=container.started_at if container is not None else "",
        exit_code=container.exit_code if container is not None else None,
        restarts=machine.record.restarts,
        lines=_cut_lines(lines),
        probes=_last_results(machine, now_s),
        moments=list(machine.events),
    )


def _last_problem(machine: Machine, now_s: float) -> str:
    if machine.problem is not None:
        return f"{machine.problem.reason}: {machine.problem.message}"
    if machine.record.is_down:
        return crashed_state(machine.plan, machine.snapshot(now_s)).message
    return ""


def _last_results(machine: Machine, ended_s: float) -> dict[str, str]:
    """Return the last result of each probe that arrived before the end.

    The end may have interrupted a probe whose result arrives later.
    """
    last = {}
    for title, results in machine.probe_results.items():
        before = [result for arrived_s, result in results if arrived_s <= ended_s]
        if before:
            last[title] = before[-1]
    return last


def _cut_lines(lines: Sequence[str]) -> list[str]:
    return [line[:LINE_CHARACTERS_MAX] for line in lines]


def _timestamp_ms(unix_s: float) -> str:
    at = datetime.fromtimestamp(unix_s, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
