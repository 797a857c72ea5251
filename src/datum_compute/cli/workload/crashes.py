"""Crash reports of instances, which their cell keeps for a day, also after their deletion."""

from __future__ import annotations

import asyncio

from datum_compute.api.errors import ApiError
from datum_compute.api.gateway import instance_path
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.timestamps import unix_time
from datum_compute.cli.connect.session import Session
from datum_compute.cli.render.documents import DeletedInstance
from datum_compute.cli.render.listing import age_since, print_document
from datum_compute.cli.render.output import one_line

# A program that crashed again after this many restarts is in a crash loop.
_CRASH_LOOP_RESTARTS = 2
_RECOVERED_AFTER_S = 600.0  # the drivers count an instance that ran for this long as recovered


async def read_crash_reports(session: Session, name: str) -> list[JsonObject]:
    """Return the reports, the oldest first. Return none if they cannot be read in time."""
    try:
        async with asyncio.timeout(session.environment.timeouts.side_read_s):
            found = await session.gateway.get_raw(instance_path(session.namespace, name, "crashes"))
    except (ApiError, TimeoutError):
        return []
    items: list[JsonObject] = found["items"]
    return items


def select_workload(reports: list[JsonObject], workload_uid: str) -> list[JsonObject]:
    """Return the reports without those of an earlier workload whose instances had the same names.

    A report without a uid counts: an earlier release wrote it.
    """
    own = ("", workload_uid)
    return [r for r in reports if not workload_uid or r.get("workloadUid", "") in own]


def split_by_template(
    reports: list[JsonObject], template_hash: str
) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return the reports of this template, and those of other templates.

    A report without a hash counts as one of this template: an earlier release wrote it.
    """
    current = [
        report for report in reports if report.get("templateHash", "") in ("", template_hash)
    ]
    return current, [report for report in reports if report not in current]


def select_crashes(reports: list[JsonObject]) -> list[JsonObject]:
    """Return the reports of crashes, without ends that the platform requested."""
    return [report for report in reports if not report["planned"]]


def is_crash_loop(reports: list[JsonObject], template_hash: str) -> bool:
    """Return True if an instance with this template crashed again after two restarts.

    One or two restarts are normal, such as for a program that starts before its database. Restarts
    before a long run do not count: after it, the driver restarts the instance without delay again.
    """
    current, _ = split_by_template(select_crashes(reports), template_hash)
    if not current:
        return False
    last = current[-1]
    ended_s, restarts = unix_time(last["endedAt"]), int(last["restarts"])
    ran_s = ended_s - (unix_time(last["startedAt"]) or ended_s)
    return restarts >= _CRASH_LOOP_RESTARTS and ran_s < _RECOVERED_AFTER_S


def print_crash_reports(session: Session, reports: list[JsonObject]) -> None:
    """Print the last report in full, and the earlier ones in one line each."""
    if not reports:
        return
    *earlier, last = reports
    data, now = session.output.data, session.environment.now()
    data("")
    data(f"Ended {age_since(last['endedAt'], now)} ago: {one_line(last['message'])}")
    for title, text in _exit_fields(last):
        data(f"  {title + ':':<11} {one_line(text)}")
    for title, lines in (("What happened", _timeline(last)), ("Last lines", last["lines"])):
        if lines:
            data(f"  {title}:")
        for line in lines:
            data(f"    {one_line(line)}")
    _print_summary(session, "Ended before:", earlier)


def print_earlier_versions(session: Session, reports: list[JsonObject]) -> None:
    """Print one line for each report of another template."""
    if reports:
        session.output.data("")
    _print_summary(session, "Ended before, with another version:", reports)


def _print_summary(session: Session, title: str, reports: list[JsonObject]) -> None:
    data, now = session.output.data, session.environment.now()
    if reports:
        data(title)
    for report in reversed(reports):
        data(f"  {age_since(report['endedAt'], now)} ago: {one_line(report['message'])}")


def print_deleted_instance(
    session: Session, name: str, output_format: str, reports: list[JsonObject]
) -> None:
    """Print the reports of an instance that was deleted, of the last workload that had it."""
    reports = select_workload(reports, reports[-1].get("workloadUid", ""))

    def lines() -> None:
        session.output.data(f"Instance {name} ({session.target_name}) is gone.")
        print_crash_reports(session, reports)

    message = reports[-1]["message"]
    document = DeletedInstance(name=name, status="Gone", message=message, crashes=reports)
    print_document(session.output, output_format, lambda: document, lines, f"instance/{name}")


def _exit_fields(report: JsonObject) -> list[tuple[str, str]]:
    code = "" if report["exitCode"] is None else str(report["exitCode"])
    out_of_memory = " (out of memory)" if report["outOfMemory"] else ""
    ran = f"{report['startedAt']} to {report['endedAt']}" if report["startedAt"] else ""
    fields = [
        ("Container", report["container"]),
        ("Exit code", f"{code}{out_of_memory}"),
        ("Ran", ran),
        ("Restarts", str(report["restarts"])),
        *(("Probe", f"{title}: {result}") for title, result in report["probes"].items()),
    ]
    return [(title, text) for title, text in fields if text]


def _timeline(report: JsonObject) -> list[str]:
    return [f"{event['at']}  {event['text']}" for event in report["moments"]]
