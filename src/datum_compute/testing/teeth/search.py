"""``python -m datum_compute.testing.teeth.search``: find a seed for every planted bug.

A seed that fails without the bug as well proves nothing and is passed over. What is found is
shrunken with the bug in place, and recorded.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from datum_compute.testing.crowd import in_crowd
from datum_compute.testing.scenario import Scenario, scenario_of
from datum_compute.testing.shrink import shrunken
from datum_compute.testing.teeth.bug import PlantedBug
from datum_compute.testing.teeth.bugs import bug_named, names
from datum_compute.testing.teeth.findings import Finding, read_findings, write_findings
from datum_compute.testing.trial import Failure, Trial, tried

SEEDS = 1000
_PIECE = 10  # seeds that one worker tries for one bug before it takes up another
_SHRINK_RUNS = 60


@dataclass(frozen=True, slots=True)
class Piece:
    bug: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Searched:
    piece: Piece
    finding: Finding | None


def tried_with(bug: PlantedBug, scenario: Scenario) -> Trial:
    with bug.plant():
        return tried(scenario)


def search_piece(piece: Piece) -> Searched:
    bug = bug_named(piece.bug)
    for seed in range(piece.first, piece.last + 1):
        found = tried_with(bug, scenario_of(seed))
        if isinstance(found, Failure) and not isinstance(tried(found.scenario), Failure):
            return Searched(piece, _finding(bug, found))
    return Searched(piece, None)


def _finding(bug: PlantedBug, failure: Failure) -> Finding:
    """The smallest scenario that fails with the bug and passes without."""

    def trial(scenario: Scenario) -> Trial:
        found = tried_with(bug, scenario)
        if isinstance(found, Failure) and isinstance(clean := tried(scenario), Failure):
            return Failure(scenario, "without the bug", clean.message)
        return found

    small = shrunken(failure, runs_max=_SHRINK_RUNS, trial=trial).failure
    return Finding(bug.name, failure.scenario.seed, small.invariant, small.scenario)


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
    for name in unfound:
        _say(f"{name}: not found in {options.seeds} seeds")
    return 1 if unfound else 0


def _search(wanted: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Round after round every bug that is still unfound gets its next seeds; what is found is
    written at once. Names those that are left."""
    unfound = list(wanted)
    for first in range(1, options.seeds + 1, _PIECE):
        last = min(first + _PIECE - 1, options.seeds)
        pieces = [Piece(name, first, last) for name in unfound]
        for searched in in_crowd(search_piece, pieces, options.jobs):
            finding = searched.finding
            if finding is not None:
                write_findings([finding], options.findings)
                unfound.remove(finding.bug)
                _say(f"{finding.bug}: seed {finding.seed}, {finding.invariant}")
        if not unfound:
            break
    return unfound


def _say(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - a command speaks


if __name__ == "__main__":
    sys.exit(main())
