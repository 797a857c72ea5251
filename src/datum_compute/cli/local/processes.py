"""``local up --processes``: one process for the hub and one for each cell, on this machine.

They are the processes of an installation on several machines (``compute-server``,
``compute-cell``), and a cell joins in the same way: once, with a token. The state directory of a
cell is ``cells/NAME`` in the state directory of the platform. A repeated start only starts the
processes that do not run; cells that have joined need no token. A cell that has left the platform
is not started until ``--cells`` names it; then it joins again.
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
from datum_compute.app.state_directory import StateError, read_last_cells
from datum_compute.cli.environment import CliEnvironment
from datum_compute.cli.errors import OtherError, TimedOutError, UsageError
from datum_compute.cli.local.options import UpOptions
from datum_compute.cli.local.platform import (
    LocalProcess,
    find_running,
    prepare_state_dir,
    server_command,
    start_detached,
    stop,
)
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client

DEFAULT_CELLS = ("dfw", "iad", "lhr", "syd")
TOKEN_S = 300
READY_S = 60.0
# Processes that start at the same time slow each other down, and each has a deadline.
STARTS_MAX = 4


def has_processes(state_dir: Path) -> bool:
    """Whether the platform was started with a process for each cell."""
    return (state_dir / CELLS_DIRECTORY).is_dir()


def should_use_processes(environment: CliEnvironment, state_dir: Path, flag: bool | None) -> bool:
    """Return whether each cell gets a process; without a flag, as at the previous start.

    A platform cannot change between the two layouts.
    """
    current, has_inside = has_processes(state_dir), bool(read_last_cells(state_dir))
    if flag is None:
        return current
    if flag != current and (current or has_inside):
        layout = "a process for each cell" if current else "all cells in one process"
        raise UsageError(
            f"The platform in {state_dir} was created with {layout}.",
            f"Delete it: {environment.command('local', 'reset')}, or choose another --state-dir.",
        )
    return flag


def cell_directories(state_dir: Path) -> list[Path]:
    return sorted(path for path in (state_dir / CELLS_DIRECTORY).glob("*") if path.is_dir())


@dataclass(frozen=True, slots=True)
class Started:
    """``left`` are the cells that were not started because they have left the platform."""

    running: LocalProcess
    left: tuple[str, ...] = ()


async def start_processes(
    environment: CliEnvironment, state_dir: Path, options: UpOptions
) -> Started:
    """Start the processes that do not run, and wait until every cell is Ready on the hub.

    The driver and the engine apply to the cells.
    """
    running = find_running(state_dir)
    if running is None:
        command = server_command(state_dir, port=options.port, driver="simulated")
        running = await start_detached([*command, "--no-cells-inside"], state_dir)
    connection = connection_of(load_kubeconfig([state_dir / "kubeconfig"]), HUB)
    async with environment.open_transport(connection) as transport:
        hub = build_client(connection, transport)
        members = [cluster.metadata.name for cluster in (await hub.list(CLUSTER)).items]
        left = cells_that_left(state_dir, members)
        names = options.cell_names or _default_cells(state_dir, left)
        turns = asyncio.Semaphore(STARTS_MAX)

        async def ensure_cell(name: str) -> None:
            """Join and start without delay: the registered port is not reserved until the start."""
            directory = cell_directory(state_dir, name)
            async with turns:
                if name in left or not _has_joined(directory):
                    await _join(environment, hub, connection, state_dir, name)
                await _ensure_running(directory, options)

        await asyncio.gather(*map(ensure_cell, names))
        merge_cells(state_dir)
        for name in names:
            await _wait_for(hub, name)
    return Started(running, tuple(name for name in left if name not in names))


def _default_cells(state_dir: Path, left: Sequence[str]) -> list[str]:
    """Return the cells of the previous start without those that left; else the default cells."""
    known = [path.name for path in cell_directories(state_dir)]
    return [name for name in known if name not in left] if known else list(DEFAULT_CELLS)


def cells_that_left(state_dir: Path, members: Sequence[str]) -> list[str]:
    """Return the cells that joined once and are no longer members of the hub."""
    joined = [path.name for path in cell_directories(state_dir) if _has_joined(path)]
    return [name for name in joined if name not in members]


def _has_joined(directory: Path) -> bool:
    try:
        return MembershipFiles(directory).read() is not None
    except StateError as error:
        raise OtherError(f"{error}.") from error


def cell_directory(state_dir: Path, name: str) -> Path:
    return state_dir / CELLS_DIRECTORY / name


def cell_command(directory: Path, options: UpOptions) -> list[str]:
    start = [sys.executable, "-P", "-m", "datum_compute.app.cell_server"]
    engine = ["--engine", options.engine] if options.engine else []
    return [*start, "--state-dir", str(directory), "--driver", options.driver, *engine]


async def stop_cells(state_dir: Path) -> list[LocalProcess]:
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


async def _ensure_running(directory: Path, options: UpOptions) -> None:
    if find_running(directory) is None:
        await start_detached(cell_command(directory, options), directory)


def _is_ready_or_leaving(cluster: Cluster | None) -> bool:
    """A cell that leaves, or has left in the meantime, does not become Ready."""
    if cluster is None or cluster.is_terminating:
        return True
    return is_true(cluster.status.conditions, "Ready")


async def _wait_for(hub: Client, name: str) -> None:
    try:
        await hub.wait(CLUSTER, Ref("", name), _is_ready_or_leaving, timeout_s=READY_S)
    except TimeoutError:
        raise TimedOutError(f"Cell {name} is not ready after {READY_S:.0f} s.") from None
