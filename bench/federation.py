"""The federation: latency from a Workload to its instances and back, and the cost of many cells.

All planes are in one process with one durable store, all controllers run, and machines start
immediately. What depends on several cores is measured again with one process for each cell
(``federation_processes.py``). Latencies are compared with a bare client that makes as many durable
writes, one after the other, as one Workload causes. The hub alone is compared with a Karmada
(``propagation.py``).

    python -m bench federation           # the size of the goals (minutes)
    python -m bench.federation quick     # a tenth of it
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from bench import federation_processes, propagation
from bench.federation_world import PROJECT, World, new_world
from bench.measurement import Measurement, keep, p50_ms, p99_ms, table
from bench.processes import end_on_sigterm
from bench.project_user import SPACE
from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import Condition, find_condition
from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, INSTANCE, WORKLOAD
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import cell_plane
from datum_compute.app.process import run_loop
from datum_compute.client.client import Client
from datum_compute.client.transport.faults import Fault
from datum_compute.store.journal import MemoryJournal
from datum_compute.store.sqlite import SqliteJournal
from testkit.sim.loop import NEVER, VirtualLoop, run_virtual

SETTLED_S = 20.0
PROBE = "Bench"  # a condition that only this file writes


@dataclass(frozen=True, slots=True)
class Size:
    idle: int = 150  # workloads, one after the other
    burst_s: int = 10  # of a hundred instances a second
    cells: int = 50
    workloads: int = 500
    replicas: int = 20
    idle_deployments: int = 1_000
    partitioned: int = 1_000  # instances of the cell that is cut off
    partition_s: float = 3600.0


FULL = Size()
QUICK = Size(
    idle=110, burst_s=3, cells=10, workloads=50, replicas=20, idle_deployments=100, partitioned=100
)


def measure(size: Size = FULL) -> list[Measurement]:
    return [
        *run_loop(_measure_latencies(size)),
        *run_loop(federation_processes.latencies(size.idle, size.burst_s)),
        *run_loop(_measure_cold_start(size)),
        *run_loop(federation_processes.cold_start(size.cells, size.workloads, size.replicas)),
        *run_loop(_measure_idle_deployments(size)),
        *_measure_partition(size),
        *propagation.measure(size.idle),
    ]


def _journal(folder: str) -> SqliteJournal:
    return SqliteJournal(Path(folder) / "bench.db")


# --- latencies, with four cells


async def _measure_latencies(size: Size) -> list[Measurement]:
    with TemporaryDirectory() as state:
        async with new_world(_journal(state), 4) as world:
            before = world.writes
            idle = await world.project_user.create_one_by_one(world.cells, size.idle)
            await world.wait_until_quiet()
            writes = (world.writes - before) / size.idle
            bare = await _time_bare_writes(world, round(writes), 110)
            latencies = await _status_latencies(world, size.idle)
            busy = await world.project_user.create_burst(world.cells, size.burst_s)
    floor = f"{writes:.0f} writes of a bare client, p99"
    return [
        Measurement("writes from a workload to its instance", writes, ""),
        Measurement(floor, p99_ms(bare), "ms"),
        Measurement("created to ready in the project, p50", p50_ms(idle), "ms"),
        Measurement("created to ready in the project, p99", p99_ms(idle), "ms", floor, at_most=250),
        Measurement("the same at 100 instances/s, p99", p99_ms(busy), "ms", at_most=1_000),
        Measurement("status of the cell to the project, p50", p50_ms(latencies), "ms"),
        Measurement("status of the cell to the project, p99", p99_ms(latencies), "ms", at_most=150),
    ]


async def _time_bare_writes(world: World, writes: int, times: int) -> list[float]:
    taken = []
    client = world.client(PROJECT)
    for number in range(times):
        began_s = time.perf_counter()
        for step in range(writes):
            metadata = ObjectMeta(name=f"bare-{number}-{step}", namespace=SPACE)
            await client.create(CONFIG_MAP, ConfigMap(metadata=metadata, data={"a": "b" * 1500}))
        taken.append(time.perf_counter() - began_s)
    return taken


async def _status_latencies(world: World, times: int) -> list[float]:
    """Return the times from writing a condition on the cell until the project shows it."""
    cell = world.client(cell_plane(world.cells[0]))
    instance = (await cell.list(INSTANCE)).items[0]
    shown: asyncio.Queue[str] = asyncio.Queue()

    def note(found: Instance) -> None:
        condition = find_condition(found.status.conditions, PROBE)
        if condition is not None and found.metadata.name == instance.metadata.name:
            shown.put_nowait(condition.reason)

    world.project_user.on_instance = note
    taken = []
    for number in range(times):
        reason = f"Step{number}"
        began_s = time.perf_counter()
        await _write_condition(cell, ref_of(instance), reason)
        while await shown.get() != reason:
            pass
        taken.append(time.perf_counter() - began_s)
        await asyncio.sleep(0.02)
    world.project_user.on_instance = None
    return taken


async def _write_condition(cell: Client, ref: Ref, reason: str) -> None:
    found = await cell.get(INSTANCE, ref)
    kept = [c for c in found.status.conditions if c.type != PROBE]
    condition = Condition(
        type=PROBE, status="True", reason=reason, last_transition_time=timestamp(time.time())
    )
    version, conditions = found.metadata.resource_version, to_json([*kept, condition])
    await cell.patch_status(INSTANCE, ref, {"conditions": conditions}, version=version)


# --- many cells


async def _measure_cold_start(size: Size) -> list[Measurement]:
    """Create all Workloads at once on new planes, then measure the settled platform."""
    with TemporaryDirectory() as state:
        async with new_world(_journal(state), size.cells) as world:
            cpu_s, writes = time.process_time(), world.writes
            settled_s, shown_s = await world.project_user.create_all(
                world.cells, size.workloads, size.replicas
            )
            cpu_s = time.process_time() - cpu_s
            made = world.writes - writes
            await world.wait_until_quiet()
            bare = sum(await _time_bare_writes(world, made // 20, 1)) * 20
            await world.wait_until_quiet()
            written, busy = await _measure_settled(world)
    instances = size.workloads * size.replicas
    prefix = f"{size.cells} cells, {size.workloads} workloads, {instances} instances"
    floor = f"{made} writes of a bare client"
    return [
        Measurement(floor, bare, "s"),
        Measurement(f"{prefix}: settled on one core", settled_s, "s", floor),
        Measurement("and every instance is shown in the project", shown_s, "s"),
        Measurement("processor time until then", cpu_s, "cpu s"),
        Measurement("writes for each instance", made / instances, ""),
        Measurement("settled: writes", written, "", at_most=0),
        Measurement("settled: processor", busy, "%", at_most=5),
    ]


async def _measure_settled(world: World) -> tuple[int, float]:
    """Return writes and CPU usage in percent while nothing changes."""
    busy_s, written = time.process_time(), world.writes
    await asyncio.sleep(SETTLED_S)
    return world.writes - written, (time.process_time() - busy_s) / SETTLED_S * 100


async def _measure_idle_deployments(size: Size) -> list[Measurement]:
    """Create deployments of one instance each, and measure while no user sends requests."""
    with TemporaryDirectory() as state:
        async with new_world(_journal(state), 4) as world:
            names = [f"w{number}" for number in range(size.idle_deployments)]
            for number, name in enumerate(names):
                await world.project_user.create(name, world.cells[number % 4], 1)
            await world.project_user.wait_until_rolled_out(names)
            await world.wait_until_quiet()
            written, busy = await _measure_settled(world)
    prefix = f"{size.idle_deployments} idle deployments"
    return [
        Measurement(f"{prefix}: writes", written, "", at_most=0),
        Measurement(f"{prefix}: processor", busy, "%", at_most=5),
    ]


def _measure_partition(size: Size) -> list[Measurement]:
    """Cut a cell off for an hour of virtual time, change all its workloads, and reconnect it.

    Work takes no virtual time, so the time to settle is the time that controllers wait, which is
    virtual, and the processor time.
    """
    waited_s, cpu_s = run_virtual(
        Random(1), lambda loop: _settle_after_partition(size, loop), shuffled_s=NEVER
    )
    name = f"a cell with {size.partitioned} instances is back: settled"
    return [
        Measurement(name, waited_s + cpu_s, "s", at_most=60),
        Measurement("of that processor time, after the cut", cpu_s, "cpu s"),
    ]


async def _settle_after_partition(size: Size, loop: VirtualLoop) -> tuple[float, float]:
    """Return virtual seconds and processor seconds from the reconnection until all is settled."""
    start_s = time.time()
    async with new_world(MemoryJournal(), 2, lambda: start_s + loop.time()) as world:
        replicas = min(size.partitioned, 100)
        names = [f"w{number}" for number in range(size.partitioned // replicas)]
        for name in names:
            await world.project_user.create(name, world.cells[0], replicas)
        await world.project_user.wait_until_rolled_out(names)
        # The cell is unreachable on purpose, so warnings about it are not shown.
        logging.getLogger("datum_compute").setLevel(logging.ERROR)
        world.faults[cell_plane(world.cells[0])] = Fault(kind="cut")
        container = {"name": "app", "image": "web:2"}
        template = {"spec": {"runtime": {"sandbox": {"containers": [container]}}}}
        for name in names:
            spec = {"spec": {"template": template}}
            await world.client(PROJECT).patch(WORKLOAD, Ref(SPACE, name), spec)
        await asyncio.sleep(size.partition_s)
        world.faults.clear()
        began_s, cpu_s = loop.time(), time.process_time()
        await world.project_user.wait_until_rolled_out(names)
        return loop.time() - began_s, time.process_time() - cpu_s


if __name__ == "__main__":
    end_on_sigterm()
    found = measure(QUICK if sys.argv[1:] == ["quick"] else FULL)
    print(f"{table(found)}\n  -> {keep('federation', found)}")
