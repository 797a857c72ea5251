"""``local up --processes``: the hub's process, and one for every cell, on this machine.

They are the processes of a set-up on several machines (``compute-server``, ``compute-cell``), and
the cells join as there: with a token, once. The state directory of a cell lies in ``cells/NAME`` of
the platform's. Started again, whatever is missing is started; a cell that has joined needs no
token. One that has left stays away until it is named again: then it joins anew.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from datum_compute.api.conditions import is_true
from datum_compute.api.karmada import Cluster
from datum_compute.api.kinds import CLUSTER, JOIN_TOKEN
from datum_compute.api.membership import JoinToken, JoinTokenSpec
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import HUB
from datum_compute.app.cell_membership import Joining, MembershipFiles, join
from datum_compute.app.state_credentials import CELLS_DIRECTORY, merge_cells, new_join_token
from datum_compute.app.state_directory import StateError, remembered_cells
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import OtherError, TimedOutError, UsageError
from datum_compute.cli.local.options import UpOptions
from datum_compute.cli.local.platform import (
    Running,
    find_running,
    prepare_state_dir,
    server_command,
    start_detached,
    stop,
)
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client

USUAL = ("dfw", "iad", "lhr", "syd")
TOKEN_S = 300
READY_S = 60.0
# Processes that start at the same time slow each other down, and each has so long to be ready.
AT_ONCE = 4


def has_processes(state_dir: Path) -> bool:
    """Whether the platform was started with a process for each cell."""
    return (state_dir / CELLS_DIRECTORY).is_dir()


def wants_processes(state_dir: Path, wish: bool | None) -> bool:
    """As told, else as last time; what a platform was begun as it stays."""
    begun, has_inside = has_processes(state_dir), bool(remembered_cells(state_dir))
    if wish is None:
        return begun
    if wish != begun and (begun or has_inside):
        how = "processes of their own" if begun else "its one process"
        raise UsageError(
            f"The platform in {state_dir} has its cells in {how}.",
            "Choose another --state-dir, or begin anew: local reset.",
        )
    return wish


def cell_directories(state_dir: Path) -> list[Path]:
    return sorted(path for path in (state_dir / CELLS_DIRECTORY).glob("*") if path.is_dir())


@dataclass(frozen=True, slots=True)
class Started:
    """``left`` are cells that have left the platform, and were not started."""

    running: Running
    left: tuple[str, ...] = ()


async def start_processes(
    environment: CliEnvironment, state_dir: Path, wishes: UpOptions
) -> Started:
    """Start what does not run, and wait until the hub has heard of every cell. The driver and its
    engine are for the cells."""
    running = find_running(state_dir)
    if running is None:
        command = server_command(state_dir, port=wishes.port, driver="simulated")
        running = await start_detached([*command, "--no-cells-inside"], state_dir)
    connection = connection_of(load_kubeconfig([state_dir / "kubeconfig"]), HUB)
    async with environment.open_transport(connection) as transport:
        hub = build_client(connection, transport)
        members = [cluster.metadata.name for cluster in (await hub.list(CLUSTER)).items]
        left = cells_that_left(state_dir, members)
        names = wishes.cell_names or _usual_cells(state_dir, left)
        turns = asyncio.Semaphore(AT_ONCE)

        async def ensure_cell(name: str) -> None:
            """Joined and started in one go: the port it told the hub is nobody's until then."""
            directory = cell_directory(state_dir, name)
            async with turns:
                if name in left or not _has_joined(directory):
                    await _join(environment, hub, connection, state_dir, name)
                await _ensure_running(directory, wishes)

        await asyncio.gather(*map(ensure_cell, names))
        merge_cells(state_dir)
        for name in names:
            await _wait_for(hub, name)
    return Started(running, tuple(name for name in left if name not in names))


def _usual_cells(state_dir: Path, left: Sequence[str]) -> list[str]:
    """The ones there were, but for those that have left; at first the usual ones."""
    known = [path.name for path in cell_directories(state_dir)]
    return [name for name in known if name not in left] if known else list(USUAL)


def cells_that_left(state_dir: Path, members: Sequence[str]) -> list[str]:
    """Those that have joined once, and are no members of the hub any more."""
    joined = [path.name for path in cell_directories(state_dir) if _has_joined(path)]
    return [name for name in joined if name not in members]


def _has_joined(directory: Path) -> bool:
    try:
        return MembershipFiles(directory).read() is not None
    except StateError as error:
        raise OtherError(f"{error}.") from error


def cell_directory(state_dir: Path, name: str) -> Path:
    return state_dir / CELLS_DIRECTORY / name


def cell_command(directory: Path, wishes: UpOptions) -> list[str]:
    start = [sys.executable, "-P", "-m", "datum_compute.app.cell_server"]
    engine = ["--engine", wishes.engine] if wishes.engine else []
    return [*start, "--state-dir", str(directory), "--driver", wishes.driver, *engine]


async def stop_cells(state_dir: Path) -> list[Running]:
    stopped = await asyncio.gather(*map(stop, cell_directories(state_dir)))
    return [running for running in stopped if running is not None]


async def _join(
    environment: CliEnvironment, hub: Client, connection: Connection, state_dir: Path, name: str
) -> None:
    directory = cell_directory(state_dir, name)
    prepare_state_dir(directory)
    now = environment.now()
    made, expires = new_join_token(), timestamp(now + TOKEN_S)
    spec = JoinTokenSpec(token_hash=made.token_hash, expires_at=expires, cell=name)
    await hub.create(JOIN_TOKEN, JoinToken(metadata=ObjectMeta(name=made.name), spec=spec))
    joining = Joining(
        directory, name, name, connection.server, made.text, authority=connection.ca_pem
    )
    await join(joining, environment.open_transport, datetime.fromtimestamp(now, UTC))


async def _ensure_running(directory: Path, wishes: UpOptions) -> None:
    if find_running(directory) is None:
        await start_detached(cell_command(directory, wishes), directory)


def _is_heard_or_leaving(cluster: Cluster | None) -> bool:
    """One that leaves, or has left meanwhile, is not waited for."""
    if cluster is None or cluster.is_terminating:
        return True
    return is_true(cluster.status.conditions, "Ready")


async def _wait_for(hub: Client, name: str) -> None:
    try:
        await hub.wait(CLUSTER, Ref("", name), _is_heard_or_leaving, timeout_s=READY_S)
    except TimeoutError:
        raise TimedOutError(f"Cell {name} does not answer the hub after {READY_S:.0f} s.") from None
