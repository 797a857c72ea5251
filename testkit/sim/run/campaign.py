"""A long search on fresh seeds, and the report of it: JSON for programs, text for people."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from testkit.sim.run.crowd import in_crowd
from testkit.sim.run.shrink import Shrunken, shrunken
from testkit.sim.run.trial import Failure, Summary, summary_of, tried
from testkit.sim.run.world import brought_up
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.scenario_file import scenario_text

SHRUNKEN_MAX = 20  # failures beyond these are only named: one bug breaks many seeds


@dataclass(slots=True)
class Report:
    """What was searched and found so far; also complete when the search is interrupted."""

    first_seed: int
    seeds: int = 0
    virtual_s: float = 0.0
    commits: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    sometimes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    shrunken: list[Shrunken] = field(default_factory=list)

    def add(self, summary: Summary) -> None:
        self.seeds += 1
        self.virtual_s += summary.virtual_s
        self.commits += summary.commits
        self.faults.update(summary.faults)
        self.sometimes.update(summary.sometimes)
        if summary.failure is not None:
            self.failures.append(summary.failure)


def run_seed(seed: int) -> Summary:
    scenario = scenario_of(seed)
    return summary_of(scenario, tried(scenario))


def prepare_seed(seed: int) -> None:
    brought_up(scenario_of(seed).layout)


def search(first_seed: int, jobs: int, *, goes_on: Callable[[], bool]) -> Iterator[Report]:
    """The report after every seed, as long as ``goes_on`` says so."""
    report = Report(first_seed)

    def seeds() -> Iterator[int]:
        seed = first_seed
        while goes_on():
            yield seed
            seed += 1

    for summary in in_crowd(run_seed, seeds(), jobs, prepare_seed):
        report.add(summary)
        yield report


def shrink_failures(report: Report, jobs: int) -> None:
    """The first of each invariant, then others, up to SHRUNKEN_MAX."""
    firsts = {failure.invariant: failure for failure in reversed(report.failures)}
    others = [f for f in report.failures if f is not firsts[f.invariant]]
    chosen = [*firsts.values(), *others][:SHRUNKEN_MAX]
    report.shrunken = list(in_crowd(shrunken, chosen, jobs))


def write_report(report: Report, folder: Path) -> Path:
    """report.json, report.txt, and one scenario file for each shrunken failure."""
    folder.mkdir(parents=True, exist_ok=True)
    for found in report.shrunken:
        (folder / _file_name(found)).write_text(scenario_text(found.failure.scenario))
    (folder / "report.json").write_text(json.dumps(_plain(report), indent=2) + "\n")
    (folder / "report.txt").write_text("\n".join(_lines(report)) + "\n")
    return folder / "report.txt"


def _file_name(found: Shrunken) -> str:
    failure = found.failure
    return f"seed-{failure.scenario.seed}-{failure.invariant}.json"


def _plain(report: Report) -> dict[str, object]:
    return {
        "firstSeed": report.first_seed,
        "seeds": report.seeds,
        "virtualSeconds": round(report.virtual_s),
        "commits": report.commits,
        "faults": dict(sorted(report.faults.items())),
        "sometimes": dict(sorted(report.sometimes.items())),
        "failures": [
            {"seed": f.scenario.seed, "invariant": f.invariant, "message": f.message}
            for f in report.failures
        ],
        "shrunken": [
            {
                "seed": s.failure.scenario.seed,
                "invariant": s.failure.invariant,
                "message": s.failure.message,
                "runs": s.runs,
                "file": _file_name(s),
            }
            for s in report.shrunken
        ],
    }


def _lines(report: Report) -> Iterator[str]:
    last = report.first_seed + report.seeds - 1
    yield f"seeds {report.first_seed} to about {last}: {report.seeds} run"
    years = report.virtual_s / (365.25 * 24 * 3600)
    yield f"virtual time: {report.virtual_s:.0f} s ({years:.3f} years), commits: {report.commits}"
    yield f"failures: {len(report.failures)}"
    for failure in report.failures:
        seed, message = failure.scenario.seed, failure.message.splitlines()[0]
        yield f"  seed {seed}: {message}    (make sim SEED={seed})"
    for found in report.shrunken:
        yield ""
        yield f"shrunken to {_file_name(found)}: {found.failure.message.splitlines()[0]}"
        yield from (f"  {line}" for line in found.failure.scenario.lines())
    for title, counts in (("faults met", report.faults), ("sometimes", report.sometimes)):
        yield ""
        yield f"{title}:"
        yield from (f"  {count:8} {name}" for name, count in sorted(counts.items()))
