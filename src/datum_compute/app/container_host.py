"""The containers driver of this host: its engine and its files (volumes, logs, records)."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import shutil
import signal
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from datum_compute.api.meta.codec import DecodeError, decode_as, encode, to_json
from datum_compute.api.meta.names import NUL, NUL_PROBLEM
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import PlaneName, member_name
from datum_compute.app.debounced_file import DebouncedFile
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.state_directory import StateError, ensure_private_directory, write_private
from datum_compute.drivers.containers.container_spec import ContainerOwner
from datum_compute.drivers.containers.driver import ContainersDriver
from datum_compute.drivers.containers.engine import Engine, EngineVersion
from datum_compute.drivers.containers.machine import MachineRecord
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.driver import DataFile, DriverError, PermanentError
from datum_compute.drivers.logs import LogOwner, WorkloadLog
from datum_compute.drivers.queries import CrashReport

# --- Signals to processes of containers


_PROC = Path("/proc")


def signal_process(process: int, container_id: str, by_force: bool) -> None:
    """Send SIGHUP, or SIGKILL if ``by_force``, to a process of the container and to its group.

    Do nothing if the process is not in the cgroup of the container: the process has ended, and the
    kernel has given its id to another process.
    """
    with suppress(OSError):
        if container_id not in (_PROC / str(process) / "cgroup").read_text():
            return
        how = signal.SIGKILL if by_force else signal.SIGHUP
        if os.getpgid(process) == process:
            os.killpg(process, how)
        else:
            os.kill(process, how)


# --- Directories with the files of ConfigMaps and Secrets, which containers mount read-only
# The directories are in the private state directory and are removed together with their machine.


class VolumeDirectories:
    """A directory for each machine, which contains a directory for each of its volumes."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def write(self, machine_id: str, volume: str, files: Sequence[DataFile]) -> str:
        folder = ensure_private_directory(self._root) / _name(machine_id) / volume
        shutil.rmtree(folder, ignore_errors=True)
        _open_folder(folder.parent)
        _open_folder(folder)
        for file in files:
            self._write(folder, file, volume)
        return str(folder)

    def _write(self, folder: Path, file: DataFile, volume: str) -> None:
        if NUL in file.path:
            raise PermanentError(f"volume {volume}: the path of a file {NUL_PROBLEM}")
        path = folder / file.path
        if not path.resolve().is_relative_to(folder.resolve()):
            raise PermanentError(f"volume {volume}: {file.path} is outside of the volume")
        try:
            for parent in reversed(path.relative_to(folder).parents[:-1]):
                _open_folder(folder / parent)
            handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "wb") as target:
                target.write(file.content)
            path.chmod(file.mode)
        except OSError as error:
            why = error.strerror or type(error).__name__
            raise PermanentError(f"volume {volume}: {file.path}: {why.lower()}") from None

    def remove(self, machine_id: str) -> None:
        shutil.rmtree(self._root / _name(machine_id), ignore_errors=True)

    def keep_only(self, machine_ids: Collection[str]) -> None:
        kept = {_name(machine_id) for machine_id in machine_ids}
        found = list(self._root.iterdir()) if self._root.is_dir() else []
        for folder in found:
            if folder.name not in kept:
                shutil.rmtree(folder, ignore_errors=True)


def _open_folder(folder: Path) -> None:
    """Create a directory that every user of the container can read.

    The private state directory above it keeps other users of the host out.
    """
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)


def _name(machine_id: str) -> str:
    return hashlib.sha256(machine_id.encode()).hexdigest()[:24]


# --- A private directory of files with a limit on their age, their number and their total size
# Each save removes expired files, and then the oldest files until the limits hold. A file that
# cannot be written is logged and not saved.


FILE_AGE_MAX_S = 24 * 3600.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one directory: total size, number of files, and age of a file."""

    bytes_max: int
    files_max: int
    age_max_s: float = FILE_AGE_MAX_S


class PrunedDirectory:
    """A directory of files that are named by tuples of strings.

    The strings may contain any character. The file name is their percent-encoding and ``suffix``.
    """

    def __init__(
        self, folder: Path, suffix: str, limits: Limits, unix_s: Callable[[], float]
    ) -> None:
        self._folder = folder
        self._suffix = suffix
        self._limits = limits
        self._unix_s = unix_s

    def save(self, name: tuple[str, ...], content: bytes) -> None:
        file = self._folder / (",".join(quote(part, safe="") for part in name) + self._suffix)
        try:
            ensure_private_directory(self._folder.parent)
            ensure_private_directory(self._folder)
            draft = file.with_suffix(".new")
            draft.write_bytes(content)
            draft.replace(file)
            self._prune()
        except OSError as error:
            _log.warning("cannot save %s: %s", file, error.strerror)

    def list_unexpired(self) -> list[tuple[tuple[str, ...], Path]]:
        """Return the name and path of each file that has not expired, oldest first."""
        files = self._files_by_age()
        return [(self._parse_name(file), file) for file in files if not self._is_expired(file)]

    def _parse_name(self, file: Path) -> tuple[str, ...]:
        parts = file.name.removesuffix(self._suffix).split(",")
        return tuple(unquote(part) for part in parts)

    def _files_by_age(self) -> list[Path]:
        found = self._folder.glob(f"*{self._suffix}") if self._folder.is_dir() else ()
        return sorted(found, key=lambda file: (file.stat().st_mtime, file.name))

    def _is_expired(self, file: Path) -> bool:
        return self._unix_s() - file.stat().st_mtime >= self._limits.age_max_s

    def _prune(self) -> None:
        files = self._files_by_age()
        size, count = sum(file.stat().st_size for file in files), len(files)
        for file in files:
            within_limits = size <= self._limits.bytes_max and count <= self._limits.files_max
            if within_limits and not self._is_expired(file):
                break
            size, count = size - file.stat().st_size, count - 1
            file.unlink(missing_ok=True)


# --- Logs and crash reports of removed instances, in files of the state directory


LOGS = Limits(bytes_max=64 * 1024 * 1024, files_max=10_000)
LOG_OWNERS = Limits(bytes_max=4 * 1024 * 1024, files_max=10_000)
READ_BYTES_MAX = 4 * 1024 * 1024  # for one request
CRASH_REPORTS = Limits(bytes_max=16 * 1024 * 1024, files_max=2000)
REPORTS_PER_MACHINE_MAX = 10  # so that a crash loop does not evict the reports of other machines


class LogFiles:
    """One file for each container, named after its machine and the container.

    The workload of each machine is in a file of its own, named after the machine.
    """

    def __init__(self, folder: Path, unix_s: Callable[[], float]) -> None:
        self._files = PrunedDirectory(folder, ".log", LOGS, unix_s)
        self._owners = PrunedDirectory(folder, ".owner", LOG_OWNERS, unix_s)
        self._lock = asyncio.Lock()  # only one thread at a time may use the directory

    async def save(self, machine_id: str, container: str, framed: bytes, owner: LogOwner) -> None:
        if framed:
            async with self._lock:
                await asyncio.to_thread(self._save, machine_id, container, framed, owner)

    async def load(self, server: str, workload_uid: str = "") -> list[tuple[str, str, bytes]]:
        async with self._lock:
            return await asyncio.to_thread(self._read, server, workload_uid)

    async def find(self, namespace: str, workload: str) -> list[WorkloadLog]:
        async with self._lock:
            return await asyncio.to_thread(self._find, namespace, workload)

    def _save(self, machine_id: str, container: str, framed: bytes, owner: LogOwner) -> None:
        if owner.uid:
            self._owners.save((machine_id,), encode(owner))
        self._files.save((machine_id, container), framed)

    def _read_owners(self) -> dict[str, tuple[LogOwner, Path]]:
        found = {}
        for name, file in self._owners.list_unexpired():
            try:
                found[name[0]] = (decode_as(file.read_bytes(), LogOwner), file)
            except (DecodeError, OSError):
                continue  # written by a later release, or removed meanwhile
        return found

    def _find(self, namespace: str, workload: str) -> list[WorkloadLog]:
        with_log = {name[0] for name, _ in self._files.list_unexpired()}
        found = []
        for machine_id, (owner, file) in self._read_owners().items():
            space, _, name = machine_id.rpartition("/")[0].partition("/")
            if machine_id in with_log and (space, owner.workload) == (namespace, workload):
                log = WorkloadLog(
                    instance=name,
                    workload_uid=owner.uid,
                    city=owner.city,
                    written_at=timestamp(file.stat().st_mtime),
                )
                found.append(log)
        return found

    def _read(self, server: str, workload_uid: str) -> list[tuple[str, str, bytes]]:
        """Return the newest files that fit into ``READ_BYTES_MAX``, oldest first."""
        found: list[tuple[str, str, bytes]] = []
        owners = self._read_owners() if workload_uid else {}
        bytes_left = READ_BYTES_MAX
        for name, file in reversed(self._files.list_unexpired()):
            if len(name) != 2 or name[0].rpartition("/")[0] != server:
                continue
            if name[0] in owners and not owners[name[0]][0].is_selected(workload_uid):
                continue
            content = file.read_bytes()
            bytes_left -= len(content)
            if bytes_left < 0:
                break
            found.append((name[0], name[1], content))
        return found[::-1]


class CrashReportFiles:
    """One file for each exit of a machine."""

    def __init__(self, folder: Path, unix_s: Callable[[], float]) -> None:
        self._files = PrunedDirectory(folder, ".json", CRASH_REPORTS, unix_s)

    def save(self, machine_id: str, report: CrashReport) -> None:
        self._files.save((machine_id, report.ended_at), encode(report))
        unexpired = self._files.list_unexpired()
        of_machine = [file for name, file in unexpired if name[0] == machine_id]
        for file in of_machine[:-REPORTS_PER_MACHINE_MAX]:
            file.unlink(missing_ok=True)

    def load(self, server: str) -> list[CrashReport]:
        found = []
        for name, file in self._files.list_unexpired():
            if name[0].rpartition("/")[0] != server:
                continue
            try:
                found.append(decode_as(file.read_bytes(), CrashReport))
            except (DecodeError, OSError):
                continue  # written by a later release, or removed meanwhile
        return found


# --- Detection of out-of-memory kills in the kernel log
# Engines report such kills, except podman 4 on cgroup v1. Reading the kernel log may require
# privileges.


_KERNEL_LOG = "/dev/kmsg"
_LINES_MAX = 100_000
_LINE_BYTES = 8192


def ran_out_of_memory(container_id: str) -> bool:
    """Return True if the kernel log reports an out-of-memory kill in the container."""
    needle = container_id.encode()
    try:
        log = os.open(_KERNEL_LOG, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        return any(b"oom-kill" in line and needle in line for line in _read_lines(log))
    finally:
        os.close(log)


def _read_lines(log: int) -> list[bytes]:
    """Return the lines in the kernel's buffer. Each read returns one line."""
    found: list[bytes] = []
    for _ in range(_LINES_MAX):
        try:
            found.append(os.read(log, _LINE_BYTES))
        except BlockingIOError:
            break
        except OSError:  # the kernel overwrote the line before it was read
            continue
    return found


# --- Selection of the container engine, and construction of the driver


# The default sockets. ``find_engine`` uses the first that responds.
DEFAULT_SOCKETS = ("/run/podman/podman.sock", "/run/docker.sock", "/var/run/docker.sock")
# An engine that is starting or busy may take many seconds. A missing socket fails at once.
VERSION_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True)
class FoundEngine:
    socket: str
    facts: EngineVersion


async def find_engine(
    sockets: Sequence[str], open_engine: Callable[[str], Engine] = Engine
) -> FoundEngine:
    """Query the sockets at the same time, and return the first engine in their order that responds.

    Raise StateError if none responds. The message lists the error of each socket and a remedy.
    """

    async def read_version(socket: str) -> EngineVersion | DriverError:
        engine = open_engine(socket)
        try:
            return await engine.read_version(VERSION_TIMEOUT_S)
        except DriverError as error:
            return error
        finally:
            await engine.aclose()

    failures = []
    async with asyncio.TaskGroup() as group:
        tasks = {socket: group.create_task(read_version(socket)) for socket in sockets}
        for socket, task in tasks.items():
            found = await task
            if isinstance(found, EngineVersion):
                for other in tasks.values():
                    other.cancel()
                return FoundEngine(socket, found)
            failures.append(f"{socket}: {found}")
    raise StateError(
        "no container engine responds (" + "; ".join(failures) + "). Start one: 'podman system "
        "service --time=0 unix:///run/podman/podman.sock' or the Docker daemon; name its socket "
        "with --engine; or use --driver simulated"
    )


def build_containers_driver(
    state: Path, cell: PlaneName, engine: Engine, environment: ProcessEnvironment
) -> ContainersDriver:
    name = member_name(cell)
    owner = ContainerOwner(platform_id(state, environment.new_uid), name)
    path = state / f"containers-{name}.json"
    records = _read_records(path)
    save = DebouncedFile(path, lambda: encode(to_json(records)))
    archive = LogFiles(state / "logs" / name, environment.unix_s)
    return ContainersDriver(
        ContainerOperations(engine, owner, VolumeDirectories(state / "data" / name), archive),
        owner,
        records,
        unix_s=environment.unix_s,
        elapsed_s=environment.elapsed_s,
        save=save,
        save_now=save.write_now,
        log_archive=archive,
        crash_reports=CrashReportFiles(state / "crashes" / name, environment.unix_s),
        ran_out_of_memory=ran_out_of_memory,
        kill_process=signal_process,
    )


def platform_id(state: Path, new_uid: Callable[[], str]) -> str:
    """Return the id that labels the containers of this platform.

    The id is created at the first start and stored in the state directory.
    """
    path = state / "platform.json"
    try:
        return decode_as(path.read_bytes(), dict[str, str])["id"]
    except FileNotFoundError:
        new_id = new_uid().replace("-", "")[:16]
        write_private(path, encode({"id": new_id}))
        return new_id
    except (DecodeError, KeyError) as error:
        raise StateError(
            f"{path} is damaged ({error}). It identifies the containers of this platform: restore "
            "it from a copy, or remove the containers labelled compute.datumapis.com/platform "
            "and the file"
        ) from error


def _read_records(path: Path) -> dict[str, MachineRecord]:
    """Return the machine records of the last run. An unreadable file only resets restart counts."""
    try:
        return decode_as(path.read_bytes(), dict[str, MachineRecord])
    except (OSError, DecodeError):
        return {}
