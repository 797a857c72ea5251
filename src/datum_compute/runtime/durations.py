"""How long things take, counted in plain numbers that become a histogram when somebody looks.

A histogram of the library walks over its buckets under a lock; two of those for each reconcile
would be a good part of one that changes nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

_SECONDS = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)
_EDGES = (*map(str, _SECONDS), "+Inf")


class Series:
    """The durations of one controller."""

    __slots__ = ("by_bucket", "total_s")

    def __init__(self) -> None:
        self.by_bucket = [0] * len(_EDGES)
        self.total_s = 0.0

    def observe(self, seconds: float) -> None:
        self.by_bucket[bisect_left(_SECONDS, seconds)] += 1
        self.total_s += seconds


class Durations(Collector):
    def __init__(self, name: str, text: str) -> None:
        self._name = name
        self._text = text
        self._series: dict[str, Series] = {}

    def of(self, controller: str) -> Series:
        return self._series.setdefault(controller, Series())

    def collect(self) -> Iterable[Metric]:
        family = HistogramMetricFamily(self._name, self._text, labels=("controller",))
        for controller, series in self._series.items():
            buckets = list(zip(_EDGES, accumulate(series.by_bucket), strict=True))
            family.add_metric((controller,), buckets, series.total_s)
        yield family

    def describe(self) -> Iterable[Metric]:
        yield HistogramMetricFamily(self._name, self._text, labels=("controller",))
