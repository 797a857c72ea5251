"""Metrics of a port, and log lines about reached limits."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

LOG_EVERY_S = 60.0
_NAME_CHARS_MAX = 100

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _LimitCount:
    count: int = 0
    unlogged: int = 0
    next_log_s: float = 0.0


class PortMetrics(Collector):
    """``states`` returns connections by state, ``unsent`` the bytes that clients have not read."""

    def __init__(self, registry: CollectorRegistry | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._reached: dict[str, _LimitCount] = {}
        self._closed: dict[tuple[str, str], int] = {}
        self.states: Callable[[], dict[str, int]] = dict
        self.unsent: Callable[[], int] = int
        self.trims = 0
        if registry is not None:
            registry.register(self)

    def note_limit(self, limit: str, client: str) -> None:
        """Count a reached limit. Each limit is logged at most once a minute."""
        reached = self._reached.setdefault(limit, _LimitCount())
        reached.count += 1
        reached.unlogged += 1
        now_s = self._clock()
        if now_s >= reached.next_log_s:
            reached.next_log_s = now_s + LOG_EVERY_S
            _log.warning(
                "connection limit %s reached by %r (%d times since the last report)",
                limit,
                client[:_NAME_CHARS_MAX],
                reached.unlogged,
            )
            reached.unlogged = 0

    def note_closed(self, activity: str, reason: str) -> None:
        """Count a connection that the port closed, by its activity at that time."""
        self._closed[(activity, reason)] = self._closed.get((activity, reason), 0) + 1

    def note_trim(self) -> None:
        self.trims += 1

    def limit_count(self, limit: str) -> int:
        reached = self._reached.get(limit)
        return reached.count if reached is not None else 0

    def closed_count(self, activity: str, reason: str) -> int:
        return self._closed.get((activity, reason), 0)

    def collect(self) -> Iterator[Metric]:
        connections, unsent, limits, closed, trims = self.describe()
        for state, count in self.states().items():
            connections.add_metric((state,), count)
        unsent.add_metric((), self.unsent())
        for limit, reached in self._reached.items():
            limits.add_metric((limit,), reached.count)
        for labels, count in self._closed.items():
            closed.add_metric(labels, count)
        trims.add_metric((), self.trims)
        yield from (connections, unsent, limits, closed, trims)

    def describe(
        self,
    ) -> tuple[
        GaugeMetricFamily,
        GaugeMetricFamily,
        CounterMetricFamily,
        CounterMetricFamily,
        CounterMetricFamily,
    ]:
        return (
            GaugeMetricFamily(
                "datum_apiserver_connections",
                "Open connections: anonymous (no valid credentials yet), of users, or of reserved "
                "callers (controllers, cells, operators).",
                labels=("state",),
            ),
            GaugeMetricFamily(
                "datum_apiserver_unsent_bytes",
                "Bytes of responses and watches that clients have not read yet.",
            ),
            CounterMetricFamily(
                "datum_apiserver_connection_limits_reached",
                "How often a limit was reached: connections of an address, anonymous, of a user or "
                "total, files (descriptors), send-buffer-user and send-buffer-total.",
                labels=("limit",),
            ),
            CounterMetricFamily(
                "datum_apiserver_connections_closed",
                "Connections that the server closed, by activity (handshake, idle, request, "
                "response, watch) and reason (a limit, or slow: the client did not read in time).",
                labels=("activity", "reason"),
            ),
            CounterMetricFamily(
                "datum_apiserver_memory_trims",
                "How often freed memory was returned to the system after a flood.",
            ),
        )
