"""How fast worlds run: seeds a second, and virtual seconds a second in a large world.

Measured in CPU time of one core, because that is what a campaign spends.
"""

from __future__ import annotations

import gc
import time

from bench.measurement import Measurement
from testkit.sim.run.world import bring_up, run_scenario
from testkit.sim.scenario.draw import CELLS, NAMES
from testkit.sim.scenario.faults import IsolateHost
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.operations import CreateWorkload
from testkit.sim.scenario.scenario import Scenario, WorldLayout

SEEDS = range(1, 41)
CHAOS_S = 600.0


def measure() -> list[Measurement]:
    run_scenario(scenario_of(SEEDS[0]))  # kinds are compiled once
    seeds_s, _ = spent([scenario_of(seed) for seed in SEEDS])
    large_s, virtual_s = spent([large_world()])
    return [
        # 500 seeds in two minutes on two cores.
        Measurement("seeds", len(SEEDS) / seeds_s, "seeds/s", at_least=500 / 240),
        Measurement("3 cells, 51 instances", virtual_s / large_s, "s/s", at_least=200),
    ]


def large_world() -> Scenario:
    """Three cells and 51 instances; one cell is away for a while."""
    layout = WorldLayout("split", ("alpha",), CELLS)
    cities = tuple(sorted(cell.upper() for cell in CELLS))
    sizes = zip(NAMES, (6, 6, 5), strict=True)
    created = tuple(
        CreateWorkload(0.0, "alpha", name, f"{name}:1", replicas, cities)
        for name, replicas in sizes
    )
    away = IsolateHost(120.0, 240.0, "cell-dfw")
    return Scenario(1, layout, created, (away,), CHAOS_S)


def spent(scenarios: list[Scenario]) -> tuple[float, float]:
    """CPU seconds and virtual seconds of running them all. Their platforms have come up before: a
    search brings each up once for all worlds that begin with it."""
    for scenario in scenarios:
        bring_up(scenario.layout)
    gc.collect()
    gc.freeze()
    start = time.process_time()
    virtual_s = sum(run_scenario(scenario).virtual_s for scenario in scenarios)
    return time.process_time() - start, virtual_s
