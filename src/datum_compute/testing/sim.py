"""``python -m datum_compute.testing.sim``: run worlds from seeds, or replay one with its trace."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from datum_compute.testing.scenario import scenario_of
from datum_compute.testing.world import WorldBroken, run_scenario


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m datum_compute.testing.sim")
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay one seed and print its trace")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes to use")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed)
    seeds = range(options.first, options.first + options.seeds)
    with ProcessPoolExecutor(options.jobs) as workers:
        complaints = [found for found in workers.map(_complaint, seeds, chunksize=4) if found]
    for complaint in complaints:
        _say(complaint)
    _say(f"{len(seeds) - len(complaints)} passed, {len(complaints)} failed")
    return 1 if complaints else 0


def _replay(seed: int) -> int:
    """Equal for two runs of one seed: the trace holds no wall-clock time."""
    scenario = scenario_of(seed)
    _say("\n".join(scenario.lines()))
    try:
        outcome = run_scenario(scenario)
    except WorldBroken as broken:
        _say("\n".join(broken.trace))
        _say(f"seed {seed}: {broken}")
        return 1
    _say("\n".join(outcome.trace))
    _say(
        f"seed {seed}: {outcome.commits} commits, {outcome.crashes} crashes, "
        f"{outcome.virtual_s:.0f} virtual seconds, fingerprint {outcome.fingerprint[:16]}"
    )
    return 0


def _complaint(seed: int) -> str:
    try:
        run_scenario(scenario_of(seed))
    except WorldBroken as broken:
        return f"seed {seed}: {broken}"
    return ""


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
