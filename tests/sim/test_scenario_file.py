"""A scenario that is written to a file and read back is unchanged."""

from __future__ import annotations

from dataclasses import replace

import pytest

from testkit.sim.scenario.faults import FOR_EVER, StopHost
from testkit.sim.scenario.files import BadScenario, scenario_from, scenario_text
from testkit.sim.scenario.generate import scenario_of


@pytest.mark.parametrize("seeds", [range(1, 100), range(5000, 5100)], ids=["low", "high"])
def test_a_written_scenario_is_read_back_unchanged(seeds: range) -> None:
    scenarios = [scenario_of(seed) for seed in seeds]
    assert [scenario_from(scenario_text(scenario)) for scenario in scenarios] == scenarios


@pytest.mark.parametrize("until_s", [0.0, 4.0, FOR_EVER])
def test_permanent_faults_and_the_span_of_shuffling_are_read_back(until_s: float) -> None:
    lost = (StopHost(1.0, FOR_EVER, "cell-dfw"),)
    scenario = replace(scenario_of(1), faults=lost, shuffled_s=(0.0, until_s))
    assert scenario_from(scenario_text(scenario)) == scenario


def test_every_step_has_a_line_that_can_be_removed() -> None:
    scenario = next(s for s in map(scenario_of, range(1, 100)) if len(s.faults) > 1)
    struck = scenario.faults[0]
    name = type(struck).__name__
    lines = scenario_text(scenario).splitlines()
    lines.remove(next(line for line in lines if line.startswith(f'  ["{name}"')))
    assert scenario_from("\n".join(lines)) == replace(scenario, faults=scenario.faults[1:])


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        (("CreateWorkload", "CreateNothing"), "there is no CreateNothing"),
        (('"replicas"', '"copies"'), "replicas"),
        (('"layout"', '"plan"'), "layout"),
    ],
    ids=["unknown step", "unknown field", "missing part"],
)
def test_a_file_of_another_version_is_refused_with_the_reason(
    changed: tuple[str, str], reason: str
) -> None:
    with pytest.raises(BadScenario, match=reason):
        scenario_from(scenario_text(scenario_of(1)).replace(*changed))
