"""The federation: how long a Workload takes to its cities and back, and what many cells cost.

All planes in one process over one durable store, every controller at work, machines that boot at
once; then, where more than one core matters, the same with each cell in a process of its own
(``federation_processes.py``). Beside the latencies stands the floor of the same run: a bare client
that makes as many durable writes one after the other as one Workload takes on its way.

    python -m bench federation           # as large as the goals say (minutes)
    python -m bench.federation quick     # a tenth of it
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import federation_processes
from bench.ending import end_on_sigterm
from bench.federation_world import PROJECT, World, new_world
from bench.leaping import LeapingClock
from bench.measurement import Measurement, keep, p50_ms, p99_ms, table
from bench.onlooker import SPACE
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

SETTLED_S = 20.0
PROBE = "Bench"  # a condition that nobody but this file writes


@dataclass(frozen=True, slots=True)
class Size:
    idle: int = 150  # workloads, one after the other
    burst_s: int = 10  # of a hundred instances a second
    cells: int = 50
    workloads: int = 500
    replicas: int = 20
    untouched: int = 1_000  # deployments
    away: int = 1_000  # instances of the cell that is cut off
    away_s: float = 3600.0


FULL = Size()
QUICK = Size(idle=110, burst_s=3, cells=10, workloads=50, replicas=20, untouched=100, away=100)


def measure(size: Size = FULL) -> list[Measurement]:
    return [
        *run_loop(_latencies(size)),
        *run_loop(federation_processes.latencies(size.idle, size.burst_s)),
        *run_loop(_cold_start(size)),
        *run_loop(federation_processes.cold_start(size.cells, size.workloads, size.replicas)),
        *run_loop(_untouched(size)),
        *_partition(size),
    ]


# --- latencies, with four cells


async def _latencies(size: Size) -> list[Measurement]:
    with TemporaryDirectory() as state:
        async with new_world(Path(state), 4) as world:
            before = world.writes
            idle = await world.onlooker.one_after_the_other(world.cells, size.idle)
            await world.quiet()
            writes = (world.writes - before) / size.idle
            bare = await _bare(world, round(writes), 110)
            status = await _status(world, size.idle)
            busy = await world.onlooker.burst(world.cells, size.burst_s)
    floor = f"{writes:.0f} writes of a bare client, p99"
    return [
        Measurement("writes from a workload to its instance", writes, ""),
        Measurement(floor, p99_ms(bare), "ms"),
        Measurement("created to ready in the project, p50", p50_ms(idle), "ms"),
        Measurement("created to ready in the project, p99", p99_ms(idle), "ms", floor, at_most=250),
        Measurement("the same at 100 instances/s, p99", p99_ms(busy), "ms", at_most=1_000),
        Measurement("status of the cell to the project, p50", p50_ms(status), "ms"),
        Measurement("status of the cell to the project, p99", p99_ms(status), "ms", at_most=150),
    ]


async def _bare(world: World, writes: int, times: int) -> list[float]:
    taken = []
    client = world.client(PROJECT)
    for number in range(times):
        began_s = time.perf_counter()
        for step in range(writes):
            metadata = ObjectMeta(name=f"bare-{number}-{step}", namespace=SPACE)
            await client.create(CONFIG_MAP, ConfigMap(metadata=metadata, data={"a": "b" * 1500}))
        taken.append(time.perf_counter() - began_s)
    return taken


async def _status(world: World, times: int) -> list[float]:
    """A condition that is written on the cell, until the project shows it."""
    cell = world.client(cell_plane(world.cells[0]))
    instance = (await cell.list(INSTANCE)).items[0]
    shown: asyncio.Queue[str] = asyncio.Queue()

    def note(found: Instance) -> None:
        told = find_condition(found.status.conditions, PROBE)
        if told is not None and found.metadata.name == instance.metadata.name:
            shown.put_nowait(told.reason)

    world.onlooker.on_instance = note
    taken = []
    for number in range(times):
        reason = f"Step{number}"
        began_s = time.perf_counter()
        await _say(cell, ref_of(instance), reason)
        while await shown.get() != reason:
            pass
        taken.append(time.perf_counter() - began_s)
        await asyncio.sleep(0.02)
    world.onlooker.on_instance = None
    return taken


async def _say(cell: Client, ref: Ref, reason: str) -> None:
    found = await cell.get(INSTANCE, ref)
    kept = [c for c in found.status.conditions if c.type != PROBE]
    said = Condition(
        type=PROBE, status="True", reason=reason, last_transition_time=timestamp(time.time())
    )
    version, conditions = found.metadata.resource_version, to_json([*kept, said])
    await cell.patch_status(INSTANCE, ref, {"conditions": conditions}, version=version)


# --- many cells


async def _cold_start(size: Size) -> list[Measurement]:
    """Everything is asked for at once of planes that have just come up; then nothing happens."""
    with TemporaryDirectory() as state:
        async with new_world(Path(state), size.cells) as world:
            cpu_s, writes = time.process_time(), world.writes
            settled_s, shown_s = await world.onlooker.all_at_once(
                world.cells, size.workloads, size.replicas
            )
            cpu_s = time.process_time() - cpu_s
            made = world.writes - writes
            await world.quiet()
            bare = sum(await _bare(world, made // 20, 1)) * 20
            await world.quiet()
            written, busy = await _settled(world)
    instances = size.workloads * size.replicas
    told = f"{size.cells} cells, {size.workloads} workloads, {instances} instances"
    floor = f"{made} writes of a bare client"
    return [
        Measurement(floor, bare, "s"),
        Measurement(f"{told}: settled on one core", settled_s, "s", floor),
        Measurement("and every instance is shown in the project", shown_s, "s"),
        Measurement("processor time until then", cpu_s, "cpu s"),
        Measurement("writes for each instance", made / instances, ""),
        Measurement("settled: writes", written, "", at_most=0),
        Measurement("settled: processor", busy, "%", at_most=5),
    ]


async def _settled(world: World) -> tuple[int, float]:
    """Writes and share of a processor, in percent, while nothing happens."""
    busy_s, written = time.process_time(), world.writes
    await asyncio.sleep(SETTLED_S)
    return world.writes - written, (time.process_time() - busy_s) / SETTLED_S * 100


async def _untouched(size: Size) -> list[Measurement]:
    """Many deployments of one instance each, and nobody who wants anything."""
    with TemporaryDirectory() as state:
        async with new_world(Path(state), 4) as world:
            names = [f"w{number}" for number in range(size.untouched)]
            for number, name in enumerate(names):
                await world.onlooker.create(name, world.cells[number % 4], 1)
            await world.onlooker.rolled_out(names)
            await world.quiet()
            written, busy = await _settled(world)
    told = f"{size.untouched} idle deployments"
    return [
        Measurement(f"{told}: writes", written, "", at_most=0),
        Measurement(f"{told}: processor", busy, "%", at_most=5),
    ]


def _partition(size: Size) -> list[Measurement]:
    """A cell is cut off for an hour, while everything on it is to be rolled."""
    clock = LeapingClock()
    wall_s, cpu_s = clock.run(_cut_off(size, clock))
    name = f"a cell with {size.away} instances is back: settled"
    return [
        Measurement(name, wall_s, "s", at_most=60),
        Measurement("of that processor time, after the cut", cpu_s, "cpu s"),
    ]


async def _cut_off(size: Size, clock: LeapingClock) -> tuple[float, float]:
    """Seconds from the first moment in which the cell can be reached again."""
    with TemporaryDirectory() as state:
        async with new_world(Path(state), 2, clock.unix_s) as world:
            replicas = min(size.away, 100)
            names = [f"w{number}" for number in range(size.away // replicas)]
            for name in names:
                await world.onlooker.create(name, world.cells[0], replicas)
            await world.onlooker.rolled_out(names)
            # That the cell does not answer is what we want; nobody needs to read it.
            logging.getLogger("datum_compute").setLevel(logging.ERROR)
            world.troubles[cell_plane(world.cells[0])] = Fault(kind="cut")
            container = {"name": "app", "image": "web:2"}
            template = {"spec": {"runtime": {"sandbox": {"containers": [container]}}}}
            for name in names:
                spec = {"spec": {"template": template}}
                await world.client(PROJECT).patch(WORKLOAD, Ref(SPACE, name), spec)
            await clock.sleep(size.away_s)
            world.troubles.clear()
            wall_s, cpu_s = time.perf_counter(), time.process_time()
            await world.onlooker.rolled_out(names)
            return time.perf_counter() - wall_s, time.process_time() - cpu_s


if __name__ == "__main__":
    end_on_sigterm()
    found = measure(QUICK if sys.argv[1:] == ["quick"] else FULL)
    print(f"{table(found)}\n  -> {keep('federation', found)}")
