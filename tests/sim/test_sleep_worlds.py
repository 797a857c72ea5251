"""Worlds whose instances sleep: visitors connect and are served."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testkit.sim.run.world import run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.operations import CreateWorkload, LetSleep, Visit
from testkit.sim.scenario.scenario import Scenario, WorldLayout

LAYOUT = WorldLayout("split", ("alpha",), ("dfw",), published=True)
ASLEEP = (
    CreateWorkload(0.0, "alpha", "idle", "idle:1", 2, ("DFW",)),
    LetSleep(0.3, "alpha", "idle", "idle:2", 1000, "stop"),
    Visit(8.0, "dfw", 0, 5, 1.25, 0.2),
    Visit(18.0, "dfw", 0, 15, 0.0, 0.2),
)
QUIET = Scenario(2, LAYOUT, ASLEEP, (), 30.0)


def test_some_worlds_publish_ports_and_all_of_them_have_visitors() -> None:
    drawn = [scenario_of(seed) for seed in range(1, 101)]
    published = [scenario for scenario in drawn if scenario.layout.published]
    assert 2 <= len(published) <= 12
    assert all(any(isinstance(o, Visit) for o in s.operations) for s in published)
    assert not any(isinstance(o, Visit) for s in drawn if s not in published for o in s.operations)


@pytest.mark.parametrize(
    "fault", [None, f.StopHost(7.0, 15.0, "centre"), f.StopHost(8.6, 0.2, "cell-dfw")]
)
def test_visitors_are_served_during_faults(fault: f.Fault | None) -> None:
    faults = () if fault is None else (fault,)
    outcome = run_scenario(replace(QUIET, faults=faults))
    assert outcome.sometimes["visit served"] >= 15
    assert any("Available=True/Asleep" in line for line in outcome.trace)
