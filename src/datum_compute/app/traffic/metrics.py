"""What is counted of sleeping and waking, as Prometheus families on a given registry."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from datum_compute.api.compute.scale_to_zero import SleepMode

_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0)


class PrometheusWakes:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._wakes = Counter(
            "datum_wakes",
            "Wakes of sleeping instances, by how they slept and whether they served in time.",
            ("mode", "outcome"),
            registry=registry,
        )
        self._parts = Histogram(
            "datum_wake_duration_seconds",
            "Where the time of a wake went: queue, engine, ready and first_byte, or total.",
            ("mode", "part"),
            buckets=_SECONDS,
            registry=registry,
        )
        self._sleeps = Counter(
            "datum_sleeps",
            "Idle instances that were put to sleep, by how, and whether they did sleep.",
            ("mode", "outcome"),
            registry=registry,
        )
        self._instances = Gauge(
            "datum_sleepers",
            "Instances that may sleep, by whether they execute or are asleep.",
            ("state",),
            registry=registry,
        )

    def woken(self, mode: SleepMode, parts_s: dict[str, float]) -> None:
        self._wakes.labels(mode, "served").inc()
        for part, seconds in parts_s.items():
            self._parts.labels(mode, part).observe(seconds)
        self._parts.labels(mode, "total").observe(sum(parts_s.values()))

    def not_woken(self, mode: SleepMode) -> None:
        self._wakes.labels(mode, "failed").inc()

    def slept(self, mode: SleepMode, *, asleep: bool) -> None:
        self._sleeps.labels(mode, "asleep" if asleep else "refused").inc()

    def count(self, asleep: int, all_of_them: int) -> None:
        self._instances.labels("asleep").set(asleep)
        self._instances.labels("executing").set(all_of_them - asleep)
