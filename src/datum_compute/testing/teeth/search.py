"""``python -m datum_compute.testing.teeth.search``: find a seed for every planted bug.

Every bug gets the seeds 1 to 1,000; those are tried first that look promising. A seed that fails
without the bug as well proves nothing and is passed over. What is found is recorded, and then
shrunken with the bug in place.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from datum_compute.telemetry.unread import quiet_when_unread
from datum_compute.testing.crowd import in_crowd
from datum_compute.testing.every_commit import small_stories
from datum_compute.testing.faults import FOR_EVER, Fault
from datum_compute.testing.operations import CreateWorkload, Operation
from datum_compute.testing.scenario import Scenario, scenario_of
from datum_compute.testing.shrink import shrunken
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.bugs import bug_named, names
from datum_compute.testing.teeth.findings import (
    Finding,
    read_findings,
    variations,
    write_findings,
)
from datum_compute.testing.trial import Failure, Trial, Try, tried
from datum_compute.testing.world import brought_up

SEEDS = 1000
_PIECE = 3  # seeds that one worker tries for one bug before it takes up another
_SHRINK_RUNS = 30


@dataclass(frozen=True, slots=True)
class Piece:
    bug: str
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Searched:
    piece: Piece
    finding: Finding | None


def seeds_for(bug: PlantedBug, seeds: int) -> tuple[int, ...]:
    """Those first that meet what the bug needs, close to something that people do; small worlds
    before large ones."""

    def order(scenario: Scenario) -> tuple[bool, float]:
        steps = (*scenario.operations, *scenario.faults)
        distance_s = min(
            (_distance_s(scenario, s) for s in steps if _name(s) in bug.meets), default=0
        )
        meets = not bug.meets or not _signs(scenario).isdisjoint(bug.meets)
        size = len(steps) + len(scenario.layout.cells) + scenario.chaos_s / 10
        return not meets, size + min(distance_s, 10.0)

    return tuple(s.seed for s in sorted(map(scenario_of, range(1, seeds + 1)), key=order))


def _signs(scenario: Scenario) -> set[str]:
    """Operations and faults by name, how many cells, whether quota is tight, whether several may
    wait for some that is given back, and whether a cell is lost or anything scaled down."""
    met = {_name(step) for step in (*scenario.operations, *scenario.faults)}
    met.add(f"{len(scenario.layout.cells)} cells")
    met.add(f"{scenario.layout.managers} managers")
    if scenario.layout.is_tight:
        met.add("tight quota")
        created = [s for s in scenario.operations if isinstance(s, CreateWorkload)]
        gives_back = bool({"DeleteWorkload", "Scale"} & met)
        if gives_back and sum(len(s.cities) for s in created) > 2:
            met.add("contenders")
    if any(getattr(fault, "for_s", 0.0) == FOR_EVER for fault in scenario.faults):
        met.add("cell lost")
    names = sorted({getattr(operation, "name", "") for operation in scenario.operations} - {""})
    if any(other.startswith(name) for name, other in pairwise(names)):
        met.add("names alike")
    replicas: dict[str, int] = {}
    for operation in scenario.operations:
        name = getattr(operation, "name", "")
        wanted = getattr(operation, "replicas", 0)
        if wanted and wanted < replicas.get(name, 0):
            met.add("scale-down")
        if wanted:
            replicas[name] = wanted
    return met


def _distance_s(scenario: Scenario, step: Operation | Fault) -> float:
    """How long after the last operation the step begins; none if one falls into it. Operations
    are close to themselves."""
    ends_s = step.at_s + getattr(step, "for_s", 0.0)
    if any(step.at_s <= operation.at_s <= ends_s for operation in scenario.operations):
        return 0.0
    before = [o.at_s for o in scenario.operations if o.at_s <= step.at_s]
    return step.at_s - max(before) if before else step.at_s


def _name(step: Operation | Fault) -> str:
    return type(step).__name__


def tried_with(bug: PlantedBug, scenario: Scenario) -> Trial:
    brought_up(scenario.layout)  # kept for later runs, so it must not come from a broken product
    with bug.plant():
        found = tried(scenario)
    misfit = isinstance(found, Failure) and "<locals>" in found.message
    assert not misfit, f"{bug.name} no longer fits what it replaces: {found}"
    return found


def found_again(finding: Finding, without_bugs: Try = tried) -> Failure | None:
    """The first variation that breaks a recorded invariant, and passes without the bug."""
    bug = bug_named(finding.bug)
    for scenario in variations(finding.scenario):
        found = caught(bug, scenario, without_bugs)
        if found is not None and found.invariant in finding.invariants:
            return found
    return None


def caught(bug: PlantedBug, scenario: Scenario, without_bugs: Try = tried) -> Failure | None:
    """How the scenario fails with the bug, unless it fails without it as well."""
    found = tried_with(bug, scenario)
    if not isinstance(found, Failure) or not bug.counts(found.invariant):
        return None
    return None if isinstance(without_bugs(scenario), Failure) else found


def prepare_piece(piece: Piece) -> None:
    for seed in piece.seeds:
        brought_up(scenario_of(seed).layout)


def search_piece(piece: Piece) -> Searched:
    bug = bug_named(piece.bug)
    for seed in piece.seeds:
        found = caught(bug, scenario_of(seed), _without_bugs)
        if found is not None:
            return Searched(piece, Finding(bug.name, seed, (found.invariant,), found.scenario))
    return Searched(piece, None)


@cache
def _without_bugs(scenario: Scenario) -> Trial:
    return tried(scenario)


def shrink_finding(finding: Finding) -> Finding:
    """The smallest scenario that fails with the bug and passes without. One of the small stories
    that many bugs share, if that shows it, because then CI runs it without bugs only once."""
    bug = bug_named(finding.bug)
    for story in small_stories():
        found = tried_with(bug, story)
        if isinstance(found, Failure) and found.invariant in finding.invariants:
            return replace(finding, scenario=story)

    def trial(scenario: Scenario) -> Trial:
        return tried_with(bug, scenario)

    def strict_trial(scenario: Scenario) -> Trial:
        found = trial(scenario)
        if isinstance(found, Failure) and isinstance(clean := tried(scenario), Failure):
            return replace(clean, invariant="also without the bug")
        return found

    failure = Failure(finding.scenario, finding.invariants[0], "")
    small = shrunken(failure, runs_max=_SHRINK_RUNS, trial=trial, keep_shuffled=True).failure
    if isinstance(tried(small.scenario), Failure):
        small = shrunken(
            failure, runs_max=_SHRINK_RUNS, trial=strict_trial, keep_shuffled=True
        ).failure
    return replace(finding, scenario=small.scenario)


def with_its_invariants(finding: Finding) -> Finding:
    """And with whatever else catches the bug in a variation."""
    bug = bug_named(finding.bug)
    found = [caught(bug, scenario) for scenario in variations(finding.scenario)]
    seen = dict.fromkeys((*finding.invariants, *(f.invariant for f in found if f is not None)))
    return replace(finding, invariants=tuple(seen))


@quiet_when_unread
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m datum_compute.testing.teeth.search")
    parser.add_argument("bugs", nargs="*", metavar="BUG", help="only these bugs (all)")
    parser.add_argument("--findings", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds to try ({SEEDS})")
    parser.add_argument("--missing", action="store_true", help="only bugs without a finding")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    wanted = options.bugs or names()
    if options.missing:
        known = {finding.bug for finding in read_findings(options.findings)}
        wanted = [name for name in wanted if name not in known]
    unfound = _search(wanted, options)
    _shrink(options)
    for name in unfound:
        _say(f"{name}: not found in {options.seeds} seeds")
    return 1 if unfound else 0


def _search(wanted: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Round after round every bug that is still unfound gets its next seeds; what is found is
    written at once. Names those that are left."""
    unfound = list(wanted)
    orders = {name: seeds_for(bug_named(name), options.seeds) for name in wanted}
    first = 0
    while unfound and first < options.seeds:
        # Nobody waits while the last bugs are searched for.
        ahead = first + _PIECE * max(1, 2 * options.jobs // len(unfound))
        pieces = [
            Piece(name, orders[name][at : at + _PIECE])
            for at in range(first, ahead, _PIECE)
            for name in unfound
        ]
        first = ahead
        for searched in in_crowd(search_piece, pieces, options.jobs, prepare_piece):
            finding = searched.finding
            if finding is not None and finding.bug in unfound:
                write_findings([finding], options.findings)
                unfound.remove(finding.bug)
                _say(f"{finding.bug}: seed {finding.seed}, {finding.invariants[0]}")
    return unfound


def _shrink(options: argparse.Namespace) -> None:
    """What CI replays must be quick; a scenario that is shrunken already stays as it is."""
    whole = [f for f in read_findings(options.findings) if f.scenario == scenario_of(f.seed)]
    for finding in in_crowd(shrink_finding, whole, options.jobs):
        write_findings([with_its_invariants(finding)], options.findings)
        _say(f"{finding.bug}: shrunken to {len(finding.scenario.faults)} faults")


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command speaks


if __name__ == "__main__":
    sys.exit(main())
