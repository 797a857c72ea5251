"""What was found of planted bugs: one scenario file for each, and a table of them all.

A finding must outlive small changes of the product, which shift who comes first. So it is not one
exact run but a scenario with a few variations: the same story under other schedules, latencies and
ids. The bug is found again when one of them shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from datum_compute.testing.scenario import Scenario
from datum_compute.testing.scenario_file import read_scenario, scenario_text
from datum_compute.testing.teeth.bugs import BUGS, PENDING

TABLE = "findings.txt"
VARIATIONS = 6
# Seeds that far apart look at the same mirrors and are compared (I21) alike.
_STRIDE = 30


@dataclass(frozen=True, slots=True)
class Finding:
    """``seed`` is one that found the bug, not the lowest: promising ones are tried first.
    ``scenario`` is what is left of it after shrinking. ``invariants``: a bug may be caught by one
    or by another, whichever looks first; the first one is that by which it was found."""

    bug: str
    seed: int
    invariants: tuple[str, ...]
    scenario: Scenario


def variations(scenario: Scenario) -> Iterator[Scenario]:
    """The scenario itself, and then with other seeds; operations and faults stay as they are."""
    for number in range(VARIATIONS + 1):
        yield replace(scenario, seed=scenario.seed + number * _STRIDE)


def write_findings(findings: Iterable[Finding], folder: Path) -> None:
    """Replaces what is there of the same bugs; the table is sorted, so that changes are small."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {finding.bug: finding for finding in read_findings(folder)}
    known.update({finding.bug: finding for finding in findings})
    for path in folder.glob("*.json"):
        if path.stem not in known:
            path.unlink()
    for finding in known.values():
        (folder / f"{finding.bug}.json").write_text(scenario_text(finding.scenario))
    (folder / TABLE).write_text("\n".join(_lines(known)) + "\n")


def read_findings(folder: Path) -> list[Finding]:
    """Of bugs that are still planted; the table is read, because it is the record."""
    table = folder / TABLE
    if not table.exists():
        return []
    planted = {bug.name for bug in BUGS}
    rows = [line.split() for line in table.read_text().splitlines()]
    return [
        Finding(
            name, int(seed), tuple(invariants.split(",")), read_scenario(folder / f"{name}.json")
        )
        for name, seed, invariants in (row[:3] for row in rows if len(row) >= 3)
        if name in planted and seed.isdecimal()
    ]


def _lines(known: dict[str, Finding]) -> Iterator[str]:
    yield "# Written by `make sim-teeth`. For each planted bug: a seed of 1 to 1,000 that found it"
    yield "# (not the lowest: promising ones are tried first), the invariants that break, and the"
    yield "# size of the scenario beside this file, which is what CI replays."
    for bug in BUGS:
        finding = known.get(bug.name)
        if finding is None:
            yield f"{bug.name:36} not found"
        else:
            scenario = finding.scenario
            size = f"{len(scenario.operations)} operations, {len(scenario.faults)} faults"
            yield f"{bug.name:36} {finding.seed:5} {','.join(finding.invariants):14} {size}"
    for pending in PENDING:
        yield f"# pending: {pending.name}: {pending.reason}"
