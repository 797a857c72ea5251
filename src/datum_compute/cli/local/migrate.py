"""``local export --to CONTEXT``: copy projects and workloads of a local platform to other planes.

The export has three phases: plan (the target checks each object in a dry run), write, read back. If
the target stores projects, the projects are copied too. Any other target is one plane, which takes
one project. A platform without Milo stores no projects: there, each project is a context of its own
(``--to=platform``), and no access is requested. A repeated export writes only what is missing.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import click

from datum_compute.api.errors import ApiError, Forbidden, NotFound, Unreachable
from datum_compute.api.kinds import ORGANIZATION, PROJECT, SERVICE
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import PLATFORM, path_prefix, plane_role, project_plane, split_path
from datum_compute.api.quota import SERVICE_NAME
from datum_compute.cli.connect.session import run_loop
from datum_compute.cli.environment import KUBECONFIG, CliEnvironment
from datum_compute.cli.errors import (
    FailedError,
    MissingError,
    OtherError,
    PendingError,
    UsageError,
    from_api_error,
)
from datum_compute.cli.local.migration import (
    KEEP,
    REFUSED,
    Copy,
    Move,
    Target,
    copy_project,
    plan_move,
    read_project,
    verify,
    without_server_fields,
)
from datum_compute.cli.local.options import state_dir_option
from datum_compute.cli.local.platform import find_running
from datum_compute.cli.options import yes_option
from datum_compute.cli.render.output import Output, build_output, render_count
from datum_compute.cli.render.prompt import confirm
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.kubeconfig import (
    Kubeconfig,
    KubeconfigError,
    build_client,
    connection_of,
    load_kubeconfig,
)
from datum_compute.client.client import Client


@dataclass(frozen=True, slots=True)
class _ExportOptions:
    to: str
    projects: tuple[str, ...]
    dry_run: bool
    yes: bool
    force: bool


@click.command("export", short_help="Copy projects and workloads to other planes.")
@click.option("--to", required=True, metavar="CONTEXT", help="Context of the planes to copy to.")
@click.option(
    "--to-kubeconfig",
    default="",
    metavar="FILE",
    help="Kubeconfig of that context.  [default: $KUBECONFIG]",
)
@click.option(
    "--project",
    "projects",
    multiple=True,
    metavar="NAME",
    help="Copy only this project. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Show the plan and change nothing.")
@click.option("--force", is_flag=True, help="Overwrite fields that have another field manager.")
@state_dir_option
@yes_option
@click.pass_obj
def export_platform(
    environment: CliEnvironment,
    state_dir: Path,
    to: str,
    to_kubeconfig: str,
    projects: tuple[str, ...],
    dry_run: bool,
    force: bool,
    yes: bool,
) -> None:
    """Copy the projects and workloads of the local platform to other planes, with the networks,
    ConfigMaps and Secrets that they use. Every copy is read back and compared.

    Nothing is deleted on either side, and the workloads continue to run here.

    \b
    Examples:
      datumctl compute local export --to=prod --dry-run
      datumctl compute local export --to=prod --project=shop
    """
    if find_running(state_dir) is None:
        raise MissingError(
            f"The platform in {state_dir} is not running.",
            f"Start it: {environment.command('local', 'up', '--detach')}",
        )
    options = _ExportOptions(to, projects, dry_run, yes, force)
    try:
        local_config = load_kubeconfig([state_dir / "kubeconfig"])
        target_config = load_kubeconfig(_kubeconfig_files(environment, to_kubeconfig))
        run_loop(_run_export(environment, options, local_config, target_config))
    except KubeconfigError as error:
        raise OtherError(f"{error}.", "Choose another with --to-kubeconfig or --to.") from error
    except ApiError as error:
        raise from_api_error(error, environment.command) from error
    except Unreachable as error:
        raise OtherError(
            str(error), "Run the command again: it continues where it stopped."
        ) from error


def _kubeconfig_files(environment: CliEnvironment, named: str) -> list[Path]:
    if named:
        return [Path(named).expanduser()]
    listed = environment.environ.get(KUBECONFIG, "")
    usual = environment.home / ".kube" / "config"
    return [Path(part) for part in listed.split(os.pathsep) if part] or [usual]


async def _run_export(
    environment: CliEnvironment,
    options: _ExportOptions,
    local_config: Kubeconfig,
    target_config: Kubeconfig,
) -> None:
    output = build_output(environment)
    moves = await _read_moves(environment, local_config, options.projects)
    async with AsyncExitStack() as exit_stack:
        names = [move.project for move in moves]
        target = await _open_target(environment, exit_stack, target_config, options.to, names)
        _check_capacity(target, moves, options)
        if not target.keeps_access:
            moves = [replace(m, copies=replace(m.copies, entitlements=())) for m in moves]
        planned = await _show_plan(output, target, moves, options)
        if options.dry_run:
            output.note("Nothing was changed: this was a dry run.")
            return
        if planned[REFUSED]:
            raise FailedError(
                f"{options.to} would reject {render_count(planned[REFUSED], 'object')}.",
                "Nothing was changed.",
            )
        has_changes = planned.keys() != {KEEP}
        if has_changes and not options.yes:
            confirm(environment, f"Copy this to {options.to}?")
        await _copy_projects(output, target, moves, options)


async def _open_target(
    environment: CliEnvironment,
    exit_stack: AsyncExitStack,
    target_config: Kubeconfig,
    to: str,
    projects: Sequence[str],
) -> Target:
    """Open the target. A project with a context of its own is reached with its credentials."""

    async def client_of(connection: Connection) -> Client:
        transport = await exit_stack.enter_async_context(environment.open_transport(connection))
        return build_client(connection, transport)

    chosen = connection_of(target_config, to)
    root_client = await client_of(chosen)
    keeps_projects = is_platform(chosen) and await keeps_projects_of(root_client)
    if not keeps_projects and to != PLATFORM:
        return Target(None, lambda _project: root_client, keeps_access=not is_platform(chosen))
    planes = {}
    for project in projects:
        inner = replace(chosen, path_prefix=path_prefix(project_plane(project)))
        own = f"project/{project}"
        if own not in target_config.contexts and not keeps_projects:
            why = f"{to} stores no projects, and the kubeconfig has no context {own}."
            raise MissingError(why, "Add the context, or select one API server with --to.")
        planes[project] = await client_of(
            connection_of(target_config, own) if own in target_config.contexts else inner
        )
    return Target(
        root_client if keeps_projects else None, planes.__getitem__, keeps_access=keeps_projects
    )


def is_platform(connection: Connection) -> bool:
    """Return True for the root of an API server, as opposed to a plane below a path."""
    plane, _ = split_path(connection.path_prefix or "/")
    return plane_role(plane) == "platform"


async def keeps_projects_of(client: Client) -> bool:
    """Return True if the plane creates projects.

    Every plane has the definition of Project, but only a platform has a catalogue with compute.
    """
    try:
        await client.list_plain(PROJECT)
    except NotFound:
        return False
    try:
        services = (await client.list_plain(SERVICE)).items
    except (NotFound, Forbidden):
        return True  # a platform whose catalogue this user may not read
    return any(service["spec"].get("serviceName") == SERVICE_NAME for service in services)


async def _read_moves(
    environment: CliEnvironment, local_config: Kubeconfig, wanted: Sequence[str]
) -> list[Move]:
    """Read every project of the local platform, or only the wanted ones."""
    connection = connection_of(local_config, PLATFORM)
    async with environment.open_transport(connection) as transport:
        platform = build_client(connection, transport)
        projects = {p["metadata"]["name"]: p for p in (await platform.list_plain(PROJECT)).items}
        for name in wanted:
            if name not in projects:
                known = ", ".join(projects)
                raise MissingError(
                    f"There is no project {name!r} here.", f"Existing projects: {known}."
                )
        moves = []
        for name in wanted or sorted(projects):
            _check_ready(name, projects[name])
            copies = await read_project(
                build_client(_project_connection(local_config, name), transport)
            )
            moves.append(Move(name, await _read_project_objects(platform, projects[name]), copies))
        return moves


def _project_connection(config: Kubeconfig, project: str) -> Connection:
    """Return the connection to a project; a new project has no context of its own yet."""
    if f"project/{project}" in config.contexts:
        return connection_of(config, f"project/{project}")
    prefix = path_prefix(project_plane(project))
    return replace(connection_of(config, PLATFORM), path_prefix=prefix)


def _check_ready(name: str, project: JsonObject) -> None:
    conditions = project.get("status", {}).get("conditions", [])
    if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
        raise PendingError(
            f"Project {name} is not ready yet.", "Run the command again in a few seconds."
        )


async def _read_project_objects(platform: Client, project: JsonObject) -> tuple[Copy, ...]:
    own = without_server_fields(PROJECT, project)
    owner = Ref("", own["spec"]["ownerRef"]["name"])
    organization = await platform.get_plain(ORGANIZATION, owner)
    return Copy(ORGANIZATION, without_server_fields(ORGANIZATION, organization)), Copy(PROJECT, own)


def _check_capacity(target: Target, moves: Sequence[Move], options: _ExportOptions) -> None:
    if target.platform is None and options.to != PLATFORM and len(moves) > 1:
        names = ", ".join(move.project for move in moves)
        raise UsageError(
            f"{options.to} is one plane and takes one project, but there are several: {names}.",
            "Select one with --project.",
        )


async def _show_plan(
    output: Output, target: Target, moves: Sequence[Move], options: _ExportOptions
) -> Counter[str]:
    """Print the plan. Return the number of objects by action."""
    rows: list[tuple[object, ...]] = []
    planned: Counter[str] = Counter()
    for move in moves:
        for missing in move.copies.missing:
            output.note(f"Project {move.project} refers to {missing}, which does not exist.")
        for step in await plan_move(target, move, force=options.force):
            planned[step.action] += 1
            rows.append((move.project, step.copy.kind.kind, step.copy.ref, step.action, step.why))
    output.data(output.table(("PROJECT", "KIND", "NAME", "ACTION", "NOTE"), rows))
    return planned


async def _copy_projects(
    output: Output, target: Target, moves: Sequence[Move], options: _ExportOptions
) -> None:
    done: Counter[str] = Counter()

    def report(project: str, copy: Copy, action: str) -> None:
        done[action] += 1
        if action != KEEP:
            output.note(f"{project}: {copy} ({action})")

    for move in moves:
        await copy_project(target, move, report, force=options.force)
    differences = await verify(target, moves)
    counts = ", ".join(f"{action}: {count}" for action, count in sorted(done.items()))
    if differences:
        raise FailedError(
            "\n".join(differences), "Run the command again; --force overwrites fields that differ."
        )
    output.data(f"All objects were copied to {options.to} ({counts}).")
