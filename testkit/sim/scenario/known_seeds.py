"""Seeds that once found something: a file with one on each line, and what it was.

# a comment
417   the projector forgot a projection when its deployment came back

What a seed means changes with the tables of ``drawing.py``. So its scenario is kept as well, in a
folder beside the file that is called like it: ``known_seeds/417.json``, which ``make sim SEED=417
KEEP=<file>`` writes. Without one the seed is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from testkit.sim.scenario.generate import scenario_of
from testkit.sim.scenario.scenario import Scenario
from testkit.sim.scenario.scenario_file import read_scenario


@dataclass(frozen=True, slots=True)
class KnownSeed:
    seed: int
    found: str
    scenario: Scenario


def read_known_seeds(path: Path) -> list[KnownSeed]:
    return [
        _known(path, number, line)
        for number, line in enumerate(path.read_text().splitlines(), start=1)
        if line.strip() and not line.startswith("#")
    ]


def _known(path: Path, number: int, line: str) -> KnownSeed:
    seed, _, found = line.strip().partition(" ")
    if not seed.isdecimal() or not found.strip():
        raise ValueError(f"{path}:{number}: a line is a seed and what it once found, not {line!r}")
    kept = path.with_suffix("") / f"{seed}.json"
    scenario = read_scenario(kept) if kept.exists() else scenario_of(int(seed))
    return KnownSeed(int(seed), found.strip(), scenario)
