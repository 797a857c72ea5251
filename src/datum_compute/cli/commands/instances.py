"""``instances list|describe|top``: the instances of the project."""

from __future__ import annotations

from dataclasses import dataclass, replace

import click

from datum_compute.api.compute.instance import (
    Container,
    EnvVar,
    Instance,
    SchedulingGate,
    TemplateSpec,
)
from datum_compute.api.compute.scale_to_zero import Wake
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE
from datum_compute.api.labels import CELL, WORKLOAD_UID
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import normalize_city
from datum_compute.cli.arguments import instance_argument
from datum_compute.cli.commands.top import top
from datum_compute.cli.completion import city_names, workload_names
from datum_compute.cli.connect.session import Session, run_in_session
from datum_compute.cli.errors import MissingError, UsageError
from datum_compute.cli.groups import NounGroup, named_hint
from datum_compute.cli.options import all_namespaces_option, connection_options
from datum_compute.cli.render.documents import (
    ConditionDocument,
    ContainerDocument,
    InstanceDescription,
    InstanceEntry,
    PortDocument,
    VariableDocument,
    WakeDocument,
    extend_document,
)
from datum_compute.cli.render.health import (
    aged_text,
    count_by_status,
    format_age_note,
    instance_health,
)
from datum_compute.cli.render.listing import (
    ListColumn,
    Listing,
    age_of,
    age_since,
    list_options,
    print_document,
    print_fields,
    print_listing,
    read_options,
    with_namespace,
)
from datum_compute.cli.render.output import Output, one_line, render_count
from datum_compute.cli.workload.access import print_missing_access
from datum_compute.cli.workload.crashes import (
    print_crash_reports,
    print_deleted_instance,
    read_crash_reports,
    select_workload,
)
from datum_compute.cli.workload.observe import (
    InstanceOwner,
    by_name,
    find_workload,
    has_owner_labels,
    instance_owner,
)

# --- Scale to zero: the last wake of an instance and its duration


def wake_document(instance: Instance) -> WakeDocument | None:
    wake = instance.status.last_wake
    if wake is None:
        return None
    return WakeDocument(
        at=wake.at,
        mode=wake.mode,
        milliseconds={**_parts(wake), "total": sum(_parts(wake).values())},
        failure=wake.failure,
    )


def wake_fields(instance: Instance, now: float) -> list[tuple[str, str]]:
    wake, settings = instance.status.last_wake, instance.spec.scale_to_zero
    found = []
    if settings is not None:
        found.append(
            ("Sleeps", f"after {settings.idle_after} without a connection ({settings.mode})")
        )
    if wake is not None:
        found.append(("Last wake", f"{age_since(wake.at, now)} ago, {_describe_wake(wake)}"))
    return found


def _describe_wake(wake: Wake) -> str:
    if wake.failure:
        return f"failed: {one_line(wake.failure)}"
    parts = ", ".join(f"{name} {took}" for name, took in _parts(wake).items())
    return f"in {sum(_parts(wake).values())} ms from {wake.mode} ({parts})"


def _parts(wake: Wake) -> dict[str, int]:
    return {
        "queue": wake.queue_milliseconds,
        "engine": wake.engine_milliseconds,
        "ready": wake.ready_milliseconds,
        "firstByte": wake.first_byte_milliseconds,
    }


# --- Containers of a workload or an instance; values of variables are masked by default


MASKED = "***"


def check_container(spec: TemplateSpec, name: str | None) -> None:
    """Raise MissingError if no container has this name."""
    names = [container.name for container in spec.runtime.sandbox.containers]
    if name is not None and name not in names:
        raise MissingError(f"There is no container {name!r}.", named_hint(name, names))


def container_documents(spec: TemplateSpec, show_values: bool) -> list[ContainerDocument]:
    return [
        ContainerDocument(
            name=container.name,
            image=container.image,
            command=[*container.command],
            args=[*container.args],
            ports=[
                PortDocument(name=p.name, port=p.port, protocol=p.protocol) for p in container.ports
            ],
            env=[
                VariableDocument(name=e.name, value=_value(e, show_values)) for e in container.env
            ],
        )
        for container in spec.runtime.sandbox.containers
    ]


def print_containers(output: Output, spec: TemplateSpec, show_values: bool) -> None:
    for container in spec.runtime.sandbox.containers:
        output.data("")
        output.data(f"Container {container.name}: {one_line(container.image)}")
        for title, text in _lines(container, show_values):
            if text:
                output.data(f"  {title + ':':<9} {one_line(text)}")


def _lines(container: Container, show_values: bool) -> list[tuple[str, str]]:
    ports = (f"{p.port}/{p.protocol} ({p.name})" for p in container.ports)
    variables = (f"{e.name}={_value(e, show_values)}" for e in container.env)
    return [
        ("Command", " ".join((*container.command, *container.args))),
        ("Ports", ", ".join(ports)),
        ("Env", ", ".join(variables)),
    ]


def _value(variable: EnvVar, show_values: bool) -> str:
    source = variable.value_from
    if source is None:
        return variable.value if show_values else MASKED
    if source.config_map_key_ref is not None:
        return f"(ConfigMap {source.config_map_key_ref.name})"
    if source.secret_key_ref is not None:
        return f"(Secret {source.secret_key_ref.name})"
    return MASKED


# --- instances


@dataclass(frozen=True, slots=True)
class InstanceRow:
    """An instance with its workload, placement and city."""

    instance: Instance
    place: InstanceOwner

    @property
    def name(self) -> str:
        return self.instance.metadata.name


@click.group(cls=NounGroup, default="list", short_help="List or describe instances.")
def instances() -> None:
    """List the instances of the project, or describe one.

    \b
    Examples:
      datumctl compute instances
      datumctl compute instances --workload=web -o wide
      datumctl compute instances describe web-default-dfw-0
    """


@instances.command("list")
@click.option(
    "--workload",
    metavar="NAME",
    help="Show only instances of this workload.",
    shell_complete=workload_names,
)
@click.option(
    "--city", metavar="CODE", help="Show only instances in this city.", shell_complete=city_names
)
@all_namespaces_option
@list_options
@connection_options
@click.pass_context
def list_instances(
    ctx: click.Context,
    workload: str | None,
    city: str | None,
    all_namespaces: bool,
    output_format: str,
    no_headers: bool,
) -> None:
    """List the instances of the project with city, address and status.

    \b
    Examples:
      datumctl compute instances
      datumctl compute instances --workload=web --city=DFW -o wide
      datumctl compute instances -o jsonpath={.items[*].address}
    """

    if workload is not None and all_namespaces:
        raise UsageError("--workload cannot be used with -A: a workload belongs to one namespace.")

    async def body(session: Session) -> None:
        where = replace(session, namespace="") if all_namespaces else session
        rows = [row for row in await _read(where, workload) if _is_in(row, city)]
        if not await print_missing_access(session) and not rows:
            session.output.note(f"No instances match in {session.target_name}.")
        words = [instance_health(row.instance).word for row in rows]
        listing = listing_at(session.environment.now())
        if all_namespaces:
            listing = with_namespace(listing, lambda row: row.instance.metadata.namespace)
        print_listing(
            session.output,
            listing,
            sorted(rows, key=lambda row: (row.place.workload, row.place.city, row.name)),
            output_format,
            headers=not no_headers,
            footer=f"{render_count(len(rows), 'instance')}: {count_by_status(words)}"
            if rows
            else "",
        )

    run_in_session(ctx, body)


async def _read(session: Session, workload: str | None) -> list[InstanceRow]:
    """Read the instances of the project or of one workload.

    A workload is matched by uid, because a deleted workload may have had the same name.
    """
    uid = (await find_workload(session, workload)).metadata.uid if workload is not None else ""
    listed = (await session.client.list(INSTANCE, session.namespace)).items
    found = await resolve_owners(session, listed)
    if workload is None:
        return found
    return [
        row
        for row in found
        if row.place.workload == workload
        and row.instance.metadata.labels.get(WORKLOAD_UID, uid) == uid
    ]


async def resolve_owners(session: Session, listed: list[Instance]) -> list[InstanceRow]:
    """Return rows with the owner of each instance.

    Deployments are read only if the labels of an instance do not contain its owner.
    """
    deployments = {}
    if not all(has_owner_labels(instance) for instance in listed):
        deployments = by_name((await session.client.list(DEPLOYMENT, session.namespace)).items)
    return [InstanceRow(instance, instance_owner(instance, deployments)) for instance in listed]


def _is_in(row: InstanceRow, city: str | None) -> bool:
    return city is None or row.place.city == normalize_city(city)


def listing_at(now: float) -> Listing[InstanceRow]:
    return Listing(
        noun="instance",
        columns=(
            ListColumn("NAME", lambda row: row.name),
            ListColumn("WORKLOAD", lambda row: row.place.workload),
            ListColumn("CITY", lambda row: row.place.city),
            ListColumn("ADDRESS", lambda row: address_of(row.instance) or "-"),
            ListColumn("AGE", lambda row: age_of(row.instance, now)),
            ListColumn("STATUS", lambda row: aged_text(instance_health(row.instance), now)),
            ListColumn("PLACEMENT", lambda row: row.place.placement, wide=True),
            ListColumn("INSTANCE TYPE", lambda row: _instance_type(row.instance), wide=True),
            ListColumn(
                "MESSAGE", lambda row: instance_health(row.instance).message or "-", wide=True
            ),
        ),
        document=instance_document,
        name=lambda row: row.name,
    )


def instance_document(row: InstanceRow) -> InstanceEntry:
    instance, health = row.instance, instance_health(row.instance)
    return InstanceEntry(
        name=row.name,
        namespace=instance.metadata.namespace,
        uid=instance.metadata.uid,
        created_at=instance.metadata.creation_timestamp,
        workload=row.place.workload,
        city=row.place.city,
        placement=row.place.placement,
        address=address_of(instance),
        status=health.word,
        reason=health.reason,
        message=health.message,
        instance_type=_instance_type(instance),
        images=[container.image for container in instance.spec.runtime.sandbox.containers],
    )


def _instance_type(instance: Instance) -> str:
    return instance.spec.runtime.resources.instance_type


def address_of(instance: Instance) -> str:
    """Return the external address, otherwise the address inside the network."""
    for interface in instance.status.network_interfaces:
        assigned = interface.assignments
        if assigned.external_ip or assigned.network_ip:
            return assigned.external_ip or assigned.network_ip
    return ""


# --- describe


@instances.command("describe")
@instance_argument
@click.option("--show-values", is_flag=True, help="Show values of environment variables.")
@read_options
@connection_options
@click.pass_context
def describe(ctx: click.Context, name: str, show_values: bool, output_format: str) -> None:
    """Show the details of the instance NAME. For a deleted instance, show how it ended.

    \b
    Example:
      datumctl compute instances describe web-default-dfw-0
    """

    async def body(session: Session) -> None:
        reports = await read_crash_reports(session, name)
        try:
            instance = await find_instance(session, name)
        except MissingError:
            if not reports:
                raise
            print_deleted_instance(session, name, output_format, reports)
            return
        reports = select_workload(reports, instance.metadata.labels.get(WORKLOAD_UID, ""))
        (row,) = await resolve_owners(session, [instance])

        def lines() -> None:
            _print(session, row, show_values)
            print_crash_reports(session, reports)

        print_document(
            session.output,
            output_format,
            lambda: _description(row, show_values, reports),
            lines,
            f"instance/{name}",
        )

    run_in_session(ctx, body)


async def find_instance(session: Session, name: str) -> Instance:
    try:
        return await session.client.get(INSTANCE, Ref(session.namespace, name))
    except NotFound:
        listed = await session.client.list(INSTANCE, session.namespace)
    names = [instance.metadata.name for instance in listed.items]
    hint = named_hint(name, names) or f"See: {session.command('workloads')}"
    raise MissingError(f"There is no instance {name!r} in {session.target_name}.", hint)


def _description(
    row: InstanceRow, show_values: bool, reports: list[JsonObject]
) -> InstanceDescription:
    instance = row.instance
    return extend_document(
        InstanceDescription,
        instance_document(row),
        cell=instance.metadata.labels.get(CELL, ""),
        containers=container_documents(instance.spec, show_values),
        conditions=[
            ConditionDocument(
                type=c.type,
                status=c.status,
                reason=c.reason,
                message=c.message,
                since=c.last_transition_time,
            )
            for c in instance.status.conditions
        ],
        gates=[gate.name for gate in _gates(instance)],
        last_wake=wake_document(instance),
        crashes=reports,
    )


def _gates(instance: Instance) -> list[SchedulingGate]:
    control = instance.spec.controller
    return control.scheduling_gates if control else []


def _print(session: Session, row: InstanceRow, show_values: bool) -> None:
    instance, now = row.instance, session.environment.now()
    health = instance_health(instance)
    print_fields(
        session.output,
        [
            ("Instance", f"{row.name} ({session.target_name})"),
            ("Workload", row.place.workload),
            ("Where", f"{row.place.city}, placement {row.place.placement}"),
            ("Created", f"{age_of(instance, now)} ago"),
            ("Status", aged_text(health, now)),
            ("Message", one_line(health.message)),
            ("As of", format_age_note(health, now).removeprefix("as of ")),
            ("Type", _instance_type(instance)),
            ("Address", address_of(instance)),
            *wake_fields(instance, now),
        ],
    )
    print_containers(session.output, instance.spec, show_values)
    rows = [
        (c.type, c.status, c.reason, age_since(c.last_transition_time, now), c.message or "-")
        for c in instance.status.conditions
    ]
    if rows:
        session.output.data("")
        headings = ("CONDITION", "STATUS", "REASON", "SINCE", "MESSAGE")
        session.output.data(session.output.table(headings, rows))
    if health.word != "Available":
        session.output.note(f"Why: {session.command('explain', row.name)}")


instances.add_command(top)

COMMAND = instances
