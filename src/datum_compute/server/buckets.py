"""One histogram in plain numbers, which become a family when somebody looks.

Every commit of the store is counted twice, and the lock and the walk over buckets of the library's
histogram cost more than the commit of a small row in memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector


class Buckets(Collector):
    def __init__(self, name: str, text: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._text = text
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._total = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._bounds, value)] += 1
        self._total += value

    def collect(self) -> Iterable[Metric]:
        edges = (*(str(float(bound)) for bound in self._bounds), "+Inf")
        buckets = list(zip(edges, accumulate(self._counts), strict=True))
        family = HistogramMetricFamily(self._name, self._text)
        family.add_metric((), buckets, self._total)
        yield family

    def describe(self) -> Iterable[Metric]:
        yield HistogramMetricFamily(self._name, self._text)
