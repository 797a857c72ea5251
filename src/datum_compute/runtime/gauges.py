"""What can be read off the queues and views of a runtime at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from datum_compute.api.plane import PlaneName
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.metrics import ComputedGauge, GaugeSample
from datum_compute.runtime.queue import WorkQueue

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
