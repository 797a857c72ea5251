"""The simulator finds every mutant: replays the findings that ``make sim-mutants`` recorded."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from datum_compute.controllers.workload import machine
from datum_compute.planning.rollout import instances
from datum_compute.planning.rollout import status as deployment
from datum_compute.runtime.cached_client import CachedClient
from testkit.sim.mutants.mutant import Mutant, function_replaced
from testkit.sim.mutants.search import (
    MUTANTS,
    MutantFinding,
    find_again,
    read_findings,
    write_findings,
)
from testkit.sim.run.trial import Trial, run_trial
from testkit.sim.scenario.scenario import Scenario

FINDINGS = read_findings(Path(__file__).parent / "mutant_findings")
MUTANTS_MIN = 30
SEEDS = 1000


@cache
def without_mutants(scenario: Scenario) -> Trial:
    return run_trial(scenario)


def test_mutants_are_many_and_have_unique_names() -> None:
    assert len(MUTANTS) >= MUTANTS_MIN
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_every_mutant_has_a_finding() -> None:
    found = {finding.mutant for finding in FINDINGS if finding.seed <= SEEDS}
    missing = sorted({mutant.name for mutant in MUTANTS} - found)
    assert not missing, f"run: make sim-mutants MUTANTS='{' '.join(missing)}'"


@pytest.mark.mutants
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.mutant)
def test_the_mutant_is_found(finding: MutantFinding) -> None:
    found = find_again(finding, without_mutants)
    assert found is not None, f"not found; run make sim-mutants MUTANTS={finding.mutant}"


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_originals_are_restored(mutant: Mutant) -> None:
    before = (vars(instances).copy(), vars(machine).copy(), dict(vars(CachedClient)))
    with mutant.apply():
        pass
    assert (vars(instances), vars(machine), dict(vars(CachedClient))) == before


def test_a_function_is_replaced_in_every_module_that_imports_it() -> None:
    original = instances.plan_slots
    places = (instances, deployment)
    with function_replaced(original, lambda _: "replacement"):
        assert [vars(module)["plan_slots"] for module in places] == ["replacement"] * 2
    assert [vars(module)["plan_slots"] for module in places] == [original] * 2


def test_a_function_outside_the_product_cannot_be_replaced() -> None:
    with pytest.raises(AssertionError, match="no module"), function_replaced(print, lambda _: None):
        pass


def test_writing_a_finding_again_leaves_the_table_unchanged(tmp_path: Path) -> None:
    scenario = FINDINGS[0].scenario
    first = MutantFinding(MUTANTS[3].name, 7, ("I6",), scenario)
    second = MutantFinding(MUTANTS[1].name, 12, ("I9", "I15"), scenario)
    write_findings([first], tmp_path)
    write_findings([second], tmp_path)
    assert read_findings(tmp_path) == [second, first]
    text = (tmp_path / "findings.txt").read_text()
    write_findings([first], tmp_path)
    assert (tmp_path / "findings.txt").read_text() == text
