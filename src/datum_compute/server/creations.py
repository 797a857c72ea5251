"""How many objects are being created in a namespace, and of a kind, right now.

A create that found its namespace active may still be on its way to the disk when the namespace
turns Terminating, is found empty and is finalized. Counting those closes the gap: a namespace
goes only when nothing is in it and nothing is on its way into it. The same holds for a custom kind
and its definition.
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
    def counted(self, plane: PlaneName, namespace: str, resource: str) -> Iterator[None]:
        # No resource begins with a slash, so the two cannot be taken for each other.
        places = [(plane, place) for place in (f"/{namespace}", resource)]
        self._counts.update(places)
        try:
            yield
        finally:
            self._counts.subtract(places)
            for place in places:
                if not self._counts[place]:
                    del self._counts[place]

    def any_in_namespace(self, plane: PlaneName, namespace: str) -> bool:
        return self._counts[(plane, f"/{namespace}")] > 0

    def any_of(self, plane: PlaneName, resource: str) -> bool:
        return self._counts[(plane, resource)] > 0
