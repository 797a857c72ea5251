"""Seeds that once found a bug still pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from testkit.sim.run.trial import Failure, run_trial
from testkit.sim.scenario.files import KnownSeed, read_known_seeds, scenario_text
from testkit.sim.scenario.generate import scenario_of

# Here only the newest seeds run; CI runs all of them.
KNOWN = read_known_seeds(Path(__file__).parent / "known_seeds.txt")[-3:]


@pytest.mark.parametrize("known", KNOWN, ids=lambda known: str(known.seed))
def test_a_known_seed_passes(known: KnownSeed) -> None:
    trial = run_trial(known.scenario)
    assert not isinstance(trial, Failure), f"{known.found}: {trial.message}"


def test_comments_and_empty_lines_are_ignored(tmp_path: Path) -> None:
    path = tmp_path / "seeds.txt"
    path.write_text("# why\n\n17  a lost delete\n4 a gate\n")
    assert read_known_seeds(path) == [
        KnownSeed(17, "a lost delete", scenario_of(17)),
        KnownSeed(4, "a gate", scenario_of(4)),
    ]


def test_a_stored_scenario_replaces_the_generated_one(tmp_path: Path) -> None:
    path = tmp_path / "seeds.txt"
    path.write_text("17 a lost delete\n")
    (tmp_path / "seeds").mkdir()
    (tmp_path / "seeds" / "17.json").write_text(scenario_text(scenario_of(18)))
    assert [known.scenario for known in read_known_seeds(path)] == [scenario_of(18)]


@pytest.mark.parametrize("line", ["17", "seventeen  a word"])
def test_a_line_without_seed_or_description_is_refused(tmp_path: Path, line: str) -> None:
    path = tmp_path / "seeds.txt"
    path.write_text(line)
    with pytest.raises(ValueError, match=r"seeds\.txt:1"):
        read_known_seeds(path)
