"""What was found of planted bugs: one scenario file for each, and a table of them all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from datum_compute.testing.scenario import Scenario
from datum_compute.testing.scenario_file import read_scenario, scenario_text
from datum_compute.testing.teeth.bugs import BUGS, HOLES, PENDING

TABLE = "findings.txt"


@dataclass(frozen=True, slots=True)
class Finding:
    """``seed`` is one that found the bug, not the lowest: promising ones are tried first.
    ``scenario`` is what is left of it after shrinking."""

    bug: str
    seed: int
    invariant: str
    scenario: Scenario


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
        Finding(name, int(seed), invariant, read_scenario(folder / f"{name}.json"))
        for name, seed, invariant in (row[:3] for row in rows if len(row) >= 3)
        if name in planted and seed.isdecimal()
    ]


def _lines(known: dict[str, Finding]) -> Iterator[str]:
    yield "# Written by `make sim-teeth`. For each planted bug: a seed of 1 to 1,000 that found it"
    yield "# (not the lowest: promising ones are tried first), the invariant that broke, and the"
    yield "# size of the scenario beside this file, which is what CI replays."
    for bug in BUGS:
        finding = known.get(bug.name)
        if finding is None:
            yield f"{bug.name:36} not found"
        else:
            scenario = finding.scenario
            size = f"{len(scenario.operations)} operations, {len(scenario.faults)} faults"
            yield f"{bug.name:36} {finding.seed:5} {finding.invariant:14} {size}"
    for hole in HOLES:
        yield f"# not found: {hole.bug.name}: {hole.missing}"
    for pending in PENDING:
        yield f"# pending: {pending.name}: {pending.reason}"
