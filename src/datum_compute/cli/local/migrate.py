"""``local export --to CONTEXT``: the projects and workloads of a local platform on real planes.

Three rounds: everything is planned (the other side is asked to check each object), written, and
read back. A context that keeps projects gets the projects too; any other is one plane, which takes
one project. Without Milo nobody keeps them: there projects are the contexts of their own
(``--to=platform``), and access is not asked for. Run again it does what is left to do.
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
    carry_over,
    plan_move,
    read_project,
    stripped,
    verify,
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
class _Wish:
    to: str
    projects: tuple[str, ...]
    dry_run: bool
    yes: bool
    force: bool


@click.command("export", short_help="Copy projects and workloads to other planes.")
@click.option("--to", required=True, metavar="CONTEXT", help="Context of the planes to copy to.")
@click.option(
    "--to-kubeconfig", default="", metavar="FILE", help="Where it is.  [default: $KUBECONFIG]"
)
@click.option(
    "--project", "projects", multiple=True, metavar="NAME", help="Only this project; repeatable."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--force", is_flag=True, help="Take over fields that somebody changed there.")
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
    ConfigMaps and Secrets they refer to, and read everything back in the end.

    Nothing is deleted on either side, and workloads go on running here.

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
    wish = _Wish(to, projects, dry_run, yes, force)
    try:
        here = load_kubeconfig([state_dir / "kubeconfig"])
        there = load_kubeconfig(_files(environment, to_kubeconfig))
        run_loop(_export(environment, wish, here, there))
    except KubeconfigError as error:
        raise OtherError(f"{error}.", "Choose another with --to-kubeconfig or --to.") from error
    except ApiError as error:
        raise from_api_error(error, environment.command) from error
    except Unreachable as error:
        raise OtherError(str(error), "Run this again: what is done stays done.") from error


def _files(environment: CliEnvironment, named: str) -> list[Path]:
    if named:
        return [Path(named).expanduser()]
    listed = environment.environ.get(KUBECONFIG, "")
    usual = environment.home / ".kube" / "config"
    return [Path(part) for part in listed.split(os.pathsep) if part] or [usual]


async def _export(
    environment: CliEnvironment, wish: _Wish, here: Kubeconfig, there: Kubeconfig
) -> None:
    output = build_output(environment)
    moves = await _read(environment, here, wish.projects)
    async with AsyncExitStack() as opened:
        names = [move.project for move in moves]
        target = await _reach(environment, opened, there, wish.to, names)
        _check_room(target, moves, wish)
        if not target.keeps_access:
            moves = [replace(m, copies=replace(m.copies, entitlements=())) for m in moves]
        refused = await _show_plan(output, target, moves, wish)
        if wish.dry_run:
            output.note("Nothing was changed: this was a dry run.")
            return
        if refused:
            raise FailedError(
                f"{render_count(refused, 'object')} would be refused.", "Nothing was changed."
            )
        if not wish.yes:
            confirm(environment, f"Copy this to {wish.to}?")
        await _carry_over(output, target, moves, wish)


async def _reach(
    environment: CliEnvironment,
    opened: AsyncExitStack,
    there: Kubeconfig,
    to: str,
    projects: Sequence[str],
) -> Target:
    """A project that has a context beside the chosen one is reached as who is named there."""

    async def client_of(connection: Connection) -> Client:
        transport = await opened.enter_async_context(environment.open_transport(connection))
        return build_client(connection, transport)

    chosen = connection_of(there, to)
    whole = await client_of(chosen)
    keeps_projects = is_platform(chosen) and await keeps_projects_of(whole)
    if not keeps_projects and to != PLATFORM:
        return Target(None, lambda _project: whole, keeps_access=not is_platform(chosen))
    planes = {}
    for project in projects:
        inner = replace(chosen, path_prefix=path_prefix(project_plane(project)))
        own = f"project/{project}"
        if own not in there.contexts and not keeps_projects:
            why = f"{to} keeps no projects, and there is no context {own} beside it."
            raise MissingError(why, "Add one, or choose the context of one API server with --to.")
        planes[project] = await client_of(
            connection_of(there, own) if own in there.contexts else inner
        )
    return Target(
        whole if keeps_projects else None, planes.__getitem__, keeps_access=keeps_projects
    )


def is_platform(connection: Connection) -> bool:
    """An API server, not a path of one."""
    plane, _ = split_path(connection.path_prefix or "/")
    return plane_role(plane) == "platform"


async def keeps_projects_of(client: Client) -> bool:
    """Whether projects that are made there come about: our definitions are on every plane, but only
    a platform has a catalogue that offers compute."""
    try:
        await client.list_plain(PROJECT)
    except NotFound:
        return False
    try:
        services = (await client.list_plain(SERVICE)).items
    except (NotFound, Forbidden):
        return True  # a platform whose catalogue is not for everybody to see
    return any(service["spec"].get("serviceName") == SERVICE_NAME for service in services)


async def _read(environment: CliEnvironment, here: Kubeconfig, wanted: Sequence[str]) -> list[Move]:
    """Every project of the local platform, or those that were named."""
    connection = connection_of(here, PLATFORM)
    async with environment.open_transport(connection) as transport:
        platform = build_client(connection, transport)
        projects = {p["metadata"]["name"]: p for p in (await platform.list_plain(PROJECT)).items}
        for name in wanted:
            if name not in projects:
                known = ", ".join(projects)
                raise MissingError(f"There is no project {name!r} here.", f"There are: {known}.")
        moves = []
        for name in wanted or sorted(projects):
            _check_ready(name, projects[name])
            copies = await read_project(build_client(_own(here, name), transport))
            moves.append(Move(name, await _makers(platform, projects[name]), copies))
        return moves


def _own(config: Kubeconfig, project: str) -> Connection:
    """By its own context; one that was made a moment ago has none yet."""
    if f"project/{project}" in config.contexts:
        return connection_of(config, f"project/{project}")
    prefix = path_prefix(project_plane(project))
    return replace(connection_of(config, PLATFORM), path_prefix=prefix)


def _check_ready(name: str, project: JsonObject) -> None:
    conditions = project.get("status", {}).get("conditions", [])
    if not any(c["type"] == "Ready" and c["status"] == "True" for c in conditions):
        raise PendingError(
            f"Project {name} is still being made here.", "Run this again in a moment."
        )


async def _makers(platform: Client, project: JsonObject) -> tuple[Copy, ...]:
    own = stripped(PROJECT, project)
    owner = Ref("", own["spec"]["ownerRef"]["name"])
    organization = await platform.get_plain(ORGANIZATION, owner)
    return Copy(ORGANIZATION, stripped(ORGANIZATION, organization)), Copy(PROJECT, own)


def _check_room(target: Target, moves: Sequence[Move], wish: _Wish) -> None:
    if target.platform is None and wish.to != PLATFORM and len(moves) > 1:
        names = ", ".join(move.project for move in moves)
        raise UsageError(
            f"{wish.to} is one plane and takes one project; there are: {names}.",
            "Choose one with --project.",
        )


async def _show_plan(output: Output, target: Target, moves: Sequence[Move], wish: _Wish) -> int:
    """How many objects would be refused."""
    rows, refused = [], 0
    for move in moves:
        for missing in move.copies.missing:
            output.note(f"{missing} of project {move.project} is referred to, but not there.")
        for step in await plan_move(target, move, force=wish.force):
            refused += step.action == REFUSED
            rows.append((move.project, step.copy.kind.kind, step.copy.ref, step.action, step.why))
    output.data(output.table(("PROJECT", "KIND", "NAME", "ACTION", "NOTE"), rows))
    return refused


async def _carry_over(output: Output, target: Target, moves: Sequence[Move], wish: _Wish) -> None:
    done: Counter[str] = Counter()

    def tell(project: str, copy: Copy, action: str) -> None:
        done[action] += 1
        if action != KEEP:
            output.note(f"{project}: {copy} ({action})")

    for move in moves:
        await carry_over(target, move, tell, force=wish.force)
    wrong = await verify(target, moves)
    told = ", ".join(f"{action}: {count}" for action, count in sorted(done.items()))
    if wrong:
        raise FailedError("\n".join(wrong), "Run this again; --force takes over what differs.")
    output.data(f"Everything is on {wish.to} as it is here ({told}).")
