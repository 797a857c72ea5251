"""Scenarios are values: determined by the seed, one printed line and one removable value per
step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from typing import get_args

from datum_compute.drivers.simulated.behaviors import BEHAVIORS
from testkit.sim.loop import salted_random, stream
from testkit.sim.run.main import SEEDS
from testkit.sim.scenario.faults import Fault
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.operations import Operation
from testkit.sim.scenario.scenario import Scenario, hosts_of, links_of

LEAST = 3  # how often each fault and operation occurs in the seeds of `make sim`, at least
SIGNS = (
    *("fresh", "calm", "tight", "joined", "published", "two leaders", "managers"),
    *("one process", "split", "two projects", "three cells"),
)


def test_a_seed_determines_its_scenario() -> None:
    assert scenario_of(7) == scenario_of(7)
    assert len({scenario_of(seed) for seed in range(50)}) == 50


def test_make_sim_draws_every_operation_and_every_fault() -> None:
    scenarios = [scenario_of(seed) for seed in range(1, SEEDS + 1)]
    faults = Counter(type(fault).__name__ for s in scenarios for fault in s.faults)
    operations = Counter(type(step).__name__ for s in scenarios for step in s.operations)
    assert set(faults) == {kind.__name__ for kind in get_args(Fault)}
    assert set(operations) == {kind.__name__ for kind in get_args(Operation)}
    seldom = {name: count for name, count in (faults + operations).items() if count < LEAST}
    assert not seldom, (
        "give them more weight in the tables of draw.py, fault_templates.py or generate.py"
    )


def test_make_sim_draws_every_behavior_of_an_image() -> None:
    """Images of other registries sleep, which a workload requests by its settings instead."""
    scenarios = [scenario_of(seed) for seed in range(1, SEEDS + 1)]
    images = [getattr(step, "image", "") for s in scenarios for step in s.operations]
    drawn = {image.partition("/")[0] for image in images if "/" in image}
    assert drawn == set(BEHAVIORS) - {"config.example", "sleepy.example", "dozing.example"}


def test_make_sim_draws_every_kind_of_world() -> None:
    scenarios = [scenario_of(seed) for seed in range(1, SEEDS + 1)]
    signs = Counter(sign for scenario in scenarios for sign in _signs(scenario))
    assert {sign for sign, count in signs.items() if count >= 2 * LEAST} == set(SIGNS)


def _signs(scenario: Scenario) -> Iterator[str]:
    layout = scenario.layout
    present = (
        scenario.fresh,
        not scenario.faults,
        layout.has_scarce_quota,
        layout.joined,
        layout.published,
        layout.managers > 1,
        layout.processes == "managers",
        layout.processes == "one",
        layout.processes == "split",
        len(layout.projects) > 1,
        len(layout.cells) > 2,
    )
    return (sign for sign, is_so in zip(SIGNS, present, strict=True) if is_so)


def test_faults_name_hosts_and_links_of_their_layout() -> None:
    for seed in range(300):
        scenario = scenario_of(seed)
        hosts, links = hosts_of(scenario.layout), links_of(scenario.layout)
        both_ways = {*links, *((target, source) for source, target in links)}
        for fault in scenario.faults:
            named = {field.name: getattr(fault, field.name) for field in fields(fault)}
            assert named.get("host", hosts[0]) in hosts
            if "source" in named:
                assert (named["source"], named["target"]) in both_ways


def test_a_scenario_has_one_line_for_each_step() -> None:
    scenario = scenario_of(3)
    lines = list(scenario.lines())
    assert len(lines) == 1 + len(scenario.operations) + len(scenario.faults)
    assert "seed 3" in lines[0]


def test_streams_of_different_purposes_do_not_shift_each_other() -> None:
    network = stream(1, "network")
    expected = [network.random() for _ in range(3)]
    stream(1, "disk").random()
    again = stream(1, "network")
    assert [again.random() for _ in range(3)] == expected
    assert salted_random(1).random() != salted_random(2).random()
