"""Rollouts to unreliable images, and restarts of one city: one world for each case."""

from __future__ import annotations

import pytest

from testkit.sim.run.world import run_scenario
from testkit.sim.scenario.operations import (
    AllowSurge,
    ChangeImage,
    CreateWorkload,
    Operation,
    RestartCity,
)
from testkit.sim.scenario.scenario import Scenario, WorldLayout

TWO_CITIES = WorldLayout("split", ("alpha",), ("dfw", "iad"))
CREATED = CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW", "IAD"))
REGISTRIES = ("late", "unhealthy", "unready", "flapping", "stubborn")


def run_world(*operations: Operation) -> list[str]:
    """Run a world and return its trace; every invariant held."""
    ends_s = max(operation.at_s for operation in operations) + 15.0
    return list(run_scenario(Scenario(1, TWO_CITIES, (CREATED, *operations), (), ends_s)).trace)


@pytest.mark.parametrize("registry", REGISTRIES)
@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_rollout_to_an_unreliable_image_is_followed_by_one_to_a_good_image(
    registry: str, policy: str
) -> None:
    trace = run_world(
        AllowSurge(0.2, "alpha", "web", 1, None, policy),  # type: ignore[arg-type]
        ChangeImage(4.0, "alpha", "web", f"{registry}.example/web:2"),
        ChangeImage(24.0, "alpha", "web", "web:3"),
    )
    assert any(f"{registry}.example" in line for line in trace)


def test_a_restart_of_one_city_replaces_only_the_instances_of_that_city() -> None:
    trace = run_world(RestartCity(6.0, "alpha", "web", "DFW"))
    ended = [line.split() for line in trace if "instances.compute" in line and "deleted" in line]
    removed = {plane for at_s, plane, *_ in ended if plane.startswith("cell/") and float(at_s) < 20}
    assert removed == {"cell/dfw"}
