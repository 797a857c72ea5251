"""Instances from a Workload to Ready: how many writes, time, and the cost of settled instances.

Single-cluster mode with a durable store, with network and quota gates: in one process, and with the
API server in a separate process. Both are compared with a client that sends the same writes over
TLS to a platform without controllers (time). The first is also compared with the same writes as
calls within the process (CPU time; ``bench/replay.py``).

Costs of an instance are compared between 100 instances and the second half of 20,000.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.api_server_process import new_world_over_tls
from bench.instance_world import Recorded, World, new_world
from bench.measurement import Measurement
from bench.replay import Timing, object_path, replay_in_process, replay_over_tls
from datum_compute.app.process import run_loop

FEW, MANY, CROWD = 100, 1_000, 10_000
SETTLED_S = 30.0
# The objects that there are for each instance. Its Workload has a claim too, and shares it.
OWN = ("/instances/", "/servers/", "/resourceclaims/instance-")
EVENTS = "/events/"


@dataclass(frozen=True, slots=True)
class MeasuredChange:
    """A change by a user: the time until it is complete, and all writes."""

    timing: Timing
    writes: list[Recorded]


def measure() -> list[Measurement]:
    few = run_loop(_per_instance_ms(FEW))
    thousand = [*run_loop(_measure_thousand()), *run_loop(_measure_two_processes())]
    return [*thousand, *run_loop(_measure_crowd(few))]


async def _measure_thousand() -> list[Measurement]:
    """Create and update a Workload of 1,000 instances; send the writes without controllers."""
    with TemporaryDirectory() as state:
        async with new_world(Path(state)) as world:
            before = list(world.written)
            made = await _deploy(world, MANY)
            late_writes = await _wait_until_quiet(world)
            rolled = await _roll_out(world)
        floors = await replay_in_process(
            Path(state), before, made.writes, late_writes, rolled.writes
        )
        bare = await replay_over_tls(Path(state), before, made.writes)
    return [
        *_writes_per_instance(made.writes),
        *_elapsed_times(made.timing, bare),
        *_cpu_times(made.timing, floors[0], rolled.timing, floors[2]),
    ]


def _elapsed_times(made: Timing, bare: Timing) -> list[Measurement]:
    name = "bare client over TLS, 1,000 made"
    return [
        Measurement(name, bare.wall_s, "s"),
        Measurement("1,000 made", made.wall_s, "s", name, at_most=min(4, 1.5 * bare.wall_s)),
    ]


async def _measure_two_processes() -> list[Measurement]:
    """Run API server and manager in separate processes; then a client as the manager."""
    with TemporaryDirectory() as state:
        async with new_world_over_tls(Path(state)) as world:
            before = list(world.written)
            made = await _deploy(world, MANY)
        bare = await replay_over_tls(Path(state), before, made.writes)
    name = "bare client over TLS, the same writes"
    goal = 1.5 * bare.wall_s
    return [
        Measurement(name, bare.wall_s, "s"),
        Measurement("1,000 made, manager over TLS", made.timing.wall_s, "s", name, at_most=goal),
    ]


def _writes_per_instance(writes: Sequence[Recorded]) -> list[Measurement]:
    paths = [object_path(write) for write in writes]
    own = sum(any(part in path for part in OWN) for path in paths)
    events = sum(EVENTS in path for path in paths)
    others = len(writes) - own - events
    return [
        Measurement("writes of an instance", own / MANY, "", at_most=8),
        Measurement("shared writes, per instance", others / MANY, ""),
        Measurement("events, per instance", events / MANY, ""),
    ]


def _cpu_times(
    made: Timing, made_floor: Timing, rolled: Timing, rolled_floor: Timing
) -> list[Measurement]:
    names = "bare calls in the same process, 1,000 made", "the same, 1,000 rolled"
    return [
        Measurement(names[0], made_floor.cpu_s, "cpu s"),
        Measurement("1,000 made, processor time", made.cpu_s, "cpu s", names[0]),
        Measurement(names[1], rolled_floor.cpu_s, "cpu s"),
        Measurement("1,000 rolled", rolled.cpu_s, "cpu s", names[1], at_most=2.5 * made.cpu_s),
        Measurement("1,000 rolled, by the clock", rolled.wall_s, "s"),
    ]


async def _measure_crowd(few_ms: float) -> list[Measurement]:
    """Create 10,000 instances, measure while they are settled, and create 10,000 more."""
    with TemporaryDirectory() as state:
        async with new_world(Path(state)) as world:
            await _deploy(world, CROWD)
            await _wait_until_quiet(world)
            cpu_s, versions = time.process_time(), world.versions()
            await asyncio.sleep(SETTLED_S)
            busy = (time.process_time() - cpu_s) / SETTLED_S
            written = world.versions() - versions
            more = await _deploy(world, CROWD)
    more_ms = more.timing.cpu_s / CROWD * 1000
    few = f"an instance of {FEW}"
    return [
        Measurement("10,000 settled, writes", written, "", at_most=0),
        Measurement("10,000 settled, processor", busy * 100, "%", at_most=2),
        Measurement(few, few_ms, "cpu ms"),
        Measurement("an instance of 20,000", more_ms, "cpu ms", few, at_most=1.2 * few_ms),
    ]


async def _per_instance_ms(instances: int) -> float:
    with TemporaryDirectory() as state:
        async with new_world(Path(state)) as world:
            made = await _deploy(world, instances)
    return made.timing.cpu_s / instances * 1000


async def _deploy(world: World, instances: int) -> MeasuredChange:
    world.written.clear()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await world.ready(await world.deploy(instances))
    return _finish_change(world, wall_s, cpu_s)


async def _roll_out(world: World) -> MeasuredChange:
    world.written.clear()
    wall_s, cpu_s = time.perf_counter(), time.process_time()
    await world.roll(world.names)
    await world.ready(world.names)
    return _finish_change(world, wall_s, cpu_s)


async def _wait_until_quiet(world: World) -> list[Recorded]:
    """Return what is written after everything is ready: events and usage of buckets."""
    world.written.clear()
    await world.wait_until_quiet()
    return list(world.written)


def _finish_change(world: World, wall_s: float, cpu_s: float) -> MeasuredChange:
    timing = Timing(time.perf_counter() - wall_s, time.process_time() - cpu_s)
    return MeasuredChange(timing, list(world.written))
