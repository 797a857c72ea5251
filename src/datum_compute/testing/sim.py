"""``python -m datum_compute.testing.sim``: run worlds from seeds, or replay one with its trace."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

from datum_compute.testing.host import Crash
from datum_compute.testing.world import Outcome, WorldBroken, random_crashes, run_world

Run = tuple[int, tuple[Crash, ...]]

# A story without crashes takes about this many commits; crashes are spread over them.
COMMITS_ABOUT = 230


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m datum_compute.testing.sim")
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds to run")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seed", type=int, help="replay one seed and print its trace")
    parser.add_argument("--every-commit", action="store_true", help="crash at every single commit")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes to use")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed)
    if options.every_commit:
        return _crash_everywhere(options.first, options.jobs)
    return _run_seeds(range(options.first, options.first + options.seeds), options.jobs)


def _replay(seed: int) -> int:
    """Equal for two runs of one seed: the trace holds no wall-clock time."""
    crashes = _crashes_of(seed)
    _say(f"seed {seed}: {[(c.commit, 'after' if c.durable else 'before') for c in crashes]}")
    try:
        outcome = run_world(seed, crashes)
    except WorldBroken as broken:
        _say("\n".join(broken.trace))
        _say(f"seed {seed}: {broken}")
        return 1
    _say("\n".join(outcome.trace))
    _say(_summary(seed, outcome))
    return 0


def _run_seeds(seeds: range, jobs: int) -> int:
    failed = _failed([(seed, tuple(_crashes_of(seed))) for seed in seeds], jobs)
    if failed:
        _say(f"replay the first with: make sim SEED={failed[0][0]}")
    return 1 if failed else 0


def _crash_everywhere(seed: int, jobs: int) -> int:
    """Once for every commit of the story: dead before it is durable, dead right after."""
    commits = run_world(seed).commits
    points = [Crash(n, durable) for n in range(1, commits + 1) for durable in (False, True)]
    return 1 if _failed([(seed, (point,)) for point in points], jobs) else 0


def _failed(runs: Sequence[Run], jobs: int) -> list[Run]:
    """The runs that broke a rule; worlds share nothing, so they run on all cores."""
    with ProcessPoolExecutor(jobs) as workers:
        complaints = list(workers.map(_complaint, runs, chunksize=4))
    for complaint in filter(None, complaints):
        _say(complaint)
    failed = [run for run, complaint in zip(runs, complaints, strict=True) if complaint]
    _say(f"{len(runs) - len(failed)} passed, {len(failed)} failed")
    return failed


def _complaint(run: Run) -> str:
    seed, crashes = run
    try:
        run_world(seed, crashes)
    except WorldBroken as broken:
        return f"seed {seed} with {list(crashes)}: {broken}"
    return ""


def _crashes_of(seed: int) -> list[Crash]:
    return random_crashes(seed, COMMITS_ABOUT)


def _summary(seed: int, outcome: Outcome) -> str:
    return (
        f"seed {seed}: {outcome.commits} commits, {outcome.crashes} crashes, "
        f"{outcome.virtual_s:.0f} virtual seconds, fingerprint {outcome.fingerprint[:16]}"
    )


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


if __name__ == "__main__":
    sys.exit(main())
