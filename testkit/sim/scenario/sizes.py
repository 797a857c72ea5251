"""How large worlds are. Most are small, because small ones find most and cost least; some are as
large as it takes for things to get into each other's way.

Each table is (value, weight); a size is drawn first, then everything else from its tables.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import TypeVar

T = TypeVar("T")

Table = Sequence[tuple[T, float]]


@dataclass(frozen=True, slots=True)
class Size:
    cells: Table[int]
    projects: Table[int]
    operations: Table[int]  # after the first, which creates something
    replicas: Table[int]
    faults: Table[int]


SMALL = Size(
    cells=((1, 9), (2, 1)),
    projects=((1, 19), (2, 1)),
    operations=((0, 3), (1, 5), (2, 1)),
    replicas=((1, 8), (2, 2)),
    faults=((1, 5), (2, 3), (3, 1)),
)
MEDIUM = Size(
    cells=((1, 4), (2, 5), (3, 1)),
    projects=((1, 3), (2, 1)),
    operations=((1, 2), (2, 4), (4, 3)),
    replicas=((1, 5), (2, 4), (3, 1)),
    faults=((1, 3), (2, 4), (4, 3)),
)
LARGE = Size(
    cells=((2, 6), (3, 4)),
    projects=((1, 1), (2, 1)),
    operations=((4, 4), (8, 1)),
    replicas=((1, 3), (2, 4), (3, 2), (5, 1)),
    faults=((2, 3), (4, 4), (8, 2)),
)
SIZES: Table[Size] = ((SMALL, 89), (MEDIUM, 9), (LARGE, 2))


def draw_size(random: Random) -> Size:
    return weighted(random, SIZES)


def weighted(random: Random, table: Table[T]) -> T:
    return random.choices([item for item, _ in table], [weight for _, weight in table])[0]
