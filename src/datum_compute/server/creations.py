"""How many objects are being created in a namespace right now.

A create that found its namespace active may still be on its way to the disk when the namespace
turns Terminating, is found empty and is finalized. Counting those closes the gap: a namespace
goes only when nothing is in it and nothing is on its way into it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from datum_compute.api.plane import PlaneName


class CreationsUnderWay:
    def __init__(self) -> None:
        self._counts: Counter[tuple[PlaneName, str]] = Counter()

    @contextmanager
    def counted(self, plane: PlaneName, namespace: str) -> Iterator[None]:
        place = (plane, namespace)
        self._counts[place] += 1
        try:
            yield
        finally:
            self._counts[place] -= 1
            if not self._counts[place]:
                del self._counts[place]

    def any_in(self, plane: PlaneName, namespace: str) -> bool:
        return self._counts[(plane, namespace)] > 0
