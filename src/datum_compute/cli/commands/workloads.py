"""``workloads list|describe``: the workloads of the project; ``workloads`` is the list."""

from __future__ import annotations

import click

from datum_compute.api.compute.workload import Workload
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.planes import normalize_city
from datum_compute.cli.arguments import workload_argument
from datum_compute.cli.commands.instances import container_documents, print_containers
from datum_compute.cli.commands.status import (
    CauseTexts,
    WorkloadReport,
    place_table,
    print_head,
    read_report,
)
from datum_compute.cli.completion import city_names
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.groups import NounGroup
from datum_compute.cli.options import all_namespaces_option, connection_options
from datum_compute.cli.render.documents import WorkloadDescription, WorkloadEntry, extend_document
from datum_compute.cli.render.health import aged_text, count_by_status, workload_health
from datum_compute.cli.render.listing import (
    ListColumn,
    Listing,
    age_of,
    list_options,
    print_document,
    print_listing,
    read_options,
    with_namespace,
)
from datum_compute.cli.render.output import render_count
from datum_compute.cli.workload.access import print_missing_access
from datum_compute.cli.workload.rollout import place_document

HEALTHS = ("Available", "Degraded", "Unavailable", "Unknown", "Terminating")
_CITIES_SHOWN = 3


@click.group(cls=NounGroup, default="list", short_help="List or describe workloads.")
def workloads() -> None:
    """List the workloads of the project, or describe one.

    \b
    Examples:
      datumctl compute workloads
      datumctl compute workloads --health=degraded -o wide
      datumctl compute workloads describe web
    """


@workloads.command("list")
@click.option(
    "--city", metavar="CODE", help="Show only workloads in this city.", shell_complete=city_names
)
@click.option(
    "--health",
    type=click.Choice(HEALTHS, case_sensitive=False),
    help="Show only workloads with this health.",
)
@all_namespaces_option
@list_options
@connection_options
@click.pass_context
def list_workloads(
    ctx: click.Context,
    city: str | None,
    health: str | None,
    all_namespaces: bool,
    output_format: str,
    no_headers: bool,
) -> None:
    """List the workloads of the project with cities, health and image.

    \b
    Examples:
      datumctl compute workloads
      datumctl compute workloads --health=degraded -o wide
      datumctl compute workloads --city=LHR -o name
      datumctl compute workloads -A
    """

    async def body(session: Session) -> None:
        listed = await session.client.list(WORKLOAD, "" if all_namespaces else session.namespace)
        rows = [w for w in listed.items if _matches(w, city, health)]
        if not await print_missing_access(session) and not rows:
            _print_empty(session, filtered=bool(listed.items))
        words = [workload_health(row).word for row in rows]
        listing = listing_at(session.environment.now())
        if all_namespaces:
            listing = with_namespace(listing, lambda workload: workload.metadata.namespace)
        print_listing(
            session.output,
            listing,
            sorted(rows, key=lambda row: (row.metadata.name, row.metadata.namespace)),
            output_format,
            headers=not no_headers,
            footer=f"{render_count(len(rows), 'workload')}: {count_by_status(words)}"
            if rows
            else "",
        )

    run_in_session(ctx, body)


def _matches(workload: Workload, city: str | None, health: str | None) -> bool:
    in_city = city is None or normalize_city(city) in cities_of(workload)
    return in_city and health in (None, workload_health(workload).word)


def _print_empty(session: Session, *, filtered: bool) -> None:
    if filtered:
        session.output.note(f"No workloads match in {session.target_name}.")
        return
    deploy = session.command("deploy", "web", "--image=IMAGE", "--city=DFW")
    session.output.note(f"No workloads in {session.target_name}. Create one: {deploy}")


def cities_of(workload: Workload) -> list[str]:
    placements = workload.spec.placements
    return list(dict.fromkeys(city for p in placements for city in p.city_codes))


def listing_at(now: float) -> Listing[Workload]:
    return Listing(
        noun="workload",
        columns=(
            ListColumn("NAME", lambda workload: workload.metadata.name),
            ListColumn("CITIES", lambda workload: _short_cities(cities_of(workload))),
            ListColumn("HEALTH", lambda workload: aged_text(workload_health(workload), now)),
            ListColumn(
                "READY",
                lambda workload: (
                    f"{workload.status.ready_replicas}/{workload.status.desired_replicas}"
                ),
            ),
            ListColumn(
                "UP-TO-DATE",
                lambda workload: (
                    f"{workload.status.updated_replicas}/{workload.status.desired_replicas}"
                ),
            ),
            ListColumn(
                "IMAGE",
                lambda workload: ", ".join(_short_image(image) for image in images_of(workload)),
            ),
            ListColumn("AGE", lambda workload: age_of(workload, now)),
            ListColumn("INSTANCE TYPE", _instance_type, wide=True),
            ListColumn(
                "MESSAGE", lambda workload: workload_health(workload).message or "-", wide=True
            ),
        ),
        document=workload_document,
        name=lambda workload: workload.metadata.name,
    )


def workload_document(workload: Workload) -> WorkloadEntry:
    health, status = workload_health(workload), workload.status
    return WorkloadEntry(
        name=workload.metadata.name,
        namespace=workload.metadata.namespace,
        uid=workload.metadata.uid,
        created_at=workload.metadata.creation_timestamp,
        generation=workload.metadata.generation,
        observed_generation=status.observed_generation,
        health=health.word,
        reason=health.reason,
        message=health.message,
        ready=status.ready_replicas,
        updated=status.updated_replicas,
        replicas=status.replicas,
        desired=status.desired_replicas,
        cities=cities_of(workload),
        images=images_of(workload),
        instance_type=_instance_type(workload),
    )


def images_of(workload: Workload) -> list[str]:
    return [c.image for c in workload.spec.template.spec.runtime.sandbox.containers]


def _instance_type(workload: Workload) -> str:
    return workload.spec.template.spec.runtime.resources.instance_type


def _short_image(image: str) -> str:
    return image.rpartition("/")[2]


def _short_cities(cities: list[str]) -> str:
    more = len(cities) - _CITIES_SHOWN
    return ",".join(cities[:_CITIES_SHOWN]) + (f" (+{more})" if more > 0 else "")


# --- describe


@workloads.command("describe")
@workload_argument
@click.option("--show-values", is_flag=True, help="Show values of environment variables.")
@read_options
@connection_options
@click.pass_context
def describe(ctx: click.Context, name: str, show_values: bool, output_format: str) -> None:
    """Show the details of the workload NAME: health, placements and containers.

    \b
    Examples:
      datumctl compute workloads describe web
      datumctl compute workloads describe web -o json --show-values
    """

    async def body(session: Session) -> None:
        report = await read_report(session, name)
        print_document(
            session.output,
            output_format,
            lambda: _description(session, report, show_values),
            lambda: _print(session, report, show_values),
            f"workload/{name}",
        )

    run_in_session(ctx, body)


def _description(
    session: Session, report: WorkloadReport, show_values: bool
) -> WorkloadDescription:
    workload = report.workload
    return extend_document(
        WorkloadDescription,
        workload_document(workload),
        place=session.target_name,
        revision=report.revision,
        rollout_done=report.progress.done,
        placements=[place_document(p) for p in report.progress.places],
        removing=[place_document(p) for p in report.progress.removing],
        containers=container_documents(workload.spec.template.spec, show_values),
    )


def _print(session: Session, report: WorkloadReport, show_values: bool) -> None:
    workload, texts = report.workload, CauseTexts(session.environment.now())
    scale = ", ".join(
        f"{p.name}: at least {p.scale_settings.min_replicas} in each of {', '.join(p.city_codes)}"
        for p in workload.spec.placements
    )
    further = [("Type", _instance_type(workload)), ("Scale", scale), ("Uid", workload.metadata.uid)]
    print_head(session, report, texts, further)
    print_containers(session.output, workload.spec.template.spec, show_values)
    session.output.data("")
    session.output.data(place_table(session.output, report.progress, texts))
    if workload_health(workload).word != "Available":
        session.output.note(f"Why: {session.command('explain', workload.metadata.name)}")


COMMAND = workloads
