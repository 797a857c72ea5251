"""What the server counts: requests, open watches, commits, objects.

Labels come from lists that do not grow: verbs and kinds that we know, the rest is ``other``.
Requests are counted in plain numbers and become families when somebody looks: a counter and a
histogram of the library, with their locks, cost more than a small request may.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, generate_latest
from prometheus_client.core import HistogramMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
)
from prometheus_client.registry import Collector

from datum_compute.api.http import Response
from datum_compute.api.kinds import KINDS
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.flowcontrol.control import FlowControl
from datum_compute.server.verbs.event_encoder import EventEncoder
from datum_compute.store.store import Store

# --- One histogram in plain numbers, which become a family when somebody looks
# Every commit of the store is counted twice, and the lock and the walk over buckets of the
# library's histogram cost more than the commit of a small row in memory.


class Histogram(Collector):
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


# --- metrics


METRICS_PATH = "/metrics"
OTHER, NONE = "other", "none"
PLANES_MAX = 100

_VERBS = frozenset(
    {
        *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
        *("post", "put", "head", "options"),
    }
)
_KNOWN = {(kind.group, kind.plural): kind.resource for kind in KINDS}
_RESOURCES = frozenset(_KNOWN.values())
_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
_ENTRIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServerMetrics:
    """All families of one server, in one registry; ``page`` shows the whole registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._requests = _Requests()
        registry.register(self._requests)
        self._in_flight = 0
        Gauge(
            "datum_apiserver_requests_in_flight",
            "Requests that are being answered now, without watches whose stream has begun.",
            registry=registry,
        ).set_function(lambda: self._in_flight)
        self._watches = Gauge(
            "datum_apiserver_open_watches", "Watches that are open now.", registry=registry
        )
        self._commit_s = Histogram(
            "datum_store_commit_duration_seconds",
            "Time until a batch of writes was durable; the count is the number of commits.",
            _SECONDS,
        )
        self._commit_entries = Histogram(
            "datum_store_commit_entries", "Writes that shared one commit.", _ENTRIES
        )
        registry.register(self._commit_s)
        registry.register(self._commit_entries)
        self._failed_commits = Counter(
            "datum_store_commit_failures",
            "Batches of writes that were refused, for example by a full disk.",
            registry=registry,
        )

    # --- requests

    def begun(self) -> float:
        self._in_flight += 1
        return asyncio.get_running_loop().time()

    def ended(self, wanted: Attributes | None, response: Response, begun_s: float) -> None:
        self._in_flight -= 1
        seconds = asyncio.get_running_loop().time() - begun_s
        self._requests.count(_labels(wanted), response.status, seconds)

    def abandoned(self) -> None:
        """A request whose caller went away, or whose server stops."""
        self._in_flight -= 1

    # --- what is asked for when somebody looks

    def watch_open_watches(self, count: Callable[[], int]) -> None:
        self._watches.set_function(count)

    def watch_store(self, store: Store) -> None:
        self._registry.register(_Objects(store))

    def watch_flows(self, flows: FlowControl) -> None:
        self._registry.register(_Flows(flows))

    def watch_encoder(self, encoder: EventEncoder) -> None:
        self._registry.register(_WatchEvents(encoder))

    def committed(self, entries: int, seconds: float, ok: bool) -> None:
        """One batch of the store has ended."""
        if not ok:
            self._failed_commits.inc()
            return
        self._commit_s.observe(seconds)
        self._commit_entries.observe(entries)

    def page(self) -> Response:
        return Response(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)


@dataclass(slots=True)
class _Series:
    """The requests of one verb and resource."""

    by_code: dict[int, int] = field(default_factory=dict)
    by_bucket: list[int] = field(default_factory=lambda: [0] * (len(_SECONDS) + 1))
    total_s: float = 0.0


class _Requests(Collector):
    def __init__(self) -> None:
        self._series: dict[tuple[str, str], _Series] = {}

    def count(self, labels: tuple[str, str], code: int, seconds: float) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series[labels] = _Series()
        series.by_code[code] = series.by_code.get(code, 0) + 1
        series.by_bucket[bisect_left(_SECONDS, seconds)] += 1
        series.total_s += seconds

    def collect(self) -> Iterator[Metric]:
        requests, durations = self.describe()
        for (verb, resource), series in self._series.items():
            for code, count in series.by_code.items():
                requests.add_metric((verb, resource, str(code)), count)
            edges = (*map(str, _SECONDS), "+Inf")
            buckets = list(zip(edges, accumulate(series.by_bucket), strict=True))
            durations.add_metric((verb, resource), buckets, series.total_s)
        yield from (requests, durations)

    def describe(self) -> tuple[CounterMetricFamily, HistogramMetricFamily]:
        return (
            CounterMetricFamily(
                "datum_apiserver_requests",
                "Requests that were answered, by verb, resource and status code.",
                labels=("verb", "resource", "code"),
            ),
            HistogramMetricFamily(
                "datum_apiserver_request_duration_seconds",
                "Time from a request to its answer; of a watch, until its stream begins.",
                labels=("verb", "resource"),
            ),
        )


class _WatchEvents(Collector):
    def __init__(self, encoder: EventEncoder) -> None:
        self._encoder = encoder

    def collect(self) -> Iterator[Metric]:
        (events,) = self.describe()
        events.add_metric(("new",), self._encoder.encoded)
        events.add_metric(("shared",), self._encoder.shared)
        yield events

    def describe(self) -> tuple[CounterMetricFamily]:
        return (
            CounterMetricFamily(
                "datum_apiserver_watch_events",
                "Watch events by encoding: encoded for one watch, or shared with another watch.",
                labels=("encoding",),
            ),
        )


class _Objects(Collector):
    """Counted when somebody looks, so that writes need not count."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        objects, planes = self.describe()
        found: dict[tuple[str, str], int] = {}
        names = self._store.planes()
        for number, plane in enumerate(names):
            shown = plane if number < PLANES_MAX else OTHER
            for resource, count in self._store.counts(plane).items():
                key = (shown, resource if resource in _RESOURCES else OTHER)
                found[key] = found.get(key, 0) + count
        for labels, count in found.items():
            objects.add_metric(labels, count)
        planes.add_metric((), len(names))
        yield from (objects, planes)

    def describe(self) -> tuple[GaugeMetricFamily, GaugeMetricFamily]:
        return (
            GaugeMetricFamily(
                "datum_store_objects",
                "Objects that are stored, by plane and resource; planes beyond the first "
                f"{PLANES_MAX} count as {OTHER}.",
                labels=("plane", "resource"),
            ),
            GaugeMetricFamily("datum_store_planes", "Planes that are served."),
        )


class _Flows(Collector):
    """Metrics of flow control, by priority level."""

    def __init__(self, flows: FlowControl) -> None:
        self._flows = flows

    def collect(self) -> Iterator[Metric]:
        waiting, waited, waited_s, work_s, rejected = self.describe()
        for level, counts in self._flows.counts.items():
            waiting.add_metric((level.name,), self._flows.waiting(level))
            waited.add_metric((level.name,), counts.waited)
            waited_s.add_metric((level.name,), counts.waited_s)
            work_s.add_metric((level.name,), counts.work_s)
            for reason, count in counts.rejected.items():
                rejected.add_metric((level.name, reason), count)
        yield from (waiting, waited, waited_s, work_s, rejected)

    def describe(
        self,
    ) -> tuple[
        GaugeMetricFamily,
        CounterMetricFamily,
        CounterMetricFamily,
        CounterMetricFamily,
        CounterMetricFamily,
    ]:
        by_level = ("level",)
        return (
            GaugeMetricFamily(
                "datum_apiserver_flow_waiting",
                "Requests that wait for their turn, by priority level.",
                labels=by_level,
            ),
            CounterMetricFamily(
                "datum_apiserver_flow_waited",
                "Requests that had to wait for their turn, by priority level.",
                labels=by_level,
            ),
            CounterMetricFamily(
                "datum_apiserver_flow_wait_seconds",
                "Time that requests waited for their turn, by priority level.",
                labels=by_level,
            ),
            CounterMetricFamily(
                "datum_apiserver_flow_work_seconds",
                "Time on the event loop that requests and watches used, by priority level.",
                labels=by_level,
            ),
            CounterMetricFamily(
                "datum_apiserver_flow_rejected",
                "Requests rejected with 429: too many waited (queue-full: of one user on one "
                "plane; level-full: of the level), their bodies were too large together "
                "(bytes-full), or they waited too long (time-out).",
                labels=("level", "reason"),
            ),
        )


def _labels(wanted: Attributes | None) -> tuple[str, str]:
    if wanted is None:
        return NONE, NONE  # refused before it was understood, or health and version
    verb = wanted.verb if wanted.verb in _VERBS else OTHER
    if wanted.path:
        return verb, NONE
    return verb, _KNOWN.get((wanted.group, wanted.resource), OTHER)
