"""The containers driver of this host: which engine, whose containers, and what is kept in files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from datum_compute.api.meta.codec import DecodeError, decode_as, encode, plain
from datum_compute.api.planes import PlaneName, member_name
from datum_compute.app.datafolders import HostFolders
from datum_compute.app.debounced_file import Paced
from datum_compute.app.environment import Ports
from datum_compute.app.kernellog import ran_out_of_memory
from datum_compute.app.logarchive import CrashReportFiles, LogFiles
from datum_compute.app.processes import hang_up
from datum_compute.app.state_directory import StateError, write_private
from datum_compute.drivers.containers.container_spec import ContainerOwner
from datum_compute.drivers.containers.driver import ContainersDriver
from datum_compute.drivers.containers.engine import Engine, EngineVersion
from datum_compute.drivers.containers.machine import MachineRecord
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.driver import DriverError

# Where engines listen if nobody says otherwise; the first that answers is taken.
SOCKETS = ("/run/podman/podman.sock", "/run/docker.sock", "/var/run/docker.sock")
ANSWER_S = 10.0  # one that is starting, or busy, takes seconds


@dataclass(frozen=True, slots=True)
class FoundEngine:
    socket: str
    facts: EngineVersion


async def find_engine(sockets: Sequence[str]) -> FoundEngine:
    """The first that answers; StateError says what was tried and what to do."""
    tried = []
    for socket in sockets:
        engine = Engine(socket)
        try:
            return FoundEngine(socket, await engine.read_version(ANSWER_S))
        except DriverError as error:
            tried.append(f"{socket}: {error}")
        finally:
            await engine.aclose()
    raise StateError(
        "no container engine answers (" + "; ".join(tried) + "). Start one: 'podman system "
        "service --time=0 unix:///run/podman/podman.sock' or the Docker daemon; name its socket "
        "with --engine; or use --driver simulated"
    )


def containers_driver(
    state: Path, cell: PlaneName, engine: Engine, ports: Ports
) -> ContainersDriver:
    name = member_name(cell)
    owner = ContainerOwner(platform_id(state, ports.new_uid), name)
    path = state / f"containers-{name}.json"
    records = _read_records(path)
    save = Paced(path, lambda: encode(plain(records)))
    archive = LogFiles(state / "logs" / name, ports.unix_s)
    return ContainersDriver(
        ContainerOperations(engine, owner, HostFolders(state / "data" / name), archive),
        owner,
        records,
        unix_s=ports.unix_s,
        elapsed_s=ports.elapsed_s,
        save=save,
        save_now=save.now,
        log_archive=archive,
        crash_reports=CrashReportFiles(state / "crashes" / name, ports.unix_s),
        ran_out_of_memory=ran_out_of_memory,
        kill_process=hang_up,
    )


def platform_id(state: Path, new_uid: Callable[[], str]) -> str:
    """By which the engine's containers are told to be ours; made once for a state directory."""
    path = state / "platform.json"
    try:
        return decode_as(path.read_bytes(), dict[str, str])["id"]
    except FileNotFoundError:
        made = new_uid().replace("-", "")[:16]
        write_private(path, encode({"id": made}))
        return made
    except (DecodeError, KeyError) as error:
        raise StateError(
            f"{path} is damaged ({error}). It says which containers of the engine are ours: put "
            "it back from a copy, or remove the containers labelled compute.datumapis.com/platform "
            "and the file"
        ) from error


def _read_records(path: Path) -> dict[str, MachineRecord]:
    """Only counts: without them machines run on."""
    try:
        return decode_as(path.read_bytes(), dict[str, MachineRecord])
    except (OSError, DecodeError):
        return {}
