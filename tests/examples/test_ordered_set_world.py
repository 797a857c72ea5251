"""The tutorial in the simulator: the faults and checks that the platform is tested with."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from examples.ordered_set import controllers as tutorial
from examples.ordered_set.plan import Plan, plan_ordered_set
from testkit.sim.run.custom_world import custom_main, custom_scenario_of, run_custom_world
from testkit.sim.run.world import WorldBroken
from tests.examples.ordered_world import ORDERED_SETS

SEEDS = range(1, 25)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_ordered_set_survives_the_faults_of_the_simulator(seed: int) -> None:
    run_custom_world(ORDERED_SETS, custom_scenario_of(seed))


def test_the_seeds_contain_crashes_lost_requests_and_lost_history() -> None:
    faults = Counter(
        type(fault).__name__ for seed in SEEDS for fault in custom_scenario_of(seed).faults
    )
    for name in ("CrashAtCommit", "StopHost", "LoseRequests", "CutLink", "LoseHistory"):
        assert faults[name] >= 1, faults


def test_a_set_released_before_its_members_is_found_and_the_scenario_shrunk(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def release_early(desired: Any, members: Any) -> Plan:
        plan = plan_ordered_set(desired, members)
        return Plan(plan.status, release=True) if desired.is_terminating else plan

    monkeypatch.setattr(tutorial, "plan_ordered_set", release_early)
    with pytest.raises(WorldBroken, match="I15"):
        run_custom_world(ORDERED_SETS, custom_scenario_of(SEEDS[0]))
    assert custom_main(ORDERED_SETS, ["--seeds", "1"]) == 1
    output = capsys.readouterr().out
    assert "shrunken" in output
    assert "BROKEN I15" in output
