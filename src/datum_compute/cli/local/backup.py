"""``local backup FILE`` and ``local restore FILE``: the state of the whole platform in one file.

A running platform sends its state (server/api_server.py): one consistent snapshot of all its
planes, without a pause. The state of a stopped platform is read from its directory. Cells with
their own processes are read after the hub: after a restore, the hub removes the objects of a cell
that the hub does not have.
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
from datum_compute.app.state_directory import read_backup_files
from datum_compute.cli.connect.session import run_loop
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import MissingError, OtherError, UsageError, from_api_error
from datum_compute.cli.local.options import state_dir_option
from datum_compute.cli.local.platform import find_running, has_platform_state, prepare_state_dir
from datum_compute.cli.local.processes import cell_directories
from datum_compute.cli.options import yes_option
from datum_compute.cli.render.output import build_output
from datum_compute.cli.render.prompt import confirm
from datum_compute.client.auth.kubeconfig import KubeconfigError, build_client, connection_of
from datum_compute.client.auth.kubeconfig_files import load_kubeconfig
from datum_compute.store.dump import DumpError, decode_dump
from datum_compute.store.journal import JournalError, LoadedPlane

_BACKUP_PATH = "/backup"


@click.command("backup", short_help="Write the state of the platform to a file.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@state_dir_option
@yes_option
@click.pass_obj
def backup(environment: CliEnvironment, state_dir: Path, file: Path, yes: bool) -> None:
    """Write the state of the platform to FILE: a consistent snapshot of all planes, with
    certificates, keys and tokens. The platform may be running. A trial restore checks the file.

    FILE contains secrets: protect it like a private key.

    \b
    Example:
      datumctl compute local backup platform.backup
    """
    output, path = build_output(environment), _absolute(environment, file)
    if path.exists() and not yes:
        confirm(environment, f"Replace {path}?")
    if not has_platform_state(state_dir) and not is_interrupted(state_dir):
        raise MissingError(f"There is no platform in {state_dir}.")
    with _report_errors("The backup failed", path.parent):
        parts = run_loop(_read_parts(environment, state_dir))
        archive = Archive(timestamp(environment.now()), parts)
        run_loop(make_backup(path, archive))
    objects, planes = _count_objects_and_planes(archive)
    how = "while running" if find_running(state_dir) else "while stopped"
    output.data(
        f"The platform in {state_dir} was backed up {how}: {objects} objects of {planes} planes, "
        f"{path.stat().st_size} bytes."
    )
    output.note(f"The trial restore succeeded. The file contains secrets: {path}")


@click.command("restore", short_help="Replace the platform with a backup.")
@click.argument("file", type=click.Path(path_type=Path, dir_okay=False))
@state_dir_option
@yes_option
@click.pass_obj
def restore_backup(environment: CliEnvironment, state_dir: Path, file: Path, yes: bool) -> None:
    """Replace the platform in the state directory with the backup FILE. The platform must be
    stopped. The previous state is kept in a folder. After an interruption, the next start uses
    either the previous state or that of FILE.

    \b
    Example:
      datumctl compute local restore platform.backup
    """
    output, path = build_output(environment), _absolute(environment, file)
    archive = _read(path)
    _need_stopped(environment, state_dir)
    if has_platform_state(state_dir) and not yes:
        question = f"Replace the platform in {state_dir} with the backup of {archive.created_at}?"
        confirm(environment, question)
    prepare_state_dir(state_dir)
    started_at = timestamp(environment.now()).replace(":", "").replace("-", "")
    with _report_errors("The restore failed", state_dir), holding(state_dir):
        previous_state_dir = restore(state_dir, archive, started_at)
    objects, planes = _count_objects_and_planes(archive)
    output.data(
        f"The backup of {archive.created_at} was restored to {state_dir}: {objects} objects of "
        f"{planes} planes."
    )
    if previous_state_dir is not None:
        output.note(
            f"The previous state is in {previous_state_dir}. Delete it when it is no longer needed."
        )
    start = environment.command("local", "up", "--detach")
    output.note(f"Start it: {start}")


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
        return Part(name, await read_planes(state_dir / "store.db"), read_backup_files(state_dir))
    planes = await _request_backup(environment, state_dir, home)
    return Part(name, planes, read_backup_files(state_dir))


async def _request_backup(
    environment: CliEnvironment, state_dir: Path, plane: PlaneName
) -> dict[str, LoadedPlane]:
    try:
        connection = connection_of(load_kubeconfig([state_dir / "kubeconfig"]), plane)
        async with environment.open_transport(connection) as transport:
            return decode_dump(await build_client(connection, transport).get_bytes(_BACKUP_PATH))
    except ApiError as error:
        raise from_api_error(error, environment.command) from error
    except (Unreachable, KubeconfigError) as error:
        raise OtherError(
            f"The platform in {state_dir} is running but its state cannot be read: {error}",
            f"Stop it and run the command again: {environment.command('local', 'down')}",
        ) from error


def _read(path: Path) -> Archive:
    try:
        archive = read_archive(path)
        check_objects(archive)
        check_files(archive)
    except FileNotFoundError:
        raise MissingError(f"There is no file {path}.") from None
    except (ArchiveError, OSError) as error:
        raise UsageError(f"{error}.", "Nothing was changed. Use another backup.") from error
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
def _report_errors(what: str, directory: Path) -> Iterator[None]:
    """Raise OtherError with the cause in one line; a full disk is named."""
    try:
        yield
    except (ArchiveError, JournalError, DumpError, OSError) as error:
        # Checked by errno: the disk may have space again, because the incomplete file was deleted.
        full = getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)
        why = f"the disk that holds {directory} is full" if full else error
        raise OtherError(f"{what}: {why}.", "Nothing was changed.") from error


def _count_objects_and_planes(archive: Archive) -> tuple[int, int]:
    planes = [p for part in archive.parts for p in part.planes.values() if not p.deleted]
    return sum(len(plane.objects) for plane in planes), len(planes)


def _absolute(environment: CliEnvironment, file: Path) -> Path:
    if not file.name:
        raise UsageError("FILE is empty.", "Name the file, such as platform.backup.")
    return (environment.cwd / file.expanduser()).resolve()
