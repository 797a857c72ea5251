"""Referenced ConfigMaps and Secrets: machines receive them, and I18 and I26 find violations."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from datum_compute.api.conditions import TRUE, ConditionValue
from datum_compute.planning.federation.referenced_objects import (
    data_ready_condition,
    propagated_annotations,
)
from datum_compute.planning.rollout.referenced_data import check_sources
from testkit.sim.mutants.mutant import function_replaced
from testkit.sim.run.world import WorldBroken, run_scenario
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.operations import CreateWorkload, Operation, ReferToData, ReplaceData
from testkit.sim.scenario.scenario import Scenario, WorldLayout

STORY: tuple[Operation, ...] = (
    CreateWorkload(0.0, "alpha", "web", "web:1", 2, ("DFW",)),
    CreateWorkload(0.0, "alpha", "api", "api:1", 1, ("DFW", "IAD")),
    ReferToData(1.0, "alpha", "web", "web:9", 2.0, 1),
    ReferToData(2.0, "alpha", "api", "api:9", 0.0, 2),
    ReplaceData(6.0, "alpha", "api", 3.0, 3),
)
CALM = Scenario(1, WorldLayout("one", ("alpha",), ("dfw", "iad")), STORY, (), 12.0)


@pytest.mark.parametrize(
    "scenario",
    [
        CALM,
        replace(CALM, faults=(f.CrashAtCommit(1.0, "all", 60, durable=True),)),
        replace(CALM, faults=(f.LoseMachine(8.0, "dfw", 0), f.LoseMachine(9.5, "iad", 0))),
        replace(CALM, layout=WorldLayout("split", ("alpha",), ("dfw", "iad"))),
    ],
    ids=["calm", "crash", "machines lost", "split"],
)
def test_machines_get_their_data(scenario: Scenario) -> None:
    outcome = run_scenario(scenario)
    assert any("web" in line and "Available=True" in line for line in outcome.final)


@contextmanager
def gate_opened_and_nothing_asked() -> Iterator[None]:
    def make(_original: Any) -> Any:
        return lambda *_arguments: ConditionValue(TRUE, "Ready", "")

    with function_replaced(check_sources, make), function_replaced(data_ready_condition, make):
        yield


@contextmanager
def bytes_carried_along() -> Iterator[None]:
    def make(original: Any) -> Any:
        def careless(deployment: Any) -> dict[str, str]:
            return {**original(deployment), "example.com/debug": "bytes of a secret: 1"}

        return careless

    with function_replaced(propagated_annotations, make):
        yield


def test_a_machine_without_its_data_is_a_violation() -> None:
    with gate_opened_and_nothing_asked(), pytest.raises(WorldBroken, match="I26"):
        run_scenario(CALM)


def test_secret_bytes_outside_of_secrets_are_a_violation() -> None:
    with bytes_carried_along(), pytest.raises(WorldBroken, match="I18"):
        run_scenario(CALM)
