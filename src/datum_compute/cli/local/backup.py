"""``local backup FILE`` and ``local restore FILE``: the whole platform as one file, and back.

A platform that runs is asked for its state (server/api_server.py): it goes on working, and what it
answers is of one moment over all its planes. One that does not run is read from its directory.
Cells with processes of their own are read after the hub: whatever one of them has then that the hub
does not know of, the hub removes after a restore.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from datum_compute.api.errors import ApiError, Unreachable
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import PLATFORM, PlaneName, cell_plane
from datum_compute.app.backup.archive import Archive, ArchiveError, Part, read_archive
from datum_compute.app.backup.backup import check_files, check_objects, make_backup, read_planes
from datum_compute.app.backup.restore import finish_restore, holding, is_interrupted, restore
from datum_compute.app.state_directory import kept_files
from datum_compute.cli.connect.session import run_loop
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import MissingError, OtherError, UsageError, from_api_error
from datum_compute.cli.local.options import state_dir_option
from datum_compute.cli.local.platform import find_running, holds_a_platform, prepare_state_dir
from datum_compute.cli.local.processes import cell_directories
from datum_compute.cli.options import yes_option
from datum_compute.cli.render.output import build_output
from datum_compute.cli.render.prompt import confirm
from datum_compute.client.auth.kubeconfig import KubeconfigError, build_client, connection_of
from datum_compute.client.auth.kubeconfig_files import load_kubeconfig
from datum_compute.store.dump import DumpError, decode_dump
from datum_compute.store.journal import JournalError, LoadedPlane

_BACKUP_PATH = "/backup"


@click.command("backup", short_help="Write everything the platform knows to a file.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@state_dir_option
@yes_option
@click.pass_obj
def backup(environment: CliEnvironment, state_dir: Path, file: Path, yes: bool) -> None:
    """Write everything the platform knows to FILE: all planes as of one moment, with certificates,
    keys and tokens. It may run meanwhile. The file is restored on trial before it counts.

    FILE holds secrets: keep it as you keep keys.

    \b
    Example:
      datumctl compute local backup platform.backup
    """
    output, path = build_output(environment), _absolute(environment, file)
    if path.exists() and not yes:
        confirm(environment, f"Replace {path}?")
    if not holds_a_platform(state_dir) and not is_interrupted(state_dir):
        raise MissingError(f"There is no platform in {state_dir}.")
    with _told("The backup was not made", path.parent):
        parts = run_loop(_read_parts(environment, state_dir))
        archive = Archive(timestamp(environment.now()), parts)
        run_loop(make_backup(path, archive))
    objects, planes = _counted(archive)
    how = "while it ran" if find_running(state_dir) else "while it was down"
    output.data(
        f"The platform in {state_dir} was backed up {how}: {objects} objects of {planes} planes, "
        f"{path.stat().st_size} bytes."
    )
    output.note(f"A trial restore of it succeeded. It holds secrets: {path}")


@click.command("restore", short_help="Put a backup in the place of the platform.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@state_dir_option
@yes_option
@click.pass_obj
def restore_backup(environment: CliEnvironment, state_dir: Path, file: Path, yes: bool) -> None:
    """Put the platform of FILE in the place of the one in the state directory, which must not run.
    What was there is kept aside. Should this be interrupted, the next start finds the state of
    before or that of the file, nothing in between.

    \b
    Example:
      datumctl compute local restore platform.backup
    """
    output, path = build_output(environment), _absolute(environment, file)
    archive = _read(path)
    _need_stopped(environment, state_dir)
    if holds_a_platform(state_dir) and not yes:
        question = f"Replace the platform in {state_dir} by that of {archive.created_at}?"
        confirm(environment, question)
    prepare_state_dir(state_dir)
    stamp = timestamp(environment.now()).replace(":", "").replace("-", "")
    with _told("The backup was not restored", state_dir), holding(state_dir):
        aside = restore(state_dir, archive, stamp)
    objects, planes = _counted(archive)
    output.data(
        f"The platform of {archive.created_at} is in {state_dir}: {objects} objects of {planes} "
        "planes."
    )
    if aside is not None:
        output.note(f"What was there before is in {aside}; remove it when it is no longer needed.")
    start = environment.command("local", "up", "--detach")
    output.note(f"Start it:  {start}")


async def _read_parts(environment: CliEnvironment, state_dir: Path) -> tuple[Part, ...]:
    parts = [await _read_part(environment, state_dir, "", PLATFORM)]
    for cell in cell_directories(state_dir):
        name = cell.name
        parts.append(await _read_part(environment, cell, name, cell_plane(name)))
    return tuple(parts)


async def _read_part(
    environment: CliEnvironment, state_dir: Path, name: str, home: PlaneName
) -> Part:
    if find_running(state_dir) is None:
        if not name:
            with holding(state_dir):
                finish_restore(state_dir)
        return Part(name, await read_planes(state_dir / "store.db"), kept_files(state_dir))
    planes = await _ask(environment, state_dir, home)
    return Part(name, planes, kept_files(state_dir))


async def _ask(
    environment: CliEnvironment, state_dir: Path, home: PlaneName
) -> dict[str, LoadedPlane]:
    try:
        connection = connection_of(load_kubeconfig([state_dir / "kubeconfig"]), home)
        async with environment.open_transport(connection) as transport:
            return decode_dump(await build_client(connection, transport).fetch(_BACKUP_PATH))
    except ApiError as error:
        raise from_api_error(error, environment.command) from error
    except (Unreachable, KubeconfigError) as error:
        raise OtherError(
            f"The platform in {state_dir} runs but cannot be asked: {error}",
            "Stop it and run this again: a platform that is down can be backed up too.",
        ) from error


def _read(path: Path) -> Archive:
    try:
        archive = read_archive(path)
        check_objects(archive)
        check_files(archive)
    except FileNotFoundError:
        raise MissingError(f"There is no file {path}.") from None
    except (ArchiveError, OSError) as error:
        raise UsageError(f"{error}.", "Nothing was changed; try another backup.") from error
    return archive


def _need_stopped(environment: CliEnvironment, state_dir: Path) -> None:
    for directory in (*cell_directories(state_dir), state_dir):
        running = find_running(directory)
        if running is not None:
            down = environment.command("local", "down")
            raise UsageError(
                f"The platform in {directory} is running (pid {running.pid}).",
                f"Stop it first: {down}",
            )


@contextmanager
def _told(what: str, directory: Path) -> Iterator[None]:
    """What stands in the way, in one line; a full disk by name."""
    try:
        yield
    except (ArchiveError, JournalError, DumpError, OSError) as error:
        # Asked afterwards a disk may have room again: what did not fit was removed.
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        why = f"the disk that holds {directory} is full" if full else error
        raise OtherError(f"{what}: {why}.", "Nothing was changed.") from error


def _counted(archive: Archive) -> tuple[int, int]:
    planes = [p for part in archive.parts for p in part.planes.values() if not p.deleted]
    return sum(len(plane.objects) for plane in planes), len(planes)


def _absolute(environment: CliEnvironment, file: Path) -> Path:
    if not file.name:
        raise UsageError("FILE is empty.", "Name the file, such as platform.backup.")
    return (environment.cwd / file.expanduser()).resolve()
