"""The command ``python -m testkit.sim``: replays, searches, files and campaigns."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterable
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import pytest

from testkit.sim.run import main as campaign
from testkit.sim.run import main as sim
from testkit.sim.run import trial as every_commit
from testkit.sim.run.shrink import ShrunkFailure
from testkit.sim.run.trial import Failure, Summary
from testkit.sim.run.worker_pool import WorkerLost, run_in_workers
from testkit.sim.scenario.faults import CrashAtCommit
from testkit.sim.scenario.files import read_scenario, scenario_text
from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.operations import CreateWorkload
from testkit.sim.scenario.scenario import Scenario, WorldLayout

SMALL = Scenario(
    seed=1,
    layout=WorldLayout("one", ("alpha",), ("dfw",)),
    operations=(CreateWorkload(0.0, "alpha", "web", "web:1", 1, ("DFW",)),),
    faults=(CrashAtCommit(0.0, "all", 3, durable=True),),
    chaos_s=3.0,
)


PREPARED: dict[int, int] = {}


def doubled(number: int) -> int:
    return 2 * number


def prepare(number: int) -> None:
    PREPARED[number] = 10 * number


def prepared(number: int) -> int:
    return PREPARED[number]


def refused(number: int) -> int:
    raise ValueError(f"{number} is refused")


def killed(_number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "small.json"
    path.write_text(scenario_text(SMALL))
    return path


def test_a_replay_prints_the_scenario_first_and_is_reproducible(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    outputs = []
    for _ in range(2):
        assert sim.main(["--scenario", str(file)]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    lines = outputs[0].splitlines()
    assert lines[: 1 + 2] == list(SMALL.lines())
    assert "1 crashes" in lines[-1]
    assert "fingerprint" in lines[-1]


def test_a_file_without_a_scenario_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "odd.json"
    path.write_text("[]")
    assert sim.main(["--scenario", str(path)]) == 2
    assert "odd.json cannot be replayed" in capsys.readouterr().err


def test_a_search_prints_how_many_passed(capsys: pytest.CaptureFixture[str]) -> None:
    calm = next(s.seed for s in map(scenario_of, count(1)) if _is_quick(s))
    assert sim.main(["--first", str(calm), "--seeds", "1", "--jobs", "1"]) == 0
    assert "1 passed, 0 failed" in capsys.readouterr().out


def test_fresh_seeds_depend_only_on_the_tree(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[int] = []

    def record_seeds(found: Iterable[sim.Batch], _count: int, _jobs: int) -> int:
        ran.extend(scenario.seed for batch in found for scenario in batch)
        return 0

    monkeypatch.setattr(sim, "_search", record_seeds)
    for tree in ("a" * 40, "a" * 40, "b" * 40):
        assert sim.main(["--tree", tree, "--seeds", "3"]) == 0
    assert sorted(ran[:3]) == sorted(ran[3:6])
    assert not set(ran[:3]) & set(ran[6:])
    assert min(ran) >= sim.FRESH_SEEDS_START
    assert f"fresh seeds {min(ran[:3])} to {max(ran[:3])}" in capsys.readouterr().out


def test_an_invalid_tree_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sim.main(["--tree", "HEAD"])
    assert "git rev-parse" in capsys.readouterr().err


def _is_quick(scenario: Scenario) -> bool:
    return len(scenario.operations) <= 3 and not scenario.faults and scenario.chaos_s < 20


def test_all_workers_return_results_of_an_endless_sequence() -> None:
    assert sorted(run_in_workers(doubled, range(10), jobs=2)) == [doubled(n) for n in range(10)]
    assert len(list(islice(run_in_workers(doubled, count(), jobs=2), 5))) == 5
    assert list(run_in_workers(doubled, [1, 2], jobs=1)) == [2, 4]


def test_workers_inherit_prepared_data() -> None:
    assert sorted(run_in_workers(prepared, range(4), jobs=2, prepare=prepare)) == [0, 10, 20, 30]


def test_an_error_in_a_worker_is_raised_to_the_caller() -> None:
    with pytest.raises(ValueError, match="1 is refused"):
        list(run_in_workers(refused, [1], jobs=2))
    with pytest.raises(WorkerLost, match="code -9"):
        list(run_in_workers(killed, [1], jobs=2))


def test_every_commit_is_a_crash_point_before_and_after() -> None:
    crashes = [story.faults[0] for story in islice(every_commit.crash_points(), 4)]
    points = [(c.commits, c.durable) for c in crashes if isinstance(c, CrashAtCommit)]
    assert points == [(1, False), (1, True), (2, False), (2, True)]


def test_a_report_contains_what_was_searched_and_found(tmp_path: Path) -> None:
    report = campaign.SearchReport(first_seed=40)
    report.add(Summary(40, ("CutLink", "CutLink"), 12, 60.0, {"request lost": 3}))
    failure = Failure(replace(SMALL, seed=41), "I6", "I6: not converged")
    report.add(Summary(41, ("CrashAtCommit",), failure=failure))
    report.shrink = [ShrunkFailure(failure, runs=9)]
    text = campaign.write_report(report, tmp_path / "report").read_text()
    plain = json.loads((tmp_path / "report" / "report.json").read_text())
    assert (plain["firstSeed"], plain["seeds"], plain["commits"]) == (40, 2, 12)
    assert plain["faults"] == {"CrashAtCommit": 1, "CutLink": 2}
    assert plain["failures"] == [{"seed": 41, "invariant": "I6", "message": "I6: not converged"}]
    assert "make sim SEED=41" in text
    (found,) = plain["shrunken"]
    assert read_scenario(tmp_path / "report" / found["file"]) == failure.scenario
