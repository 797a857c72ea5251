"""Metrics of the runtime, on a Prometheus registry that the caller passes in.

| metric | labels | value |
|---|---|---|
| ``runtime_reconciles_total`` | controller, outcome | reconciles by outcome, see below |
| ``runtime_reconcile_seconds`` | controller | duration of reconciles (histogram) |
| ``runtime_queue_wait_seconds`` | controller | time that keys were ready (histogram) |
| ``runtime_retries_total`` | controller | keys retried after a failure |
| ``runtime_queue_depth`` | controller | ready keys |
| ``runtime_queue_delayed`` | controller | keys waiting for a delay |
| ``runtime_queue_oldest_seconds`` | controller | age of the oldest ready key |
| ``runtime_in_flight`` | controller | running reconciles |
| ``runtime_replays_total`` | controller | replays of a full lane from the caches |
| ``runtime_mapping_errors_total`` | controller | changes whose mapping function raised |
| ``runtime_planes`` | | engaged planes |
| ``runtime_view_objects`` | kind | cached objects, on all planes |
| ``runtime_view_age_seconds`` | plane | age of the oldest cache of the plane |
| ``runtime_views_not_synced`` | plane | kinds without a complete list |
| ``reverse_map_total`` | edge, outcome | changes on an edge that must map to one key |

Outcomes of a reconcile: ``done``, ``later`` (Requeue), ``terminal``, ``retry`` (a race that the
next reconcile resolves), ``error`` (any other exception), ``timeout``, ``not_synced``, ``ignored``
(terminal, and the object is unchanged), ``dropped`` (plane not engaged). Outcomes of an edge:
``one``, ``none``, ``many``.

Gauges are computed when they are collected. A manager without a registry computes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from datum_compute.api.planes import PlaneName
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.queue import WorkQueue
from datum_compute.telemetry.metrics import (
    Counter,
    CounterSeries,
    Histogram,
    HistogramSeries,
)

OUTCOMES = (
    *("done", "later", "terminal", "retry", "error", "timeout"),
    *("not_synced", "ignored", "dropped"),
)

_BUCKETS_S = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)

GaugeSample = tuple[tuple[str, ...], float]  # label values, value


@dataclass(frozen=True, slots=True)
class ComputedGauge:
    """A gauge whose samples are computed when they are collected."""

    name: str
    text: str
    labels: tuple[str, ...]
    read: Callable[[], Iterable[GaugeSample]]


@dataclass(frozen=True, slots=True)
class ControllerMetrics:
    """The metrics of one controller, with its label bound once."""

    outcomes: dict[str, CounterSeries]
    work_seconds: HistogramSeries
    wait_seconds: HistogramSeries
    retries: CounterSeries
    replays: CounterSeries
    mapping_errors: CounterSeries


class RuntimeMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._reconciles = Counter(
            "runtime_reconciles",
            "Reconciles by outcome.",
            ("controller", "outcome"),
            registry=registry,
        )
        self._work = self._histogram("runtime_reconcile_seconds", "Duration of reconciles.")
        self._wait = self._histogram("runtime_queue_wait_seconds", "Time that keys were ready.")
        self._retries = self._counter("runtime_retries", "Keys retried after a failure.")
        self._replays = self._counter("runtime_replays", "Replays of a full lane from the caches.")
        self._mapping_errors = self._counter(
            "runtime_mapping_errors", "Changes whose mapping function raised."
        )
        self._reverse_map = Counter(
            "reverse_map",
            "Changes on an edge that must map to exactly one key.",
            ("edge", "outcome"),
            registry=registry,
        )

    def for_controller(self, name: str) -> ControllerMetrics:
        return ControllerMetrics(
            {outcome: self._reconciles.labels(name, outcome) for outcome in OUTCOMES},
            self._work.labels(name),
            self._wait.labels(name),
            self._retries.labels(name),
            self._replays.labels(name),
            self._mapping_errors.labels(name),
        )

    def count_mapping(self, edge: str, outcome: str) -> None:
        self._reverse_map.labels(edge, outcome).inc()

    def register_gauges(self, gauges: Iterable[ComputedGauge]) -> None:
        self._registry.register(_GaugeCollector(tuple(gauges)))

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ("controller",), registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, _BUCKETS_S, ("controller",), registry=self._registry)


class _GaugeCollector(Collector):
    def __init__(self, gauges: tuple[ComputedGauge, ...]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterable[Metric]:
        for gauge in self._gauges:
            family = GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)
            for labels, value in gauge.read():
                family.add_metric(labels, value)
            yield family

    def describe(self) -> Iterable[Metric]:
        """Return the families without samples, so that registration computes nothing."""
        for gauge in self._gauges:
            yield GaugeMetricFamily(gauge.name, gauge.text, labels=gauge.labels)


def runtime_gauges(
    queues: Mapping[str, WorkQueue], clients: Mapping[PlaneName, CachedClient]
) -> tuple[ComputedGauge, ...]:
    return (*_queue_gauges(queues), *_plane_gauges(clients), _planes(clients), _objects(clients))


def _queue_gauges(queues: Mapping[str, WorkQueue]) -> Iterable[ComputedGauge]:
    def gauge(name: str, text: str, read: Callable[[WorkQueue], float]) -> ComputedGauge:
        def samples() -> Iterable[GaugeSample]:
            return [((controller,), read(queue)) for controller, queue in queues.items()]

        return ComputedGauge(name, text, ("controller",), samples)

    yield gauge("runtime_queue_depth", "Ready keys.", len)
    yield gauge(
        "runtime_queue_delayed", "Keys waiting for a delay.", lambda queue: queue.delayed_count
    )
    yield gauge("runtime_queue_oldest_seconds", "Age of the oldest ready key.", WorkQueue.oldest_s)
    yield gauge("runtime_in_flight", "Running reconciles.", lambda queue: queue.in_flight)


def _plane_gauges(clients: Mapping[PlaneName, CachedClient]) -> Iterable[ComputedGauge]:
    def gauge(name: str, text: str, read: Callable[[CachedClient], float]) -> ComputedGauge:
        def samples() -> Iterable[GaugeSample]:
            return [((plane,), read(client)) for plane, client in sorted(clients.items())]

        return ComputedGauge(name, text, ("plane",), samples)

    yield gauge("runtime_view_age_seconds", "Age of the oldest cache of a plane.", _oldest_cache_s)
    yield gauge("runtime_views_not_synced", "Kinds without a complete list.", _count_not_synced)


def _planes(clients: Mapping[PlaneName, CachedClient]) -> ComputedGauge:
    return ComputedGauge(
        "runtime_planes", "Engaged planes.", (), lambda: [((), float(len(clients)))]
    )


def _objects(clients: Mapping[PlaneName, CachedClient]) -> ComputedGauge:
    def samples() -> Iterable[GaugeSample]:
        counts: dict[str, int] = {}
        for client in clients.values():
            for informer in client.informers():
                kind = informer.kind.resource
                counts[kind] = counts.get(kind, 0) + len(informer.cache)
        return [((kind,), float(count)) for kind, count in sorted(counts.items())]

    return ComputedGauge(
        "runtime_view_objects", "Cached objects, on all planes.", ("kind",), samples
    )


def _oldest_cache_s(client: CachedClient) -> float:
    return max((informer.age() for informer in client.informers()), default=0.0)


def _count_not_synced(client: CachedClient) -> float:
    return sum(not informer.is_synced for informer in client.informers())
