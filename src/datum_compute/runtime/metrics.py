"""What the runtime counts, as Prometheus families on a registry that is passed in.

| metric | labels | says |
|---|---|---|
| ``runtime_reconciles_total`` | controller, outcome | how reconciles ended, see below |
| ``runtime_reconcile_seconds`` | controller | how long each took (histogram) |
| ``runtime_queue_wait_seconds`` | controller | how long each key was ready (histogram) |
| ``runtime_retries_total`` | controller | keys put back after a failure |
| ``runtime_queue_depth`` | controller | keys that are ready |
| ``runtime_queue_delayed`` | controller | keys that wait for their time |
| ``runtime_queue_oldest_seconds`` | controller | for how long the oldest of the ready waits |
| ``runtime_in_flight`` | controller | reconciles that run now |
| ``runtime_replays_total`` | controller | lanes that overflowed and were fed from the caches |
| ``runtime_mapping_errors_total`` | controller | changes whose mapping function raised |
| ``runtime_planes`` | | planes that are engaged |
| ``runtime_view_objects`` | kind | cached objects, of all planes |
| ``runtime_view_age_seconds`` | plane | age of the plane's oldest view |
| ``runtime_views_not_synced`` | plane | kinds of which no whole list is known |
| ``reverse_map_total`` | edge, outcome | changes along an edge that expects one key |

Outcomes of a reconcile: ``done``, ``later``, ``terminal``, ``retry`` (a race that the next pass
settles), ``error`` (anything else that was raised), ``timeout``, ``not_synced``, ``ignored``
(woken, but terminal and unchanged), ``dropped`` (of a plane that is not engaged). Outcomes of an
edge: ``one``, ``none``, ``many``.

Gauges are computed when somebody asks; a runtime without a registry computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from datum_compute.runtime.durations import Durations, Series
from datum_compute.runtime.tallies import Tallies, Tally

OUTCOMES = (
    *("done", "later", "terminal", "retry", "error", "timeout"),
    *("not_synced", "ignored", "dropped"),
)

GaugeSample = tuple[tuple[str, ...], float]  # label values, and the value


@dataclass(frozen=True, slots=True)
class ComputedGauge:
    """A value that is read when it is asked for, once for each combination of labels."""

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[], Iterable[GaugeSample]]


@dataclass(frozen=True, slots=True)
class ControllerMetrics:
    """The counters of one controller, looked up once."""

    outcomes: dict[str, Tally]
    work_seconds: Series
    wait_seconds: Series
    retries: Tally
    replays: Tally
    mapping_errors: Tally


class RuntimeMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._reconciles = self._tallies(
            "runtime_reconciles", "Reconciles by how they ended.", ("controller", "outcome")
        )
        self._work = Durations("runtime_reconcile_seconds", "How long reconciles take.")
        self._wait = Durations("runtime_queue_wait_seconds", "How long keys are ready.")
        registry.register(self._work)
        registry.register(self._wait)
        self._retries = self._tallies("runtime_retries", "Keys put back after a failure.")
        self._replays = self._tallies("runtime_replays", "Lanes that overflowed and were refed.")
        self._mapping_errors = self._tallies("runtime_mapping_errors", "Mappings that raised.")
        self._reverse_map = self._tallies(
            "reverse_map",
            "Changes along an edge that expects exactly one key.",
            ("edge", "outcome"),
        )

    def of(self, controller: str) -> ControllerMetrics:
        return ControllerMetrics(
            {name: self._reconciles.of(controller, name) for name in OUTCOMES},
            self._work.of(controller),
            self._wait.of(controller),
            self._retries.of(controller),
            self._replays.of(controller),
            self._mapping_errors.of(controller),
        )

    def count_mapping(self, edge: str, outcome: str) -> None:
        self._reverse_map.of(edge, outcome).inc()

    def register_gauges(self, gauges: Iterable[ComputedGauge]) -> None:
        self._registry.register(_Gauges(tuple(gauges)))

    def _tallies(self, name: str, text: str, labels: tuple[str, ...] = ("controller",)) -> Tallies:
        made = Tallies(name, text, labels)
        self._registry.register(made)
        return made


class _Gauges(Collector):
    def __init__(self, gauges: tuple[ComputedGauge, ...]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        for gauge in self._gauges:
            family = GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
            for labels, value in gauge.read():
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterable[Metric]:
        """Known without reading, so that registering asks nobody."""
        for gauge in self._gauges:
            yield GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
