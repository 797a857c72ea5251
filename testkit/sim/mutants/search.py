"""``python -m testkit.sim.mutants.search``: find a seed for every mutant.

Each mutant is tried with seeds 1 to 1,000, the promising ones first. A seed that also fails without
the mutant proves nothing and is skipped. A finding is recorded, and then shrunk with the mutant
applied.

A finding must remain valid after small changes of the product, which change schedules. Therefore it
is not one exact run but a scenario with a few variations: the same operations and faults with other
schedules, latencies and ids. The mutant is found when one of the variations breaks a recorded
invariant.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from pathlib import Path

from datum_compute.telemetry.broken_pipe import exit_on_broken_pipe
from testkit.sim.mutants import cell, federation, runtime, store
from testkit.sim.mutants.mutant import Mutant
from testkit.sim.run.shrink import shrink
from testkit.sim.run.trial import Failure, Trial, Try, run_trial, small_scenarios
from testkit.sim.run.worker_pool import run_in_workers
from testkit.sim.run.world import bring_up
from testkit.sim.scenario.faults import FOR_EVER, Fault
from testkit.sim.scenario.files import read_scenario, scenario_text
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.operations import CreateWorkload, Operation
from testkit.sim.scenario.scenario import Scenario

MUTANTS: tuple[Mutant, ...] = tuple(
    sorted(
        (*cell.MUTANTS, *federation.MUTANTS, *runtime.MUTANTS, *store.MUTANTS),
        key=lambda mutant: mutant.name,
    )
)

TABLE = "findings.txt"
VARIATIONS = 6
SEEDS = 1000
_VARIATION_STRIDE = 30  # a multiple of the intervals at which scenario_of draws special worlds
_BATCH_SEEDS = 3  # seeds that one worker tries for one mutant
_SHRINK_RUNS = 30


def mutant_named(name: str) -> Mutant:
    found = [mutant for mutant in MUTANTS if mutant.name == name]
    if not found:
        raise LookupError(f"there is no mutant {name!r}; mutants: {', '.join(mutant_names())}")
    return found[0]


def mutant_names() -> list[str]:
    return [mutant.name for mutant in MUTANTS]


# --- findings


@dataclass(frozen=True, slots=True)
class MutantFinding:
    """A scenario that finds a mutant.

    ``seed`` is a seed that found it, not the lowest. ``scenario`` is what is left of it after
    shrinking. ``invariants`` are those that may break; the first one broke when it was found.
    """

    mutant: str
    seed: int
    invariants: tuple[str, ...]
    scenario: Scenario


def variations(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario, then the same operations and faults with other seeds."""
    for number in range(VARIATIONS + 1):
        yield replace(scenario, seed=scenario.seed + number * _VARIATION_STRIDE)


def write_findings(findings: Iterable[MutantFinding], folder: Path) -> None:
    """Replace the findings of the same mutants, and delete those of mutants that do not exist."""
    folder.mkdir(parents=True, exist_ok=True)
    known = {finding.mutant: finding for finding in read_findings(folder)}
    known.update({finding.mutant: finding for finding in findings})
    for path in folder.glob("*.json"):
        if path.stem not in known:
            path.unlink()
    for finding in known.values():
        (folder / f"{finding.mutant}.json").write_text(scenario_text(finding.scenario))
    (folder / TABLE).write_text("\n".join(_table_lines(known)) + "\n")


def read_findings(folder: Path) -> list[MutantFinding]:
    """Return the findings of existing mutants that the table lists."""
    table = folder / TABLE
    if not table.exists():
        return []
    existing = set(mutant_names())
    rows = [line.split() for line in table.read_text().splitlines()]
    return [
        MutantFinding(
            name, int(seed), tuple(invariants.split(",")), read_scenario(folder / f"{name}.json")
        )
        for name, seed, invariants in (row[:3] for row in rows if len(row) >= 3)
        if name in existing and seed.isdecimal()
    ]


def _table_lines(known: dict[str, MutantFinding]) -> Iterator[str]:
    yield "# Written by `make sim-mutants`. For each mutant: a seed of 1 to 1,000 that found it"
    yield "# (not the lowest: promising ones are tried first), the invariants that break, and the"
    yield "# size of the scenario in this folder, which CI replays."
    for name in mutant_names():
        finding = known.get(name)
        if finding is None:
            yield f"{name:36} not found"
        else:
            scenario = finding.scenario
            size = f"{len(scenario.operations)} operations, {len(scenario.faults)} faults"
            yield f"{name:36} {finding.seed:5} {','.join(finding.invariants):14} {size}"


# --- one trial


def run_with(mutant: Mutant, scenario: Scenario) -> Trial:
    bring_up(scenario.layout)  # cached for later runs, so it must be created without the mutant
    with mutant.apply():
        return run_trial(scenario)


def find_again(finding: MutantFinding, without_mutants: Try = run_trial) -> Failure | None:
    """Return the failure of the first variation that breaks a recorded invariant only with the
    mutant."""
    mutant = mutant_named(finding.mutant)
    for scenario in variations(finding.scenario):
        found = find(mutant, scenario, without_mutants)
        if found is not None and found.invariant in finding.invariants:
            return found
    return None


def find(mutant: Mutant, scenario: Scenario, without_mutants: Try = run_trial) -> Failure | None:
    """Return how the scenario fails with the mutant, or None if it also fails without it."""
    found = run_with(mutant, scenario)
    if not isinstance(found, Failure) or not mutant.is_found_by(found.invariant):
        return None
    return None if isinstance(without_mutants(scenario), Failure) else found


# --- the search


def seeds_for(mutant: Mutant, seeds: int) -> tuple[int, ...]:
    """Return the seeds, first those with a trigger of the mutant close to an operation, and small
    scenarios before large ones."""

    def order(scenario: Scenario) -> tuple[bool, float]:
        steps = (*scenario.operations, *scenario.faults)
        distance_s = min(
            (_distance_s(scenario, s) for s in steps if _name(s) in mutant.triggers), default=0
        )
        triggers = not mutant.triggers or not _properties(scenario).isdisjoint(mutant.triggers)
        size = len(steps) + len(scenario.layout.cells) + scenario.chaos_s / 10
        return not triggers, size + min(distance_s, 10.0)

    return tuple(s.seed for s in sorted(map(scenario_of, range(1, seeds + 1)), key=order))


def _properties(scenario: Scenario) -> set[str]:
    """Return the names of its operations and faults, and the properties that ``triggers`` may
    name."""
    found = {_name(step) for step in (*scenario.operations, *scenario.faults)}
    found.add(f"{len(scenario.layout.cells)} cells")
    found.add(f"{scenario.layout.managers} managers")
    if scenario.layout.has_scarce_quota:
        found.add("tight quota")
        created = [s for s in scenario.operations if isinstance(s, CreateWorkload)]
        gives_back = bool({"DeleteWorkload", "ScaleWorkload"} & found)
        if gives_back and sum(len(s.cities) for s in created) > 2:
            found.add("contenders")
    if any(getattr(fault, "for_s", 0.0) == FOR_EVER for fault in scenario.faults):
        found.add("cell lost")
    names = sorted({getattr(operation, "name", "") for operation in scenario.operations} - {""})
    if any(other.startswith(name) for name, other in pairwise(names)):
        found.add("names alike")
    replicas: dict[str, int] = {}
    for operation in scenario.operations:
        name = getattr(operation, "name", "")
        wanted = getattr(operation, "replicas", 0)
        if wanted and wanted < replicas.get(name, 0):
            found.add("scale-down")
        if wanted:
            replicas[name] = wanted
    return found


def _distance_s(scenario: Scenario, step: Operation | Fault) -> float:
    """Return how long after the last operation the step begins; 0 if an operation occurs during
    it."""
    ends_s = step.at_s + getattr(step, "for_s", 0.0)
    if any(step.at_s <= operation.at_s <= ends_s for operation in scenario.operations):
        return 0.0
    before = [o.at_s for o in scenario.operations if o.at_s <= step.at_s]
    return step.at_s - max(before) if before else step.at_s


def _name(step: Operation | Fault) -> str:
    return type(step).__name__


@dataclass(frozen=True, slots=True)
class Batch:
    mutant: str
    seeds: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BatchResult:
    batch: Batch
    finding: MutantFinding | None


def prepare_batch(batch: Batch) -> None:
    for seed in batch.seeds:
        bring_up(scenario_of(seed).layout)


def search_batch(batch: Batch) -> BatchResult:
    mutant = mutant_named(batch.mutant)
    for seed in batch.seeds:
        found = find(mutant, scenario_of(seed), _run_without_mutants)
        if found is not None:
            finding = MutantFinding(mutant.name, seed, (found.invariant,), found.scenario)
            return BatchResult(batch, finding)
    return BatchResult(batch, None)


@cache
def _run_without_mutants(scenario: Scenario) -> Trial:
    return run_trial(scenario)


def shrink_finding(finding: MutantFinding) -> MutantFinding:
    """Return the smallest scenario that fails with the mutant and passes without it.

    A small story that also finds it is preferred: CI then runs that story without mutants once for
    all of them.
    """
    mutant = mutant_named(finding.mutant)
    for small_scenario in small_scenarios():
        found = run_with(mutant, small_scenario)
        if isinstance(found, Failure) and found.invariant in finding.invariants:
            return replace(finding, scenario=small_scenario)

    def trial(scenario: Scenario) -> Trial:
        return run_with(mutant, scenario)

    def strict_trial(scenario: Scenario) -> Trial:
        found = trial(scenario)
        if isinstance(found, Failure) and isinstance(clean := run_trial(scenario), Failure):
            return replace(clean, invariant="also without the mutant")
        return found

    failure = Failure(finding.scenario, finding.invariants[0], "")
    small = shrink(failure, runs_max=_SHRINK_RUNS, trial=trial, keep_shuffled=True).failure
    if isinstance(run_trial(small.scenario), Failure):
        small = shrink(
            failure, runs_max=_SHRINK_RUNS, trial=strict_trial, keep_shuffled=True
        ).failure
    return replace(finding, scenario=small.scenario)


def with_other_invariants(finding: MutantFinding) -> MutantFinding:
    """Add the invariants with which other variations find the mutant."""
    mutant = mutant_named(finding.mutant)
    found = [find(mutant, scenario) for scenario in variations(finding.scenario)]
    seen = dict.fromkeys((*finding.invariants, *(f.invariant for f in found if f is not None)))
    return replace(finding, invariants=tuple(seen))


@exit_on_broken_pipe
def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m testkit.sim.mutants.search")
    parser.add_argument("mutants", nargs="*", metavar="MUTANT", help="only these (default: all)")
    parser.add_argument("--findings", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"seeds to try ({SEEDS})")
    parser.add_argument("--missing", action="store_true", help="only mutants without a finding")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    wanted = options.mutants or mutant_names()
    if options.missing:
        known = {finding.mutant for finding in read_findings(options.findings)}
        wanted = [name for name in wanted if name not in known]
    unfound = _search(wanted, options)
    _shrink(options)
    for name in unfound:
        _print(f"{name}: not found in {options.seeds} seeds")
    return 1 if unfound else 0


def _search(wanted: Sequence[str], options: argparse.Namespace) -> list[str]:
    """Try the next seeds of every mutant that is not found yet, round after round. Record findings
    at once. Return the mutants that were not found."""
    unfound = list(wanted)
    orders = {name: seeds_for(mutant_named(name), options.seeds) for name in wanted}
    first = 0
    while unfound and first < options.seeds:
        # Larger rounds for few mutants, so that no worker is idle.
        ahead = first + _BATCH_SEEDS * max(1, 2 * options.jobs // len(unfound))
        batches = [
            Batch(name, orders[name][at : at + _BATCH_SEEDS])
            for at in range(first, ahead, _BATCH_SEEDS)
            for name in unfound
        ]
        first = ahead
        for result in run_in_workers(search_batch, batches, options.jobs, prepare_batch):
            finding = result.finding
            if finding is not None and finding.mutant in unfound:
                write_findings([finding], options.findings)
                unfound.remove(finding.mutant)
                _print(f"{finding.mutant}: seed {finding.seed}, {finding.invariants[0]}")
    return unfound


def _shrink(options: argparse.Namespace) -> None:
    """Shrink the findings that are not shrunk yet."""
    whole = [f for f in read_findings(options.findings) if f.scenario == scenario_of(f.seed)]
    for finding in run_in_workers(shrink_finding, whole, options.jobs):
        write_findings([with_other_invariants(finding)], options.findings)
        _print(f"{finding.mutant}: shrunk to {len(finding.scenario.faults)} faults")


def _print(text: str) -> None:
    print(text, flush=True)  # noqa: T201 - this is a command


if __name__ == "__main__":
    sys.exit(main())
