"""``logs``: what a workload prints. Served by the gateway of the platform, where its driver can."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import click

from datum_compute.api.compute.instance import Instance
from datum_compute.api.errors import Forbidden, NotFound, ServiceUnavailable
from datum_compute.api.gateway import GatewayReason, has_gateway_reason, instance_path
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.labels import WORKLOAD_UID
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import normalize_city
from datum_compute.cli.arguments import container_option, workload_argument
from datum_compute.cli.commands.instances import check_container
from datum_compute.cli.connect.gateway_errors import refuse_without_process
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import BusyError, MissingError
from datum_compute.cli.options import connection_options, parse_duration
from datum_compute.cli.workload.observe import find_workload
from datum_compute.cli.workload.rollout import place_of

# --- What instances say, page by page from the gateway, put together in the order of time
# A reader's place in each instance is the cursor of its last page; it is opaque here, and holds
# across restarts and recreates of the instance.


_LINES_MAX = 5000


@dataclass(frozen=True, slots=True)
class Choice:
    """Which lines of which instances."""

    container: str = ""
    tail: int = 200
    since_s: int = 0
    previous: bool = False
    instance: str = ""
    cities: tuple[str, ...] = ()
    search: str = ""


@dataclass(slots=True)
class LogReader:
    """Goes on where it was, whenever it is asked."""

    session: Session
    workload: str
    uid: str
    choice: Choice
    cursors: dict[str, JsonObject] = field(default_factory=dict)
    is_first: bool = True
    missed: dict[str, None] = field(default_factory=dict)
    names: list[str] = field(default_factory=list)

    async def new_lines(self) -> list[str]:
        names = self.names = await self._instances()
        found: list[tuple[str, str, str]] = []
        for name in names:
            page = await (
                self._page(name) if len(names) == 1 else self._page_if_it_can_be_had(name)
            )
            found += [(line["time"], name, line["text"]) for line in page.get("lines", [])]
        found.sort(key=lambda line: line[0])
        if self.is_first:
            found = found[max(0, len(found) - self.choice.tail) :]
        self.is_first = False
        return list(self._shown(found, names))

    def refuse_if_nothing_was_read(self) -> None:
        """Nothing is also what instances print that say nothing: whoever reads must know."""
        if self.names and all(name in self.missed for name in self.names):
            raise BusyError(
                f"The log of none of the {len(self.names)} instances of {self.workload!r} can be "
                "read now.",
                f"See why: {self.session.command('explain', self.workload)}",
            )
        if self.choice.instance and self.choice.instance not in self.cursors:
            raise MissingError(
                f"There is no log of instance {self.choice.instance!r}: "
                "no cell has run it within the last day.",
                f"See which there are: {self.session.command('instances', 'list')}",
            )

    def _shown(self, found: Sequence[tuple[str, str, str]], names: Sequence[str]) -> Iterator[str]:
        for _, name, text in found:
            if self.choice.search in text:
                yield text if len(names) == 1 else f"{name} | {text}"

    async def _instances(self) -> list[str]:
        if self.choice.instance:
            return [self.choice.instance]
        listed = await self.session.client.list(
            INSTANCE, self.session.namespace, labels={WORKLOAD_UID: self.uid}
        )
        here = {i.metadata.name for i in listed.items if self._is_chosen(i)}
        return sorted(here | set(self.cursors))  # one that has gone may have said something still

    def _is_chosen(self, instance: Instance) -> bool:
        return not self.choice.cities or place_of(instance).city in self.choice.cities

    async def _page_if_it_can_be_had(self, name: str) -> JsonObject:
        """A cell that is silent does not take the lines of the others away; it is named once."""
        try:
            page = await self._page(name)
        except ServiceUnavailable as error:
            if name not in self.missed:
                self.session.print_note(f"Warning: {error.message}")
            self.missed[name] = None
            return {}
        self.missed.pop(name, None)
        return page

    async def _page(self, name: str) -> JsonObject:
        path = instance_path(self.session.namespace, name, "log")
        try:
            page = await self.session.gateway.ask(path, self._query(name))
        except (NotFound, Forbidden) as error:
            if has_gateway_reason(error, GatewayReason.INSTANCE_NOT_RUNNING):
                return {}
            refuse_without_process(self.session, error, "logs", self.workload)
        self.cursors[name] = page["cursor"]
        return page

    def _query(self, name: str) -> dict[str, str]:
        choice = self.choice
        query: dict[str, Any] = {"container": choice.container}
        if name in self.cursors:
            query["cursor"] = json.dumps(self.cursors[name])
        else:
            query["tail"] = choice.tail if self.is_first else _LINES_MAX
        if choice.since_s:
            query["sinceSeconds"] = choice.since_s
        if choice.previous:
            query["previous"] = "true"
        return {key: str(value) for key, value in query.items() if value != ""}


# --- logs


_LOOK_EVERY_S = 1.0


@click.command(short_help="Show the logs of a workload.")
@workload_argument
@container_option
@click.option("-f", "--follow", is_flag=True, help="Go on with what comes.")
@click.option("--tail", type=click.IntRange(0, 5000), default=200, show_default=True, help="Lines.")
@click.option("--since", default="", metavar="DURATION", help="Only the last 90s, 10m or 1h.")
@click.option("--previous", is_flag=True, help="Only from before the last start.")
@click.option("--instance", default="", metavar="NAME", help="Only of this, also if it is gone.")
@click.option("--city", "cities", multiple=True, metavar="CODE", help="Only of this city.")
@click.option("--search", default="", metavar="TEXT", help="Only lines with this text.")
@connection_options
@click.pass_context
def logs(
    ctx: click.Context,
    name: str,
    container: str | None,
    follow: bool,
    tail: int,
    since: str,
    previous: bool,
    instance: str,
    cities: tuple[str, ...],
    search: str,
) -> None:
    """Show what the instances of the workload NAME print, in the order of time.

    Instances that are gone are remembered for a day: name them with --instance. The simulated
    driver runs no process that could print. An instance that cannot be asked is a warning while
    another one can; if none can, the command fails.

    \b
    Example:
      datumctl compute logs web --tail=50
    """
    choice = Choice(
        container=container or "",
        tail=tail,
        since_s=parse_duration(since) if since else 0,
        previous=previous,
        instance=instance,
        cities=tuple(normalize_city(city) for city in cities),
        search=search,
    )

    async def body(session: Session) -> None:
        workload = await find_workload(session, name)
        check_container(workload.spec.template.spec, container)
        reader = LogReader(session, name, workload.metadata.uid, choice)
        while True:
            for line in await reader.new_lines():
                session.output.data(line)
            if not follow:
                reader.refuse_if_nothing_was_read()
                return
            session.environment.stdout.flush()
            await asyncio.sleep(_LOOK_EVERY_S)

    run_in_session(ctx, body)


COMMAND = logs
