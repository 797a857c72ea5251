"""``logs``: what a workload prints. Served by the gateway of the platform, where its driver can."""

from __future__ import annotations

import asyncio

import click

from datum_compute.api.planes import normalized_city
from datum_compute.cli.containers import check_container
from datum_compute.cli.logpages import Choice, LogReader
from datum_compute.cli.naming import container_option, workload_argument
from datum_compute.cli.observe import find_workload
from datum_compute.cli.options import connection_options, parse_duration
from datum_compute.cli.session import Session, run_in_session

_LOOK_EVERY_S = 1.0


@click.command(short_help="Show what a workload prints.")
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
        cities=tuple(normalized_city(city) for city in cities),
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
            session.surroundings.stdout.flush()
            await asyncio.sleep(_LOOK_EVERY_S)

    run_in_session(ctx, body)


COMMAND = logs
