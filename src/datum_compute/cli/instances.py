"""``instances``: every instance of the project, one line each."""

from __future__ import annotations

import click

from datum_compute.api.codec import JsonObject
from datum_compute.api.identity import normalized_city
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.labels import WORKLOAD_NAME, WORKLOAD_UID
from datum_compute.cli.listing import Column, Listing, list_options, print_listing
from datum_compute.cli.observe import find_workload
from datum_compute.cli.options import connection_options
from datum_compute.cli.output import render_count
from datum_compute.cli.rollout import place_of
from datum_compute.cli.session import Session, run_in_session
from datum_compute.cli.times import age_of
from datum_compute.cli.words import instance_health, short_text, tally


@click.command(short_help="List the instances of the project.")
@click.option("--workload", metavar="NAME", help="Only those of this workload.")
@click.option("--city", metavar="CODE", help="Only those in this city.")
@list_options
@connection_options
@click.pass_context
def instances(
    ctx: click.Context, workload: str | None, city: str | None, output_format: str, no_headers: bool
) -> None:
    """List the instances of the project: where they are, their address, how they are.

    \b
    Examples:
      datumctl compute instances
      datumctl compute instances --workload=web --city=DFW -o wide
      datumctl compute instances -o jsonpath=.items[0].address
    """

    async def body(session: Session) -> None:
        rows = [i for i in await _read(session, workload) if _is_in(i, city)]
        if not rows:
            session.output.note(f"There are no such instances in {session.place}.")
        words = [instance_health(row).word for row in rows]
        print_listing(
            session.output,
            listing_at(session.surroundings.now()),
            sorted(rows, key=lambda i: (workload_of(i), place_of(i), i.metadata.name)),
            output_format,
            headers=not no_headers,
            footer=f"{render_count(len(rows), 'instance')}: {tally(words)}" if rows else "",
        )

    run_in_session(ctx, body)


async def _read(session: Session, workload: str | None) -> list[Instance]:
    """Of one workload: that very one, because its name may have been used before."""
    labels = None
    if workload is not None:
        found = await find_workload(session, workload)
        labels = {WORKLOAD_UID: found.metadata.uid}
    return (await session.client.list(INSTANCE, session.namespace, labels=labels)).items


def _is_in(instance: Instance, city: str | None) -> bool:
    return city is None or place_of(instance).city == normalized_city(city)


def listing_at(now: float) -> Listing[Instance]:
    return Listing(
        noun="instance",
        columns=(
            Column("NAME", lambda i: i.metadata.name),
            Column("WORKLOAD", workload_of),
            Column("CITY", lambda i: place_of(i).city or "-"),
            Column("ADDRESS", lambda i: address_of(i) or "-"),
            Column("AGE", lambda i: age_of(i, now)),
            Column("STATUS", lambda i: short_text(instance_health(i))),
            Column("PLACEMENT", lambda i: place_of(i).placement or "-", wide=True),
            Column("INSTANCE TYPE", lambda i: i.spec.runtime.resources.instance_type, wide=True),
            Column("MESSAGE", lambda i: instance_health(i).message or "-", wide=True),
        ),
        document=instance_document,
        name=lambda i: i.metadata.name,
    )


def instance_document(instance: Instance) -> JsonObject:
    health = instance_health(instance)
    return {
        "name": instance.metadata.name,
        "uid": instance.metadata.uid,
        "createdAt": instance.metadata.creation_timestamp,
        "workload": workload_of(instance),
        "city": place_of(instance).city,
        "placement": place_of(instance).placement,
        "address": address_of(instance),
        "status": health.word,
        "reason": health.reason,
        "message": health.message,
        "instanceType": instance.spec.runtime.resources.instance_type,
        "images": [container.image for container in instance.spec.runtime.sandbox.containers],
    }


def workload_of(instance: Instance) -> str:
    return instance.metadata.labels.get(WORKLOAD_NAME) or "unknown"


def address_of(instance: Instance) -> str:
    """The address the world can use, else the one inside the network."""
    for interface in instance.status.network_interfaces:
        assigned = interface.assignments
        if assigned.external_ip or assigned.network_ip:
            return assigned.external_ip or assigned.network_ip
    return ""


COMMAND = instances
