"""The federation as ``local up --processes`` starts it: one process for the hub, one for each cell.

They communicate over TLS, and each has a separate durable store. Unlike one process, they use all
cores.

    python -m bench.federation_processes           # the size of the goals
    python -m bench.federation_processes quick     # ten cells
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measurement import Measurement, keep, p50_ms, p99_ms, table
from bench.processes import end_on_sigterm
from bench.project_user import ProjectUser
from datum_compute.api.kinds import GRANT
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.planes import project_plane
from datum_compute.app.environment import process_environment
from datum_compute.app.manager_connections import transport_opener
from datum_compute.cli.local.platform import find_running
from datum_compute.cli.local.processes import cell_directories
from datum_compute.client.auth.kubeconfig import build_client, connection_of, load_kubeconfig
from datum_compute.client.client import Client

SETTLED_S = 5.0
_HOW = "in processes"
_PROJECT = project_plane("default")
_PLENTY = 10**12
_TICKS = os.sysconf("SC_CLK_TCK")


async def latencies(idle: int, burst_s: int) -> list[Measurement]:
    """With four cells."""
    with TemporaryDirectory() as directory:
        async with started(Path(directory) / "state", 4) as running:
            await asyncio.sleep(SETTLED_S)
            alone = await running.project_user.create_one_by_one(running.cells, idle)
            busy = await running.project_user.create_burst(running.cells, burst_s)
    prefix = f"{_HOW}, created to ready in the project"
    return [
        Measurement(f"{prefix}, p50", p50_ms(alone), "ms"),
        Measurement(f"{prefix}, p99", p99_ms(alone), "ms", at_most=250),
        Measurement(f"{prefix}, at 100 instances/s, p99", p99_ms(busy), "ms", at_most=1_000),
    ]


async def cold_start(cells: int, workloads: int, replicas: int) -> list[Measurement]:
    """Everything is asked for at once of planes that have just come up."""
    with TemporaryDirectory() as directory:
        async with started(Path(directory) / "state", cells) as running:
            await asyncio.sleep(SETTLED_S)
            before = running.cpu_s()
            settled_s, shown_s = await running.project_user.create_all(
                running.cells, workloads, replicas
            )
            hub_s, cells_s = (b - a for a, b in zip(before, running.cpu_s(), strict=True))
    instances, cores = workloads * replicas, len(os.sched_getaffinity(0))
    prefix = f"{_HOW}, {cells} cells, {workloads} workloads, {instances} instances"
    return [
        Measurement(f"{prefix}: settled on {cores} cores", settled_s, "s", at_most=90),
        Measurement(f"{_HOW}, every instance is shown in the project", shown_s, "s"),
        Measurement(f"{_HOW}, processor time of the hub's process", hub_s, "cpu s"),
        Measurement(f"{_HOW}, processor time of those of the cells", cells_s, "cpu s"),
    ]


@dataclass(frozen=True, slots=True)
class Started:
    """``hub`` is the number of its process, ``others`` those of the cells."""

    cells: tuple[str, ...]
    project_user: ProjectUser
    hub: int
    others: tuple[int, ...]

    def cpu_s(self) -> tuple[float, float]:
        """Of the hub's process, and of those of the cells together."""
        return _cpu_s(self.hub), sum(map(_cpu_s, self.others))


@asynccontextmanager
async def started(state: Path, cells: int) -> AsyncIterator[Started]:
    names = tuple(f"c{number}" for number in range(cells))
    flags = ("--processes", "--detach", "--driver=simulated", f"--cells={','.join(names)}")
    try:
        _local(state, "up", *flags)
        pids = [_pid(directory) for directory in (state, *cell_directories(state))]
        async with _client(state, "operator/default") as operator:
            await _raise_quota(operator)
        async with _client(state, _PROJECT) as project:
            project_user = ProjectUser(project)
            watching = asyncio.create_task(project_user.watch())
            try:
                yield Started(names, project_user, pids[0], tuple(pids[1:]))
            finally:
                watching.cancel()
                await asyncio.wait([watching])
    finally:
        _local(state, "down")


@asynccontextmanager
async def _client(state: Path, context: str) -> AsyncIterator[Client]:
    connection = connection_of(load_kubeconfig([state / "kubeconfig"]), context)
    async with transport_opener(process_environment())(connection) as transport:
        yield build_client(connection, transport)


async def _raise_quota(operator: Client) -> None:
    for grant in (await operator.list(GRANT)).items:
        allowances = to_json(grant.spec)["allowances"]
        for allowance in allowances:
            allowance["buckets"] = [{"amount": _PLENTY}]
        await operator.patch(GRANT, ref_of(grant), {"spec": {"allowances": allowances}})


def _local(state: Path, verb: str, *flags: str) -> None:
    command = [sys.executable, "-m", "datum_compute", "local", verb, "--state-dir", str(state)]
    subprocess.run([*command, *flags], check=True, stdout=subprocess.DEVNULL)


def _pid(directory: Path) -> int:
    running = find_running(directory)
    assert running is not None, f"nothing runs in {directory}"
    return running.pid


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


if __name__ == "__main__":
    end_on_sigterm()
    quick = sys.argv[1:] == ["quick"]
    found = asyncio.run(latencies(50 if quick else 150, 3 if quick else 10))
    found += asyncio.run(cold_start(*((10, 50, 20) if quick else (50, 500, 20))))
    print(f"{table(found)}\n  -> {keep('federation_processes', found)}")
