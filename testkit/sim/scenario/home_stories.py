"""Somebody edits the labels of namespaces on the hub, which say whose everything in them is.

From a stream of its own, on top of whatever else is told.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.plane import HUB
from testkit.sim.scenario.operations import EditObject
from testkit.sim.scenario.stories import with_steps

if TYPE_CHECKING:
    from testkit.sim.scenario.scenario import Scenario

TOLD_PERCENT = 4  # of scenarios


def with_mislabelled_homes(random: Random, scenario: Scenario) -> Scenario:
    if random.random() * 100 >= TOLD_PERCENT:
        return scenario
    # Most namespaces of a hub are no homes, and some edits meet those.
    edits = tuple(
        EditObject(
            round(random.uniform(1, 10), 2),
            HUB,
            NAMESPACE.resource,
            "label",
            random.randrange(100),
        )
        for _ in range(random.randint(3, 6))
    )
    return with_steps(scenario, edits, ())
