"""``instance-types``: list the sizes of instances."""

from __future__ import annotations

import click

from datum_compute.api.compute.instance_type import InstanceType
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta.quantity import mebibytes, millicores
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.options import connection_options
from datum_compute.cli.render.documents import InstanceTypeEntry
from datum_compute.cli.render.listing import ListColumn, Listing, list_options, print_listing


@click.command("instance-types", short_help="List the instance types.")
@list_options
@connection_options
@click.pass_context
def instance_types(ctx: click.Context, output_format: str, no_headers: bool) -> None:
    """List the instance types, the smallest first.

    \b
    Examples:
      datumctl compute instance-types
      datumctl compute instance-types -o csv
    """

    async def body(session: Session) -> None:
        rows = sorted((await session.client.list(INSTANCE_TYPE)).items, key=_size)
        print_listing(session.output, LISTING, rows, output_format, headers=not no_headers)

    run_in_session(ctx, body)


def _size(found: InstanceType) -> tuple[int, int, str]:
    resources = found.spec.resources
    return millicores(resources.cpu), mebibytes(resources.memory), found.metadata.name


def _document(found: InstanceType) -> InstanceTypeEntry:
    return InstanceTypeEntry(
        name=found.metadata.name,
        cpu=found.spec.resources.cpu,
        memory=found.spec.resources.memory,
        phase=found.spec.lifecycle.phase,
        replacement=found.spec.lifecycle.replacement_instance_type,
        display_name=found.spec.display_name,
    )


LISTING: Listing[InstanceType] = Listing(
    noun="instancetype",
    columns=(
        ListColumn("NAME", lambda instance_type: instance_type.metadata.name),
        ListColumn("CPU", lambda instance_type: instance_type.spec.resources.cpu),
        ListColumn("MEMORY", lambda instance_type: instance_type.spec.resources.memory),
        ListColumn("PHASE", lambda instance_type: instance_type.spec.lifecycle.phase),
        ListColumn(
            "REPLACEMENT",
            lambda instance_type: instance_type.spec.lifecycle.replacement_instance_type or "-",
        ),
        ListColumn(
            "DISPLAY NAME", lambda instance_type: instance_type.spec.display_name or "-", wide=True
        ),
    ),
    document=_document,
    name=lambda instance_type: instance_type.metadata.name,
)

COMMAND = instance_types
