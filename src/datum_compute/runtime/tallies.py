"""How often things happen, counted in plain numbers that become a family when somebody looks.

A counter of the library has a lock, and making the dozen of each controller took a good part of the
start of a process.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client.core import CounterMetricFamily, Metric
from prometheus_client.registry import Collector


class Tally:
    """How often one thing happened."""

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def inc(self) -> None:
        self.count += 1


class Tallies(Collector):
    """A family: one tally for each combination of label values that was ever asked for."""

    def __init__(self, name: str, text: str, labels: tuple[str, ...]) -> None:
        self._name = name
        self._text = text
        self._labels = labels
        self._tallies: dict[tuple[str, ...], Tally] = {}

    def of(self, *values: str) -> Tally:
        found = self._tallies.get(values)
        if found is None:
            found = self._tallies[values] = Tally()
        return found

    def collect(self) -> Iterable[Metric]:
        family = CounterMetricFamily(self._name, self._text, labels=self._labels)
        for values, tally in self._tallies.items():
            family.add_metric(values, tally.count)
        yield family

    def describe(self) -> Iterable[Metric]:
        yield CounterMetricFamily(self._name, self._text, labels=self._labels)
