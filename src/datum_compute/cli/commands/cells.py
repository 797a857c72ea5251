"""``cell list|drain|undrain|leave``: list the cells of the hub, drain and remove them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import click

from datum_compute.api.conditions import TRUE, find_condition
from datum_compute.api.core import Lease
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.karmada import CREDENTIALS_NAMESPACE, NO_SCHEDULE, Cluster
from datum_compute.api.kinds import CLUSTER, INSTANCE, LEASE, WORK
from datum_compute.api.labels import CELL, FORCED_LEAVE, TOPOLOGY_CITY
from datum_compute.api.membership import DRAINED
from datum_compute.api.meta.codec import JsonObject, to_json
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import execution_namespace
from datum_compute.cli.arguments import strip_type_of
from datum_compute.cli.connect.session import Session, run_on_hub
from datum_compute.cli.errors import ConflictError, MissingError, TimedOutError
from datum_compute.cli.options import connection_options, wait_options, yes_option
from datum_compute.cli.render.documents import CellEntry
from datum_compute.cli.render.listing import ListColumn, Listing, list_options, print_listing
from datum_compute.cli.render.output import render_age, render_count
from datum_compute.cli.render.prompt import confirm
from datum_compute.planning.federation.cells import serving_condition


@dataclass(frozen=True, slots=True)
class Row:
    """A cell of the list.

    ``closed`` is the reason why it takes no new work, or empty. ``instances`` is None if the user
    may not list instances.
    """

    cluster: Cluster
    last_heartbeat: str
    closed: str
    instances: int | None


@click.command("list")
@list_options
@connection_options
@click.pass_context
def list_cells(ctx: click.Context, output_format: str, no_headers: bool) -> None:
    """List the cells of the platform: city, status, instances and capacity.

    \b
    Example:
      datumctl compute cell list -o wide
    """

    async def body(session: Session) -> None:
        clusters = (await session.client.list(CLUSTER)).items
        leases = (await session.client.list(LEASE, CREDENTIALS_NAMESPACE)).items
        heartbeats = {lease.metadata.name: _renew_time(lease) for lease in leases}
        found = sorted(clusters, key=lambda cluster: cluster.metadata.name)
        counted = await _count_instances(session)
        rows = [
            Row(
                cluster,
                heartbeats.get(cluster.metadata.name, ""),
                _closed_reason(cluster, found),
                None if counted is None else counted[cluster.metadata.name],
            )
            for cluster in found
        ]
        if not rows:
            token = session.command("cell", "token")
            session.output.note(f"No cells have joined. Create a join token: {token}")
        print_listing(session.output, LISTING, rows, output_format, headers=not no_headers)

    run_on_hub(ctx, body)


@click.command()
@click.argument("name", callback=strip_type_of("cell"))
@connection_options
@click.pass_context
def drain(ctx: click.Context, name: str) -> None:
    """Place no new work on a cell. Its deployments stay until they are moved or deleted.

    Each city has one cell, so new deployments for the city wait until the cell is undrained.

    \b
    Example:
      datumctl compute cell drain dfw
    """

    async def body(session: Session) -> None:
        cluster = await _get_cluster(session, name)
        others = [taint for taint in _taints(cluster) if taint["key"] != DRAINED]
        await _patch_taints(session, cluster, [*others, {"key": DRAINED, "effect": NO_SCHEDULE}])
        running = len(await _list_deployment_names(session, name))
        session.output.data(f"Cell {name} is drained: no new work is placed there.")
        if running:
            session.output.note(
                f"Still placed there: {render_count(running, 'deployment')}. "
                "To empty the cell, delete or move their workloads."
            )

    run_on_hub(ctx, body)


@click.command()
@click.argument("name", callback=strip_type_of("cell"))
@connection_options
@click.pass_context
def undrain(ctx: click.Context, name: str) -> None:
    """Place work on a drained cell again.

    \b
    Example:
      datumctl compute cell undrain dfw
    """

    async def body(session: Session) -> None:
        cluster = await _get_cluster(session, name)
        others = [taint for taint in _taints(cluster) if taint["key"] != DRAINED]
        await _patch_taints(session, cluster, others)
        session.output.data(f"Cell {name} accepts new work again.")

    run_on_hub(ctx, body)


@click.command()
@click.argument("name", callback=strip_type_of("cell"))
@click.option(
    "--force", is_flag=True, help="Remove it even if it has deployments or is unreachable."
)
@yes_option
@wait_options("60s")
@connection_options
@click.pass_context
def leave(
    ctx: click.Context, name: str, force: bool, yes: bool, wait: bool, timeout_s: int
) -> None:
    """Remove a cell from the platform and revoke its credentials.

    A cell with deployments is only removed with --force: a reachable cell deletes them first. The
    deployments of an unreachable cell are given up, and their instances may continue to run there.

    \b
    Example:
      datumctl compute cell leave dfw
    """

    async def body(session: Session) -> None:
        cluster = await _get_cluster(session, name)
        if not cluster.spec.api_endpoint.startswith("https:"):
            raise ConflictError(
                f"Cell {name} runs in the process of the hub.",
                "Restart the hub without the cell in --cells.",
            )
        running = await _list_deployment_names(session, name)
        if running and not force:
            held = render_count(len(running), "deployment")
            raise ConflictError(
                f"Cell {name} has {held}, such as {running[0]}.",
                "Delete them first, or remove the cell with them: "
                f"{session.command('cell', 'leave', name, '--force')}",
            )
        if not yes:
            what = f" with {render_count(len(running), 'deployment')}" if running else ""
            confirm(session.environment, f"Remove cell {name}{what} from the platform?")
        if force:
            mark = {"metadata": {"annotations": {FORCED_LEAVE: "true"}}}
            await session.client.patch(CLUSTER, Ref("", name), mark)
        await session.client.delete(CLUSTER, Ref("", name), uid=cluster.metadata.uid)
        if not wait:
            session.output.data(f"Cell {name} is being removed.")
            return
        try:
            await session.client.wait(
                CLUSTER, Ref("", name), lambda found: found is None, timeout_s=timeout_s
            )
        except TimeoutError:
            flags = ("--force", "-y") if force else ("-y",)
            retry_command = session.command("cell", "leave", name, *flags)
            raise TimedOutError(
                f"Cell {name} is not removed after {render_age(timeout_s)}.",
                f"The removal continues. Wait for it again: {retry_command}",
            ) from None
        session.output.data(f"Cell {name} has left.")

    run_on_hub(ctx, body)


async def _count_instances(session: Session) -> Counter[str] | None:
    """Return the number of instances of each cell, or None if the user may not list them."""
    try:
        instances = (await session.client.list(INSTANCE)).items
    except (Forbidden, NotFound):
        return None
    return Counter(instance.metadata.labels.get(CELL, "") for instance in instances)


async def _get_cluster(session: Session, name: str) -> Cluster:
    try:
        return await session.client.get(CLUSTER, Ref("", name))
    except NotFound:
        hint = f"List them: {session.command('cell', 'list')}"
        raise MissingError(f"There is no cell {name}.", hint) from None


async def _list_deployment_names(session: Session, name: str) -> list[str]:
    """Return the deployments that are placed on the cell, or being removed from it."""
    works = (await session.client.list(WORK, execution_namespace(name))).items
    manifests = [work.spec.workload.manifests[0] for work in works]
    return sorted(m["metadata"]["name"] for m in manifests if m["kind"] == "WorkloadDeployment")


async def _patch_taints(session: Session, cluster: Cluster, taints: list[JsonObject]) -> None:
    metadata = {"resourceVersion": cluster.metadata.resource_version}
    patch = {"metadata": metadata, "spec": {"taints": taints}}
    await session.client.patch(CLUSTER, Ref("", cluster.metadata.name), patch)


def _taints(cluster: Cluster) -> list[JsonObject]:
    return [to_json(taint) for taint in cluster.spec.taints]


def _renew_time(lease: Lease) -> str:
    return lease.spec.renew_time or ""


def _closed_reason(cluster: Cluster, cells: Sequence[Cluster]) -> str:
    """Return why the cell takes no new work; Karmada has no field for it."""
    city = cluster.metadata.labels.get(TOPOLOGY_CITY)
    others = [c for c in cells if c is not cluster and not c.is_terminating]
    same = [c for c in others if city and c.metadata.labels.get(TOPOLOGY_CITY) == city]
    verdict = serving_condition(cluster, same)
    return "" if verdict.status == TRUE else verdict.reason


def _status(row: Row) -> str:
    cluster = row.cluster
    ready = find_condition(cluster.status.conditions, "Ready")
    if cluster.is_terminating:
        return "Leaving"
    words = ["Unknown" if ready is None else "Ready" if ready.status == TRUE else "Silent"]
    return ",".join(filter(None, (*words, row.closed)))


def _capacity(row: Row) -> str:
    has = row.cluster.status.resource_summary.allocatable
    return ",".join(f"{name}={amount}" for name, amount in sorted(has.items())) or "-"


def _used_instances(row: Row) -> str:
    """Return the number of instances that the cell reports, otherwise the number on the hub."""
    counted = "-" if row.instances is None else str(row.instances)
    return row.cluster.status.resource_summary.allocated.get("instances", counted)


def _city(row: Row) -> str:
    return row.cluster.metadata.labels.get(TOPOLOGY_CITY, "-")


def _document(row: Row) -> CellEntry:
    cluster = row.cluster
    return CellEntry(
        name=cluster.metadata.name,
        city=_city(row),
        status=_status(row),
        version=cluster.status.kubernetes_version,
        endpoint=cluster.spec.api_endpoint,
        last_heartbeat=row.last_heartbeat or None,
        allocatable=cluster.status.resource_summary.allocatable,
        allocated=cluster.status.resource_summary.allocated,
        instances=row.instances,
    )


LISTING: Listing[Row] = Listing(
    noun="cell",
    columns=(
        ListColumn("CELL", lambda row: row.cluster.metadata.name),
        ListColumn("CITY", _city),
        ListColumn("STATUS", _status),
        ListColumn("INSTANCES", _used_instances),
        ListColumn("CAPACITY", _capacity),
        ListColumn("VERSION", lambda row: row.cluster.status.kubernetes_version or "-", wide=True),
        ListColumn("HEARTBEAT", lambda row: row.last_heartbeat or "-", wide=True),
        ListColumn("ENDPOINT", lambda row: row.cluster.spec.api_endpoint or "-", wide=True),
    ),
    document=_document,
    name=lambda row: row.cluster.metadata.name,
)
