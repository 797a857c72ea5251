"""Seeds that once found something: a file with one on each line, and what it was.

# a comment
417   the projector forgot a projection when its deployment came back
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class KnownSeed:
    seed: int
    found: str


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
    return KnownSeed(int(seed), found.strip())
