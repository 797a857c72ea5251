"""``instances top``: the current CPU and memory usage of instances, read from the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import click

from datum_compute.api.compute.instance import Instance
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.gateway import GatewayReason, has_gateway_reason, instance_path
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta.codec import JsonObject
from datum_compute.cli.connect.gateway_errors import refuse_without_process
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options, output_option
from datum_compute.cli.render.documents import InstanceUsage, to_document
from datum_compute.cli.render.output import render_table
from datum_compute.cli.workload.rollout import place_of
from datum_compute.client.transport.interface import CONCURRENT_REQUESTS_MAX


@click.command("top", short_help="Show the CPU and memory usage of instances.")
@output_option("table", "json")
@connection_options
@click.pass_context
def top(ctx: click.Context, output_format: str) -> None:
    """Show the CPU and memory usage of each instance, highest CPU usage first.

    \b
    Example:
      datumctl compute instances top
    """

    async def body(session: Session) -> None:
        listed = await session.client.list(INSTANCE, session.namespace)
        rows = await _read_rows(session, listed.items)
        found = sorted(rows, key=lambda row: (-(row.cpu_millicores or 0), row.name))
        if output_format == "json":
            session.output.json({"items": [to_document(row) for row in found]})
        else:
            session.output.data(_table(found))

    run_in_session(ctx, body)


async def _read_rows(session: Session, instances: Sequence[Instance]) -> list[InstanceUsage]:
    """Read the usage of the instances, of a few at the same time: each request has a connection."""
    slots = asyncio.Semaphore(CONCURRENT_REQUESTS_MAX)

    async def read(instance: Instance) -> InstanceUsage:
        async with slots:
            return await _row(session, instance)

    return await asyncio.gather(*map(read, instances))


async def _row(session: Session, instance: Instance) -> InstanceUsage:
    name = instance.metadata.name
    path = instance_path(session.namespace, name, "usage")
    usage: JsonObject = {}
    try:
        usage = await session.gateway.get_raw(path)
    except (NotFound, Forbidden) as error:
        if not has_gateway_reason(error, GatewayReason.INSTANCE_NOT_RUNNING):
            refuse_without_process(session, error, "metrics", name)
    return InstanceUsage(
        name=name,
        city=place_of(instance).city,
        cpu_millicores=usage.get("cpuMillicores"),
        memory_mebibytes=usage.get("memoryMebibytes"),
        memory_limit_mebibytes=usage.get("memoryLimitMebibytes"),
        asleep=usage.get("asleep", False),
    )


def _table(rows: list[InstanceUsage]) -> str:
    def render_amount(amount: int | None, unit: str) -> str:
        return "-" if amount is None else f"{amount}{unit}"

    return render_table(
        ("NAME", "CITY", "CPU", "MEMORY", "LIMIT"),
        [
            (
                row.name,
                row.city or "-",
                "asleep" if row.asleep else render_amount(row.cpu_millicores, "m"),
                render_amount(row.memory_mebibytes, "Mi"),
                render_amount(row.memory_limit_mebibytes, "Mi"),
            )
            for row in rows
        ],
    )
