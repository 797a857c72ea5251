"""Federation templates are drawn, and each contains the operations and faults that it requires."""

from __future__ import annotations

from random import Random

from testkit.sim.scenario import faults as f
from testkit.sim.scenario import feature_templates as stories
from testkit.sim.scenario.fault_templates import Template
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.operations import AllowFallback, DeleteObject
from testkit.sim.scenario.scenario import Scenario

SEEDS = range(200)


def drawn(story: Template) -> list[Scenario]:
    return [story(Random(seed), scenario_of(7)) for seed in SEEDS]


def test_some_seeds_apply_a_federation_template_reproducibly() -> None:
    applied = [seed for seed in range(1, 300) if _has_federation_template(seed)]
    assert 1 <= len(applied) < 40
    assert scenario_of(applied[0]) == scenario_of(applied[0])


def _has_federation_template(seed: int) -> bool:
    return len(scenario_of(seed).layout.cells) > 3 or any(
        isinstance(operation, AllowFallback) for operation in scenario_of(seed).operations
    )


def test_partitioned_worlds_have_three_or_twenty_cells_and_every_kind_of_partition() -> None:
    worlds = drawn(stories._partitioned)
    assert {len(world.layout.cells) for world in worlds} == {3, 20}
    found = {type(fault) for world in worlds for fault in world.faults}
    wanted = {f.CutLink, f.IsolateHost, f.FlapLink, f.SwizzleClog, f.LoseRequests, f.DelayWrites}
    assert wanted | {f.HalfOpenWatches, f.SlowWatches, f.LagWatches, f.StopHost} <= found


def test_instances_are_deleted_on_a_cell_while_the_center_is_down() -> None:
    for world in drawn(stories._left_alone):
        stop = next(fault for fault in world.faults if isinstance(fault, f.StopHost))
        deleted = [o for o in world.operations if isinstance(o, DeleteObject)]
        assert all(stop.at_s < o.at_s < stop.at_s + stop.for_s for o in deleted)
        assert deleted
