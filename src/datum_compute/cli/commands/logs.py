"""``logs``: the output of the instances of a workload, read from the gateway."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from operator import attrgetter, itemgetter
from typing import Any

import click

from datum_compute.api.compute.instance import Instance
from datum_compute.api.errors import Forbidden, NotFound, ServiceUnavailable
from datum_compute.api.gateway import GatewayReason, has_gateway_reason, instance_path, logs_path
from datum_compute.api.kinds import INSTANCE, WORKLOAD
from datum_compute.api.labels import WORKLOAD_UID
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.api.meta.timestamps import parse_timestamp, unix_time
from datum_compute.api.planes import normalize_city
from datum_compute.cli.arguments import container_option, unknown_city, workload_argument
from datum_compute.cli.commands.instances import check_container
from datum_compute.cli.commands.workloads import cities_of
from datum_compute.cli.connect.gateway_errors import refuse_without_process
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import BusyError, MissingError, StoppedError
from datum_compute.cli.options import connection_options, output_option, parse_duration
from datum_compute.cli.render.documents import LogEntry, to_document
from datum_compute.cli.workload.observe import missing_workload
from datum_compute.cli.workload.rollout import place_of

# --- Pages of log lines, merged by time
# The cursor of the last page is the position in the log of an instance. It is opaque, and remains
# valid when the instance is restarted or recreated.


_LINES_MAX = 5000


@dataclass(frozen=True, slots=True)
class LogFilter:
    """Selects instances and lines."""

    container: str = ""
    tail: int = 200
    since_s: int = 0
    since_time_s: float = 0.0
    previous: bool = False
    instance: str = ""
    cities: tuple[str, ...] = ()
    search: str = ""


@dataclass(slots=True)
class WorkloadLogReader:
    """Reads the lines that are new since the previous call."""

    session: Session
    workload: str
    uid: str
    selected: LogFilter
    cursors: dict[str, JsonObject] = field(default_factory=dict)
    is_first: bool = True
    unreadable: dict[str, None] = field(default_factory=dict)
    deleted: tuple[str, ...] = ()  # the instances of a deleted workload
    names: list[str] = field(default_factory=list)

    async def new_lines(self) -> list[LogEntry]:
        names = self.names = await self._instances()
        found: list[LogEntry] = []
        for name in names:
            page = await (
                self._read_page(name) if len(names) == 1 else self._read_page_or_warn(name)
            )
            found += [_entry(name, line) for line in page.get("lines", [])]
        found.sort(key=attrgetter("time"))
        if self.is_first:
            found = found[max(0, len(found) - self.selected.tail) :]
        self.is_first = False
        return [line for line in found if self._is_selected(line)]

    def refuse_if_nothing_was_read(self) -> None:
        """Raise if no log could be read: the result would look like an empty log."""
        if self.names and all(name in self.unreadable for name in self.names):
            raise BusyError(
                f"Cannot read the log of any of the {len(self.names)} instances of "
                f"{self.workload!r}.",
                f"Explain: {self.session.command('explain', self.workload)}",
            )
        if self.selected.instance and self.selected.instance not in self.cursors:
            raise MissingError(
                f"There is no log of instance {self.selected.instance!r}: "
                "no cell ran it within the last day.",
                f"List the instances: {self.session.command('instances', 'list')}",
            )

    def _is_selected(self, line: LogEntry) -> bool:
        earliest_s = self.selected.since_time_s
        return self.selected.search in line.text and (
            not earliest_s or unix_time(line.time) >= earliest_s
        )

    async def _instances(self) -> list[str]:
        if self.selected.instance:
            return [self.selected.instance]
        if self.deleted:
            return list(self.deleted)
        listed = await self.session.client.list(
            INSTANCE, self.session.namespace, labels={WORKLOAD_UID: self.uid}
        )
        selected_names = {i.metadata.name for i in listed.items if self._is_chosen(i)}
        return sorted(
            selected_names | set(self.cursors)
        )  # a deleted instance may have unread lines

    def _is_chosen(self, instance: Instance) -> bool:
        return not self.selected.cities or place_of(instance).city in self.selected.cities

    async def _read_page_or_warn(self, name: str) -> JsonObject:
        """Read a page. Warn once if the cell is unreachable, so that others can be read."""
        try:
            page = await self._read_page(name)
        except ServiceUnavailable as error:
            if name not in self.unreadable:
                self.session.print_note(f"Warning: {error.message}")
            self.unreadable[name] = None
            return {}
        self.unreadable.pop(name, None)
        return page

    async def _read_page(self, name: str) -> JsonObject:
        path = instance_path(self.session.namespace, name, "log")
        try:
            page = await self.session.gateway.get_raw(path, self._query(name))
        except (NotFound, Forbidden) as error:
            if has_gateway_reason(error, GatewayReason.INSTANCE_NOT_RUNNING):
                return {}
            refuse_without_process(self.session, error, "logs", self.workload)
        self.cursors[name] = page["cursor"]
        return page

    def _query(self, name: str) -> dict[str, str]:
        selected = self.selected
        query: dict[str, Any] = {"container": selected.container, "workloadUID": self.uid}
        if name in self.cursors:
            query["cursor"] = json.dumps(self.cursors[name])
        else:
            query["tail"] = selected.tail if self.is_first else _LINES_MAX
        since_s = selected.since_s
        if selected.since_time_s:
            since_s = math.ceil(max(1.0, self.session.environment.now() - selected.since_time_s))
        if since_s:
            query["sinceSeconds"] = since_s
        if selected.previous:
            query["previous"] = "true"
        return {key: str(value) for key, value in query.items() if value != ""}


def _entry(instance: str, line: JsonObject) -> LogEntry:
    return LogEntry(
        time=line["time"],
        instance=instance,
        container=line.get("container", ""),
        stream=line.get("stream", ""),
        text=line["text"],
    )


# --- Logs of a deleted workload


async def read_deleted(session: Session, name: str, selected: LogFilter) -> WorkloadLogReader:
    """Return a reader of the last deleted workload of this name.

    Raise the error for an unknown workload if no log of a deleted one is kept.
    """
    missing = await missing_workload(session, name)
    try:
        found = await session.gateway.get_raw(logs_path(session.namespace), {"workload": name})
    except (NotFound, Forbidden):  # no gateway, simulated machines or an earlier release
        raise missing from None
    for problem in found.get("problems", []):
        session.print_note(f"Warning: {problem}")
    items: list[JsonObject] = found["items"]
    if not items:
        raise missing
    last = max(items, key=itemgetter("writtenAt"))
    own = [item for item in items if item["workloadUid"] == last["workloadUid"]]
    present = sorted({item["city"] for item in own})
    for city in selected.cities:
        if city not in present:
            raise unknown_city(name, city, present)
    names = {i["instance"] for i in own if not selected.cities or i["city"] in selected.cities}
    if selected.instance:
        names &= {selected.instance}
    if not names:
        raise MissingError(
            f"There is no log of instance {selected.instance!r} of the deleted workload {name!r}.",
            f"Show the logs of all its instances: {session.command('logs', name)}",
        )
    session.print_note(f"Workload {name!r} is deleted. Its logs are kept for a day.")
    uid = str(last["workloadUid"])
    return WorkloadLogReader(session, name, uid, selected, deleted=tuple(sorted(names)))


# --- logs


_POLL_INTERVAL_S = 1.0


@click.command(short_help="Show the logs of a workload.")
@workload_argument
@container_option
@click.option("-f", "--follow", is_flag=True, help="Print new lines until Ctrl-C.")
@click.option(
    "--tail",
    type=click.IntRange(0, 5000),
    default=200,
    show_default=True,
    help="Number of last lines.",
)
@click.option(
    "--since", default="", metavar="DURATION", help="Only lines of the last 90s, 10m or 1h."
)
@click.option(
    "--since-time",
    default="",
    metavar="TIME",
    help="Only lines since this time, such as 2026-01-31T12:00:00Z.",
)
@click.option("--timestamps", is_flag=True, help="Print the time before each line.")
@click.option("--previous", is_flag=True, help="Only lines from before the last start.")
@click.option(
    "--instance", default="", metavar="NAME", help="Only this instance, also after its deletion."
)
@click.option(
    "--city",
    "cities",
    multiple=True,
    metavar="CODE",
    help="Only instances in this city. Repeatable.",
)
@click.option("--search", default="", metavar="TEXT", help="Only lines that contain this text.")
@output_option("text", "json")
@connection_options
@click.pass_context
def logs(
    ctx: click.Context,
    name: str,
    container: str | None,
    follow: bool,
    tail: int,
    since: str,
    since_time: str,
    timestamps: bool,
    previous: bool,
    instance: str,
    cities: tuple[str, ...],
    search: str,
    output_format: str,
) -> None:
    """Show the logs of the instances of the workload NAME, ordered by time.

    The logs of a deleted instance are kept for a day: select it with --instance. If the workload
    is deleted, the logs of all its instances are shown. Simulated instances have no logs. A log
    that cannot be read causes a warning; the command fails if none can be read. With -o json each
    line is a JSON object.

    \b
    Examples:
      datumctl compute logs web --tail=50
      datumctl compute logs web -f --timestamps --city=DFW
    """
    if since and since_time:
        raise click.UsageError("--since and --since-time cannot be used together.")
    selected = LogFilter(
        container=container or "",
        tail=tail,
        since_s=parse_duration(since) if since else 0,
        since_time_s=_parse_time(since_time) if since_time else 0.0,
        previous=previous,
        instance=instance,
        cities=tuple(normalize_city(city) for city in cities),
        search=search,
    )

    async def body(session: Session) -> None:
        try:
            workload = await session.client.get(WORKLOAD, Ref(session.namespace, name))
        except NotFound:
            reader = await read_deleted(session, name, selected)
        else:
            check_container(workload.spec.template.spec, container)
            present = cities_of(workload)
            for city in selected.cities:
                if city not in present:
                    raise unknown_city(name, city, present)
            reader = WorkloadLogReader(session, name, workload.metadata.uid, selected)
        while True:
            for line in await reader.new_lines():
                if output_format == "json":
                    session.output.json_line(to_document(line))
                else:
                    session.output.data(_render_line(line, reader.names, timestamps=timestamps))
            if not follow or reader.deleted:  # a deleted workload writes no more lines
                reader.refuse_if_nothing_was_read()
                return
            session.environment.stdout.flush()
            await asyncio.sleep(_POLL_INTERVAL_S)

    try:
        run_in_session(ctx, body, as_json=output_format == "json")
    except KeyboardInterrupt:
        if not follow:
            raise
        ctx.exit(StoppedError.exit_code)  # the usual way to end it, so nothing is printed


def _parse_time(text: str) -> float:
    try:
        return parse_timestamp(text)
    except ValueError:
        raise click.BadParameter(
            f"{text!r} is not a time, such as 2026-01-31T12:00:00Z.", param_hint="--since-time"
        ) from None


def _render_line(line: LogEntry, instances: Sequence[str], *, timestamps: bool) -> str:
    text = f"{line.time} {line.text}" if timestamps else line.text
    return text if len(instances) == 1 else f"{line.instance} | {text}"


COMMAND = logs
