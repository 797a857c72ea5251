"""``python -m testkit.sim``: run many seeds, replay one, or search for hours.

Output about a run contains no wall-clock time, so two replays of a seed are equal. The duration of
a search is written to standard error.

Fresh seeds are derived from the git tree (``--tree``): every commit runs new seeds, and a clone of
that commit runs the same ones.

A campaign searches fresh seeds for hours and writes a report as JSON and as text.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TextIO

from datum_compute.telemetry.broken_pipe import exit_on_broken_pipe
from testkit.sim.run.shrink import ShrunkFailure, shrink
from testkit.sim.run.trial import Failure, Summary, crash_points, run_trial, summary_of
from testkit.sim.run.worker_pool import run_in_workers
from testkit.sim.run.world import Outcome, bring_up, initial_layout
from testkit.sim.scenario.files import BadScenario, read_known_seeds, read_scenario, scenario_text
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.scenario import Scenario, WorldLayout

SHRUNK_MAX = 20  # further failures are only listed: one bug breaks many seeds


@dataclass(slots=True)
class SearchReport:
    """What was searched and found so far. It is complete at any time, also after an interrupt."""

    first_seed: int
    seeds: int = 0
    virtual_s: float = 0.0
    commits: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    sometimes: Counter[str] = field(default_factory=Counter)
    failures: list[Failure] = field(default_factory=list)
    shrink: list[ShrunkFailure] = field(default_factory=list)

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
    return summary_of(scenario, run_trial(scenario))


def prepare_seed(seed: int) -> None:
    bring_up(scenario_of(seed).layout)


def search(
    first_seed: int, jobs: int, *, should_continue: Callable[[], bool]
) -> Iterator[SearchReport]:
    """Yield the report after every seed, while ``should_continue`` returns True."""
    report = SearchReport(first_seed)

    def seeds() -> Iterator[int]:
        seed = first_seed
        while should_continue():
            yield seed
            seed += 1

    for summary in run_in_workers(run_seed, seeds(), jobs, prepare_seed):
        report.add(summary)
        yield report


def shrink_failures(report: SearchReport, jobs: int) -> None:
    """Shrink the first failure of each invariant, then others, up to SHRUNKEN_MAX."""
    firsts = {failure.invariant: failure for failure in reversed(report.failures)}
    others = [f for f in report.failures if f is not firsts[f.invariant]]
    chosen = [*firsts.values(), *others][:SHRUNK_MAX]
    report.shrink = list(run_in_workers(shrink, chosen, jobs))


def write_report(report: SearchReport, folder: Path) -> Path:
    """Write report.json, report.txt, and one scenario file for each shrunken failure."""
    folder.mkdir(parents=True, exist_ok=True)
    for found in report.shrink:
        (folder / _file_name(found)).write_text(scenario_text(found.failure.scenario))
    (folder / "report.json").write_text(json.dumps(_plain(report), indent=2) + "\n")
    (folder / "report.txt").write_text("\n".join(_lines(report)) + "\n")
    return folder / "report.txt"


def _file_name(found: ShrunkFailure) -> str:
    failure = found.failure
    return f"seed-{failure.scenario.seed}-{failure.invariant}.json"


def _plain(report: SearchReport) -> dict[str, object]:
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
            for s in report.shrink
        ],
    }


def _lines(report: SearchReport) -> Iterator[str]:
    last = report.first_seed + report.seeds - 1
    yield f"seeds {report.first_seed} to about {last}: {report.seeds} run"
    years = report.virtual_s / (365.25 * 24 * 3600)
    yield f"virtual time: {report.virtual_s:.0f} s ({years:.3f} years), commits: {report.commits}"
    yield f"failures: {len(report.failures)}"
    for failure in report.failures:
        seed, message = failure.scenario.seed, failure.message.splitlines()[0]
        yield f"  seed {seed}: {message}    (make sim SEED={seed})"
    for found in report.shrink:
        yield ""
        yield f"shrunken to {_file_name(found)}: {found.failure.message.splitlines()[0]}"
        yield from (f"  {line}" for line in found.failure.scenario.lines())
    for title, counts in (("faults met", report.faults), ("sometimes", report.sometimes)):
        yield ""
        yield f"{title}:"
        yield from (f"  {count:8} {name}" for name, count in sorted(counts.items()))


SEEDS = 500
FRESH_SEEDS_START = 1_000_000_000
Batch = tuple[Scenario, ...]
_BATCH = 6  # scenarios that one worker runs one after the other
_PROGRESS_EVERY_S = 10.0
_SHRUNK_AT_MOST = 3  # after a search; a campaign shrinks more


@exit_on_broken_pipe
def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if options.seed is not None:
        if options.keep is not None:
            options.keep.write_text(scenario_text(scenario_of(options.seed)))
        return _replay(scenario_of(options.seed))
    if options.scenario is not None:
        return _replay_file(options.scenario)
    if options.hours is not None:
        return _campaign(options)
    if options.every_commit:
        return _search(((point,) for point in crash_points()), None, options.jobs)
    if options.known is not None:
        known = [known.scenario for known in read_known_seeds(options.known)]
        return _search(batches(known), len(known), options.jobs)
    first = options.first if options.tree is None else first_fresh_seed(options.tree)
    seeds = range(first, first + options.seeds)
    if options.tree is not None:
        _print(f"fresh seeds {seeds[0]} to {seeds[-1]}, derived from tree {options.tree}")
    return _search(batches(map(scenario_of, seeds)), len(seeds), options.jobs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m testkit.sim")
    add = parser.add_argument
    add("--seeds", type=int, default=SEEDS, help=f"how many seeds to run ({SEEDS})")
    add("--first", type=int, default=1, help="the first seed (1)")
    add("--tree", type=_tree_hash, metavar="HASH", help="derive the first seed from a git tree")
    add("--seed", type=int, help="replay one seed and print its scenario and trace")
    add("--keep", type=Path, metavar="FILE", help="and write the scenario of the seed to a file")
    add("--scenario", type=Path, metavar="FILE", help="replay a scenario from a file")
    add("--known", type=Path, metavar="FILE", help="run the seeds that a file lists")
    add("--every-commit", action="store_true", help="crash around every commit of a small story")
    add("--hours", type=float, help="search for so long, and write a report")
    add("--report", type=Path, default=Path("sim-reports"), metavar="FOLDER", help="where to")
    add("--jobs", type=int, default=os.cpu_count() or 1, help="processes to use (all cores)")
    return parser


def _tree_hash(text: str) -> str:
    if re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", text) is None:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a git tree; pass the output of: git rev-parse 'HEAD^{{tree}}'"
        )
    return text


def first_fresh_seed(tree: str) -> int:
    """Return a seed above all manually numbered ones. Equal trees have equal seeds."""
    return FRESH_SEEDS_START + int(tree[:10], 16)


# --- one run


def _replay_file(path: Path) -> int:
    try:
        return _replay(read_scenario(path))
    except (OSError, BadScenario) as error:
        _print(f"{path} cannot be replayed: {error}", sys.stderr)
        return 2


def _replay(scenario: Scenario) -> int:
    """Print a replay. Two runs of one scenario print the same, in any process."""
    for line in scenario.lines():
        _print(line)
    trial = run_trial(scenario)
    for line in trial.trace:
        _print(line)
    if isinstance(trial, Failure):
        _print(f"seed {scenario.seed} broke {trial.invariant}: {trial.message}")
        return 1
    _print(_format_outcome(scenario.seed, trial))
    return 0


def _format_outcome(seed: int, outcome: Outcome) -> str:
    return (
        f"seed {seed}: {outcome.commits} commits, {outcome.crashes} crashes, "
        f"{outcome.virtual_s:.0f} virtual seconds, fingerprint {outcome.fingerprint[:16]}; "
        "every invariant held"
    )


# --- many runs


def batches(scenarios: Iterable[Scenario]) -> list[Batch]:
    """Group scenarios that start from the same layout, whose platform is brought up once. The most
    frequent layouts come last, so that no worker ends with a long batch."""
    by_layout: dict[WorldLayout, list[Scenario]] = {}
    for scenario in scenarios:
        by_layout.setdefault(initial_layout(scenario.layout), []).append(scenario)
    return [
        tuple(group[first : first + _BATCH])
        for group in sorted(by_layout.values(), key=len)
        for first in range(0, len(group), _BATCH)
    ]


def run_batch(batch: Batch) -> list[Summary]:
    return [summary_of(scenario, run_trial(scenario)) for scenario in batch]


def prepare_batch(batch: Batch) -> None:
    """Bring up the platform that the scenarios of the batch start from."""
    for scenario in batch:
        if not scenario.fresh:
            bring_up(scenario.layout)


def _search(found: Iterable[Batch], count: int | None, jobs: int) -> int:
    """Run all scenarios and print failures as they occur. An interrupt ends the search with the
    results so far."""
    done, failures, interrupted = 0, [], False
    progress = _Progress(count, time.monotonic)
    try:
        for summary in chain.from_iterable(run_in_workers(run_batch, found, jobs, prepare_batch)):
            done += 1
            if summary.failure is not None:
                failures.append(summary.failure)
                _print(f"seed {summary.seed} broke {_first_line(summary.failure)}")
            progress.tell(done, len(failures))
    except KeyboardInterrupt:
        interrupted = True
    _print(
        f"{done - len(failures)} passed, {len(failures)} failed" + " (interrupted)" * interrupted
    )
    progress.end(done)
    if interrupted:
        return 130
    for failure in failures[:_SHRUNK_AT_MOST]:
        _print_shrunk(failure)
    return 1 if failures else 0


def _print_shrunk(failure: Failure) -> None:
    found = shrink(failure)
    seed = failure.scenario.seed
    _print(f"\nseed {seed}, shrunken in {found.runs} runs: {_first_line(found.failure)}")
    for line in found.failure.scenario.lines():
        _print(f"  {line}")
    if failure.scenario == scenario_of(seed):
        _print(f"replay it whole: make sim SEED={seed}")
    _print(
        f"replay it shrunken, from a file with this: make sim SCENARIO=<file>\n"
        f"{scenario_text(found.failure.scenario)}"
    )


class _Progress:
    """Prints a line at intervals on standard error."""

    def __init__(self, count: int | None, clock: Callable[[], float]) -> None:
        self._of = f" of {count}" if count is not None else ""
        self._clock = clock
        self._began_s = self._printed_s = clock()

    def tell(self, done: int, failed: int) -> None:
        if self._clock() - self._printed_s >= _PROGRESS_EVERY_S:
            self._printed_s = self._clock()
            _print(f"... {done}{self._of}, {failed} failed", sys.stderr)

    def end(self, done: int) -> None:
        took_s = self._clock() - self._began_s
        _print(f"{took_s:.0f} s, {done / max(took_s, 0.001):.1f} seeds/s", sys.stderr)


# --- campaigns


def _campaign(options: argparse.Namespace) -> int:
    clock = time.monotonic
    ends_s = clock() + options.hours * 3600
    progress = _Progress(None, clock)
    report = SearchReport(options.first)
    try:
        searched = search(options.first, options.jobs, should_continue=lambda: clock() < ends_s)
        for report in searched:
            progress.tell(report.seeds, len(report.failures))
    except KeyboardInterrupt:
        _print("interrupted; the report contains the results so far", sys.stderr)
    shrink_failures(report, options.jobs)
    written = write_report(report, options.report)
    _print(f"{report.seeds} seeds, {len(report.failures)} failed; the report is in {written}")
    progress.end(report.seeds)
    return 1 if report.failures else 0


def _first_line(failure: Failure) -> str:
    first = failure.message.splitlines()[0] if failure.message else ""
    return first if first.startswith(failure.invariant) else f"{failure.invariant}: {first}"


def _print(text: str, to: TextIO | None = None) -> None:
    print(text, file=to or sys.stdout, flush=True)


if __name__ == "__main__":
    sys.exit(main())
