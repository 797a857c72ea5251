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

_RESTARTS_IN_VAIN = 2
_RECOVERED_AFTER_S = 600.0  # the drivers count an instance that ran for this long as recovered


async def read_crash_reports(session: Session, name: str) -> list[JsonObject]:
    """Return the reports, the oldest first; none if they cannot be read, or not in time."""
    try:
        async with asyncio.timeout(session.environment.timeouts.side_read_s):
            found = await session.gateway.get_raw(instance_path(session.namespace, name, "crashes"))
    except (ApiError, TimeoutError):
        return []
    items: list[JsonObject] = found["items"]
    return items


def split_by_template(
    ends: list[JsonObject], template_hash: str
) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return the ends with this template, and those with another one.

    An end without a hash counts as one with this template: an earlier release reported it.
    """
    current = [end for end in ends if end.get("templateHash", "") in ("", template_hash)]
    return current, [end for end in ends if end not in current]


def is_crash_loop(ends: list[JsonObject], template_hash: str) -> bool:
    """Return True if an instance with this template crashed again after two restarts.

    A program may need a restart, such as one that starts before its database. Restarts before a
    long run do not count: after it, the driver restarts the instance without delay again.
    """
    current, _ = split_by_template([end for end in ends if not end["planned"]], template_hash)
    if not current:
        return False
    last = current[-1]
    ended_s, restarts = unix_time(last["endedAt"]), int(last["restarts"])
    ran_s = ended_s - (unix_time(last["startedAt"]) or ended_s)
    return restarts >= _RESTARTS_IN_VAIN and ran_s < _RECOVERED_AFTER_S


def print_crash_reports(session: Session, ends: list[JsonObject]) -> None:
    """Print the last report in full, and the earlier ones in one line each."""
    if not ends:
        return
    *earlier, last = ends
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


def print_earlier_versions(session: Session, ends: list[JsonObject]) -> None:
    """Print in a line each how the instance ended with other templates."""
    if ends:
        session.output.data("")
    _print_summary(session, "Ended before, with another version:", ends)


def _print_summary(session: Session, title: str, ends: list[JsonObject]) -> None:
    data, now = session.output.data, session.environment.now()
    if ends:
        data(title)
    for end in reversed(ends):
        data(f"  {age_since(end['endedAt'], now)} ago: {one_line(end['message'])}")


def print_deleted_instance(
    session: Session, name: str, output_format: str, ends: list[JsonObject]
) -> None:
    """Print the reports of an instance that was deleted."""

    def lines() -> None:
        session.output.data(f"Instance {name} ({session.target_name}) is gone.")
        print_crash_reports(session, ends)

    message = ends[-1]["message"]
    document = DeletedInstance(name=name, status="Gone", message=message, crashes=ends)
    print_document(session.output, output_format, lambda: document, lines, f"instance/{name}")


def _exit_fields(end: JsonObject) -> list[tuple[str, str]]:
    code = "" if end["exitCode"] is None else str(end["exitCode"])
    out_of_memory = " (out of memory)" if end["outOfMemory"] else ""
    ran = f"{end['startedAt']} to {end['endedAt']}" if end["startedAt"] else ""
    fields = [
        ("Container", end["container"]),
        ("Exit code", f"{code}{out_of_memory}"),
        ("Ran", ran),
        ("Restarts", str(end["restarts"])),
        *(("Probe", f"{title}: {words}") for title, words in end["probes"].items()),
    ]
    return [(title, text) for title, text in fields if text]


def _timeline(end: JsonObject) -> list[str]:
    return [f"{event['at']}  {event['text']}" for event in end["moments"]]
