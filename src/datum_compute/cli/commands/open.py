"""``open``: the addresses of a workload; on a terminal in a browser."""

from __future__ import annotations

import click

from datum_compute.api.compute.instance import READY, ContainerPort, Instance
from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import is_true
from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.commands.instances import address_of
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import MissingError
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.documents import AddressDocument
from datum_compute.cli.render.listing import print_document, read_options
from datum_compute.cli.workload.cell_reports import read_drivers
from datum_compute.cli.workload.observe import find_workload, observe_parts

_WEB_NAMES = ("http", "https", "web")


@click.command("open", short_help="Open a workload in the browser, or print its address.")
@workload_argument
@click.option("--print", "only_print", is_flag=True, help="Print the address and open no browser.")
@read_options
@connection_options
@click.pass_context
def open_workload(ctx: click.Context, name: str, only_print: bool, output_format: str) -> None:
    """Open the workload NAME in a browser: its published address, else that of its first ready
    instance. Without a browser or a terminal, the address is printed.

    \b
    Examples:
      datumctl compute open web
      datumctl compute open web --print
    """

    async def body(session: Session) -> None:
        workload = await find_workload(session, name)
        observed = await observe_parts(session, workload)
        published = [
            endpoint.url
            for deployment in observed.deployments.items
            for endpoint in deployment.status.endpoints
        ]
        urls = published or urls_of(workload, observed.instances.items)
        if not urls:
            raise _missing_address_error(session, workload)
        shown = AddressDocument(workload=name, url=urls[0], urls=urls)
        listens = published or not await _is_simulated(session)
        if not listens:
            session.output.note("The instances are simulated: no process listens at this address.")
        wants = not only_print and output_format == "table"
        may_open = session.environment.may_ask and wants and listens
        if may_open and session.environment.open_browser(urls[0]):
            session.output.note(f"Opening {urls[0]}")
            return
        print_document(
            session.output,
            output_format,
            lambda: shown,
            lambda: session.output.data(urls[0]),
            urls[0],
        )

    run_in_session(ctx, body)


async def _is_simulated(session: Session) -> bool:
    """Return True if all cells have the simulated driver; False if that is unknown."""
    drivers = await read_drivers(session.gateway, session.namespace)
    return bool(drivers) and all(driver.driver == "simulated" for driver in drivers)


def _missing_address_error(session: Session, workload: Workload) -> MissingError:
    name = workload.metadata.name
    if not _ports(workload):
        hint = f"Add the port that it listens on: {session.command('deploy', name, '--port=80')}"
        return MissingError(f"Workload {name!r} has no port.", hint)
    hint = f"Show its status: {session.command('status', name)}"
    return MissingError(f"Workload {name!r} has no ready instance.", hint)


def _ports(workload: Workload) -> list[ContainerPort]:
    """Return the TCP ports; a port that is named for HTTP comes first."""
    ports = [
        port
        for container in workload.spec.template.spec.runtime.sandbox.containers
        for port in container.ports
        if port.protocol == "TCP"
    ]
    return sorted(ports, key=lambda port: port.name not in _WEB_NAMES)


def urls_of(workload: Workload, instances: list[Instance]) -> list[str]:
    ports = _ports(workload)
    if not ports:
        return []
    ready = sorted(
        (i for i in instances if is_true(i.status.conditions, READY) and address_of(i)),
        key=lambda instance: instance.metadata.name,
    )
    scheme = "https" if ports[0].port == 443 else "http"
    return [f"{scheme}://{_host(address_of(i))}:{ports[0].port}/" for i in ready]


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address


COMMAND = open_workload
