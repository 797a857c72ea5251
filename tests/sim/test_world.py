"""The whole slice in virtual time: calm, with crashes at commits, and equal in every process."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.planning import federation
from datum_compute.planning.actions import Plan, drop_finalizer
from datum_compute.testing.host import Crash
from datum_compute.testing.world import WorldBroken, random_crashes, run_world

# Every n-th commit here; all of them in `make sim`.
STRIDE = 16


@pytest.fixture(scope="module")
def commits() -> int:
    return run_world(1).commits


def test_a_workload_lives_and_dies_without_faults() -> None:
    outcome = run_world(1)
    assert outcome.crashes == 0
    assert outcome.trace


@pytest.mark.parametrize("durable", [False, True], ids=["before", "after"])
def test_a_crash_at_a_commit_changes_nothing_in_the_end(commits: int, durable: bool) -> None:
    offset = 3 if durable else 11
    points = range(offset, commits, STRIDE)
    crashes = [run_world(1, [Crash(point, durable)]).crashes for point in points]
    assert crashes == [1] * len(points)


@pytest.mark.parametrize("seed", range(1, 6))
def test_seeds_with_several_crashes_converge(seed: int, commits: int) -> None:
    crashes = random_crashes(seed, commits)
    assert run_world(seed, crashes).crashes <= len(crashes)


def test_a_seed_gives_the_same_trace_in_another_process() -> None:
    command = [sys.executable, "-m", "datum_compute.testing.sim", "--seed", "7"]
    traces = [
        subprocess.run(
            command,
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    ]
    assert traces[0] == traces[1]
    assert "fingerprint" in traces[0]


def test_a_finalizer_released_too_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Teeth: the simulator must notice a planted bug."""

    def release_at_once(project, deployment, _hub, _now):  # type: ignore[no-untyped-def]
        finalizer = labels.FEDERATOR_FINALIZER
        return Plan(tuple(drop_finalizer(project, DEPLOYMENT, deployment, finalizer)))

    monkeypatch.setattr(federation, "_plan_removal", release_at_once)
    with pytest.raises(WorldBroken, match="called gone while it runs"):
        run_world(1)
