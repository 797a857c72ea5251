"""Planted bugs are found: the search is `make sim-teeth`, its findings are replayed here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from datum_compute.controllers.cell import machine
from datum_compute.planning import deployment, instances
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.testing.scenario import Scenario
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.bugs import BUGS, PENDING
from datum_compute.testing.teeth.findings import Finding, read_findings, write_findings
from datum_compute.testing.teeth.patching import function_replaced
from datum_compute.testing.teeth.search import found_again
from datum_compute.testing.trial import Trial, tried

FINDINGS = read_findings(Path(__file__).parent / "teeth_findings")
LEAST = 60
SEEDS = 1000


@cache
def without_bugs(scenario: Scenario) -> Trial:
    return tried(scenario)


def test_there_are_enough_teeth() -> None:
    assert len(BUGS) >= LEAST
    names = [bug.name for bug in BUGS] + [pending.name for pending in PENDING]
    assert len(set(names)) == len(names)


def test_every_planted_bug_has_been_found() -> None:
    found = {finding.bug for finding in FINDINGS if finding.seed <= SEEDS}
    missing = sorted({bug.name for bug in BUGS} - found)
    assert not missing, f"run: make sim-teeth BUGS='{' '.join(missing)}'"


@pytest.mark.teeth
@pytest.mark.parametrize("finding", FINDINGS, ids=lambda finding: finding.bug)
def test_a_planted_bug_is_found(finding: Finding) -> None:
    found = found_again(finding, without_bugs)
    assert found is not None, f"it is no longer found; run make sim-teeth BUGS={finding.bug}"


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_can_be_planted_and_leaves_no_trace(bug: PlantedBug) -> None:
    before = (vars(instances).copy(), vars(machine).copy(), dict(vars(CachedClient)))
    with bug.plant():
        pass
    assert (vars(instances), vars(machine), dict(vars(CachedClient))) == before


def test_a_function_is_replaced_wherever_it_is_known() -> None:
    original = instances.plan_slots
    places = (instances, deployment)
    with function_replaced(original, lambda _: "planted"):
        assert [vars(module)["plan_slots"] for module in places] == ["planted"] * 2
    assert [vars(module)["plan_slots"] for module in places] == [original] * 2


def test_what_is_not_there_cannot_be_replaced() -> None:
    with pytest.raises(AssertionError, match="no module"), function_replaced(print, lambda _: None):
        pass


def test_findings_are_recorded_in_a_table_that_changes_little(tmp_path: Path) -> None:
    scenario = FINDINGS[0].scenario
    first = Finding(BUGS[3].name, 7, ("I6",), scenario)
    second = Finding(BUGS[1].name, 12, ("I9", "I15"), scenario)
    write_findings([first], tmp_path)
    write_findings([second], tmp_path)
    assert read_findings(tmp_path) == [second, first]
    text = (tmp_path / "findings.txt").read_text()
    write_findings([first], tmp_path)
    assert (tmp_path / "findings.txt").read_text() == text
