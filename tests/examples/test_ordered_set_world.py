"""The tutorial survives what the platform survives: the same faults, disks, deaths and rules."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from examples.ordered_set import controllers as tutorial
from examples.ordered_set.plan import Plan, plan_ordered_set

from datum_compute.testing.invariants import InvariantBroken
from tests.examples.ordered_world import faults_of, run_ordered_world

SEEDS = range(1, 25)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_ordered_set_survives_the_faults_of_the_simulator(seed: int) -> None:
    run_ordered_world(seed)


def test_those_worlds_meet_deaths_losses_and_blind_spots() -> None:
    met = Counter(type(fault).__name__ for seed in SEEDS for fault in faults_of(seed))
    for name in ("CrashAtCommit", "StopHost", "LoseRequests", "CutLink", "LoseHistory"):
        assert met[name] >= 1, met


def test_a_set_that_is_released_early_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def released_early(desired: Any, members: Any) -> Plan:
        plan = plan_ordered_set(desired, members)
        return Plan(plan.status, release=True) if desired.is_terminating else plan

    monkeypatch.setattr(tutorial, "plan_ordered_set", released_early)
    with pytest.raises(InvariantBroken, match="I15"):
        run_ordered_world(SEEDS[0])
