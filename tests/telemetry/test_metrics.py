"""Counters and histograms have the series that prometheus_client would have."""

from __future__ import annotations

import prometheus_client
from prometheus_client import CollectorRegistry, generate_latest

from datum_compute.telemetry.metrics import Counter, Histogram

BOUNDS = (0.001, 0.5, 10.0)
VALUES = (0.0, 0.001, 0.0011, 0.5, 7, 10.0, 11.0)


def page_lines(registry: CollectorRegistry) -> list[str]:
    """Return the lines of the page without the creation times, which we do not record."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if "_created" not in line]


def test_series_equal_those_of_prometheus_client() -> None:
    ours, theirs = CollectorRegistry(), CollectorRegistry()
    counter = Counter("things", "Things.", ("kind", "code"), registry=ours)
    expected_counter = prometheus_client.Counter(
        "things", "Things.", ("kind", "code"), registry=theirs
    )
    histogram = Histogram("took", "Time.", BOUNDS, ("kind",), registry=ours)
    expected_histogram = prometheus_client.Histogram(
        "took", "Time.", ("kind",), buckets=BOUNDS, registry=theirs
    )
    for kind, code in (("a", "200"), ("b", "200"), ("a", "200"), ('quoted "\\\n', "404")):
        counter.labels(kind, code).inc()
        expected_counter.labels(kind, code).inc()
    counter.labels("bound", "0")
    expected_counter.labels("bound", "0")
    for value in VALUES:
        histogram.labels("a").observe(value)
        expected_histogram.labels("a").observe(value)
    assert page_lines(ours) == page_lines(theirs)


def test_a_metric_without_labels_is_zero_before_it_is_counted() -> None:
    registry = CollectorRegistry()
    counter = Counter("things", "Things.", registry=registry)
    Histogram("took", "Time.", BOUNDS, registry=registry)
    assert registry.get_sample_value("things_total") == 0
    assert registry.get_sample_value("took_count") == 0
    counter.labels().inc()
    assert registry.get_sample_value("things_total") == 1


def test_a_metric_without_a_registry_counts_too() -> None:
    counter = Counter("things", "Things.", ("kind",), registry=None)
    counter.labels("a").inc()
    assert counter.labels("a").value == 1
