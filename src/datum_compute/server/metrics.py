"""Metrics of the server: requests, open watches, commits, objects, flow control.

Labels have a bounded set of values: known verbs and kinds; all others are ``other``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from datum_compute.api.http import Response
from datum_compute.api.kinds import KINDS
from datum_compute.server.access.attributes import Attributes
from datum_compute.server.flowcontrol.control import FlowControl
from datum_compute.server.verbs.event_encoder import EventEncoder
from datum_compute.store.store import Store
from datum_compute.telemetry.metrics import Counter, CounterSeries, Histogram, HistogramSeries

METRICS_PATH = "/metrics"
OTHER, NONE = "other", "none"
PLANES_MAX = 100

_VERBS = frozenset(
    {
        *("get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"),
        *("post", "put", "head", "options"),
    }
)
_RESOURCES_BY_KIND = {(kind.group, kind.plural): kind.resource for kind in KINDS}
_RESOURCES = frozenset(_RESOURCES_BY_KIND.values())
_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.5,
    5.0,
    10.0,
    30.0,
)
_ENTRIES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class ServerMetrics:
    """All metrics of one server, in one registry. ``page`` renders the whole registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._requests = Counter(
            "datum_apiserver_requests",
            "Requests that were answered, by verb, resource and status code.",
            ("verb", "resource", "code"),
            registry=registry,
        )
        self._durations = Histogram(
            "datum_apiserver_request_duration_seconds",
            "Time from a request to its response; of a watch, until its stream begins.",
            _SECONDS,
            ("verb", "resource"),
            registry=registry,
        )
        # By verb, resource and status code.
        self._request_series: dict[tuple[str, str, int], tuple[CounterSeries, HistogramSeries]] = {}
        self._in_flight = 0
        Gauge(
            "datum_apiserver_requests_in_flight",
            "Requests that are being answered now, without watches whose stream has begun.",
            registry=registry,
        ).set_function(lambda: self._in_flight)
        self._watches = Gauge(
            "datum_apiserver_open_watches", "Watches that are open now.", registry=registry
        )
        self._commit_seconds = Histogram(
            "datum_store_commit_duration_seconds",
            "Time until a batch of writes was durable; the count is the number of commits.",
            _SECONDS,
            registry=registry,
        ).labels()
        self._commit_entries = Histogram(
            "datum_store_commit_entries",
            "Writes that shared one commit.",
            _ENTRIES,
            registry=registry,
        ).labels()
        self._failed_commits = Counter(
            "datum_store_commit_failures",
            "Batches of writes that were refused, for example by a full disk.",
            registry=registry,
        ).labels()

    def register_server(
        self,
        store: Store,
        flow_control: FlowControl,
        encoder: EventEncoder,
        count_watches: Callable[[], int],
    ) -> None:
        """Add the metrics that are read from the state of a server."""
        self._watches.set_function(count_watches)
        self._registry.register(_StoreMetrics(store))
        self._registry.register(_FlowMetrics(flow_control))
        self._registry.register(_EncoderMetrics(encoder))

    # --- Requests

    def request_started(self) -> float:
        self._in_flight += 1
        return asyncio.get_running_loop().time()

    def request_finished(
        self, attributes: Attributes | None, response: Response, started_s: float
    ) -> None:
        self._in_flight -= 1
        verb, resource = _request_labels(attributes)
        duration_s = asyncio.get_running_loop().time() - started_s
        key = (verb, resource, response.status)
        found = self._request_series.get(key)
        if found is None:
            requests = self._requests.labels(verb, resource, str(response.status))
            found = requests, self._durations.labels(verb, resource)
            self._request_series[key] = found
        requests, durations = found
        requests.inc()
        durations.observe(duration_s)

    def request_cancelled(self) -> None:
        """The caller has disconnected, or the server stops."""
        self._in_flight -= 1

    # --- Commits

    def observe_commit(self, entries: int, seconds: float, ok: bool) -> None:
        """Record a batch of the store."""
        if not ok:
            self._failed_commits.inc()
            return
        self._commit_seconds.observe(seconds)
        self._commit_entries.observe(entries)

    def page(self) -> Response:
        return Response(200, generate_latest(self._registry), CONTENT_TYPE_LATEST)


class _EncoderMetrics(Collector):
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


class _StoreMetrics(Collector):
    """Counts objects when the metrics are read, so that writes need not count them."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def collect(self) -> Iterator[Metric]:
        objects, planes = self.describe()
        counts: dict[tuple[str, str], int] = {}
        names = self._store.planes()
        for number, plane in enumerate(names):
            plane_label = plane if number < PLANES_MAX else OTHER
            for resource, count in self._store.counts(plane).items():
                labels = (plane_label, resource if resource in _RESOURCES else OTHER)
                counts[labels] = counts.get(labels, 0) + count
        for labels, count in counts.items():
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


class _FlowMetrics(Collector):
    """Metrics of flow control, by priority level."""

    def __init__(self, flow_control: FlowControl) -> None:
        self._flow_control = flow_control

    def collect(self) -> Iterator[Metric]:
        waiting, waited, waited_s, work_s, rejected = self.describe()
        for level, counts in self._flow_control.counts.items():
            waiting.add_metric((level.name,), self._flow_control.waiting(level))
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


def _request_labels(attributes: Attributes | None) -> tuple[str, str]:
    if attributes is None:
        return NONE, NONE  # health and version, or rejected before the path was resolved
    is_known = attributes.verb in _VERBS and attributes.allowed_method
    verb = attributes.verb if is_known else OTHER
    if attributes.path:
        return verb, NONE
    return verb, _RESOURCES_BY_KIND.get((attributes.group, attributes.resource), OTHER)
