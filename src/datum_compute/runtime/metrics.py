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

What can be read off the queues and views of a runtime at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Histogram
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from datum_compute.api.plane import PlaneName
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.queue import WorkQueue

OUTCOMES = (
    *("done", "later", "terminal", "retry", "error", "timeout"),
    *("not_synced", "ignored", "dropped"),
)

_BUCKETS_S = (0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0)

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
    """The metrics of one controller, with its label bound once."""

    outcomes: dict[str, Counter]
    work_seconds: Histogram
    wait_seconds: Histogram
    retries: Counter
    replays: Counter
    mapping_errors: Counter


class RuntimeMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._reconciles = Counter(
            "runtime_reconciles",
            "Reconciles by how they ended.",
            ("controller", "outcome"),
            registry=registry,
        )
        self._work = self._histogram("runtime_reconcile_seconds", "How long reconciles take.")
        self._wait = self._histogram("runtime_queue_wait_seconds", "How long keys are ready.")
        self._retries = self._counter("runtime_retries", "Keys put back after a failure.")
        self._replays = self._counter("runtime_replays", "Lanes that overflowed and were refed.")
        self._mapping_errors = self._counter("runtime_mapping_errors", "Mappings that raised.")
        self._reverse_map = Counter(
            "reverse_map",
            "Changes along an edge that expects exactly one key.",
            ("edge", "outcome"),
            registry=registry,
        )

    def of(self, controller: str) -> ControllerMetrics:
        return ControllerMetrics(
            {name: self._reconciles.labels(controller, name) for name in OUTCOMES},
            self._work.labels(controller),
            self._wait.labels(controller),
            self._retries.labels(controller),
            self._replays.labels(controller),
            self._mapping_errors.labels(controller),
        )

    def count_mapping(self, edge: str, outcome: str) -> None:
        self._reverse_map.labels(edge, outcome).inc()

    def register_gauges(self, gauges: Iterable[ComputedGauge]) -> None:
        self._registry.register(_Gauges(tuple(gauges)))

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, ("controller",), registry=self._registry)

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, ("controller",), buckets=_BUCKETS_S, registry=self._registry)


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


Read = Callable[[], Iterable[GaugeSample]]


def gauges_of(
    queues: Mapping[str, WorkQueue], views: Mapping[PlaneName, CachedClient]
) -> tuple[ComputedGauge, ...]:
    return (*_of_queues(queues), *_of_planes(views), _planes(views), _objects(views))


def _of_queues(queues: Mapping[str, WorkQueue]) -> Iterable[ComputedGauge]:
    def gauge(name: str, text: str, read: Callable[[WorkQueue], float]) -> ComputedGauge:
        def readings() -> Iterable[GaugeSample]:
            return [((controller,), read(queue)) for controller, queue in queues.items()]

        return ComputedGauge(name, text, ("controller",), readings)

    yield gauge("runtime_queue_depth", "Ready keys.", len)
    yield gauge("runtime_queue_delayed", "Keys that wait for their time.", _delayed)
    yield gauge("runtime_queue_oldest_seconds", "Age of the oldest key.", WorkQueue.oldest_s)
    yield gauge("runtime_in_flight", "Reconciles that run now.", _in_flight)


def _of_planes(views: Mapping[PlaneName, CachedClient]) -> Iterable[ComputedGauge]:
    def gauge(name: str, text: str, read: Callable[[CachedClient], float]) -> ComputedGauge:
        def readings() -> Iterable[GaugeSample]:
            return [((plane,), read(view)) for plane, view in sorted(views.items())]

        return ComputedGauge(name, text, ("plane",), readings)

    yield gauge("runtime_view_age_seconds", "Age of the oldest view of a plane.", _age)
    yield gauge("runtime_views_not_synced", "Kinds of which no whole list is known.", _behind)


def _planes(views: Mapping[PlaneName, CachedClient]) -> ComputedGauge:
    text = "Planes that are engaged."
    return ComputedGauge("runtime_planes", text, (), lambda: [((), float(len(views)))])


def _objects(views: Mapping[PlaneName, CachedClient]) -> ComputedGauge:
    def readings() -> Iterable[GaugeSample]:
        counts: dict[str, int] = {}
        for view in views.values():
            for informer in view.informers():
                kind = informer.kind.resource
                counts[kind] = counts.get(kind, 0) + len(informer.cache)
        return [((kind,), float(count)) for kind, count in sorted(counts.items())]

    return ComputedGauge(
        "runtime_view_objects", "Cached objects, of all planes.", ("kind",), readings
    )


def _delayed(queue: WorkQueue) -> float:
    return queue.delayed


def _in_flight(queue: WorkQueue) -> float:
    return queue.in_flight


def _age(view: CachedClient) -> float:
    return max((informer.age() for informer in view.informers()), default=0.0)


def _behind(view: CachedClient) -> float:
    return sum(not informer.synced for informer in view.informers())
