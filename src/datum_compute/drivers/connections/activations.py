"""Activations: how long each wake took, as metrics and as the last wake in a machine's status.

A wake has four parts: queue (until the call of the engine), engine, ready (until the connection is
accepted) and first byte (of the response).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from prometheus_client import CollectorRegistry, Gauge

from datum_compute.api.compute.scale_to_zero import SleepMode, Wake
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import PlaneName
from datum_compute.api.traffic import WakeTimes
from datum_compute.telemetry.metrics import Counter, Histogram

_FAILURE_CHARS_MAX = 1024


class WakeMetrics(Protocol):
    def observe_wake(self, mode: SleepMode, parts_s: dict[str, float]) -> None: ...

    def count_failure(self, mode: SleepMode) -> None: ...

    def count_sleep(self, mode: SleepMode, *, asleep: bool) -> None: ...

    def set_counts(self, asleep: int, total: int) -> None: ...


class WakeHistory:
    """The last wake of each machine.

    ``on_change`` is called with the cell and the id of a machine whose last wake has changed.
    """

    def __init__(
        self,
        unix_s: Callable[[], float],
        elapsed_s: Callable[[], float],
        metrics: WakeMetrics | None = None,
    ) -> None:
        self.last: dict[str, Wake] = {}
        self.on_change: Callable[[PlaneName, str], None] = lambda _cell, _machine_id: None
        self._unix_s = unix_s
        self._elapsed_s = elapsed_s
        self._metrics = metrics

    def finish(self, times: WakeTimes) -> None:
        """Record a wake that succeeded. Does nothing if the wake is recorded already."""
        if times.is_pending:
            times.is_pending = False
            if self._metrics is not None:
                self._metrics.observe_wake(times.mode, times.parts_s)
            self._set_last(times, "")

    def record_failure(self, times: WakeTimes, reason: str) -> None:
        times.is_pending = False
        if self._metrics is not None:
            self._metrics.count_failure(times.mode)
        self._set_last(times, reason[:_FAILURE_CHARS_MAX])

    def record_sleep(self, mode: SleepMode, *, asleep: bool) -> None:
        if self._metrics is not None:
            self._metrics.count_sleep(mode, asleep=asleep)

    def set_counts(self, asleep: int, total: int) -> None:
        if self._metrics is not None:
            self._metrics.set_counts(asleep, total)

    def remove(self, machine_id: str) -> None:
        self.last.pop(machine_id, None)

    def _set_last(self, times: WakeTimes, failure: str) -> None:
        age_s = self._elapsed_s() - times.arrived_s
        duration_ms = {part: round(1000 * seconds) for part, seconds in times.parts_s.items()}
        self.last[times.machine_id] = Wake(
            at=timestamp(self._unix_s() - age_s),
            mode=times.mode,
            queue_milliseconds=duration_ms["queue"],
            engine_milliseconds=duration_ms["engine"],
            ready_milliseconds=duration_ms["ready"],
            first_byte_milliseconds=duration_ms["first_byte"],
            failure=failure,
        )
        self.on_change(times.cell, times.machine_id)


# --- Metrics


_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 2.5, 5.0, 10.0)


class PrometheusWakeMetrics:
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
            _BUCKETS_S,
            ("mode", "part"),
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

    def observe_wake(self, mode: SleepMode, parts_s: dict[str, float]) -> None:
        self._wakes.labels(mode, "served").inc()
        for part, seconds in parts_s.items():
            self._parts.labels(mode, part).observe(seconds)
        self._parts.labels(mode, "total").observe(sum(parts_s.values()))

    def count_failure(self, mode: SleepMode) -> None:
        self._wakes.labels(mode, "failed").inc()

    def count_sleep(self, mode: SleepMode, *, asleep: bool) -> None:
        self._sleeps.labels(mode, "asleep" if asleep else "refused").inc()

    def set_counts(self, asleep: int, total: int) -> None:
        self._instances.labels("asleep").set(asleep)
        self._instances.labels("executing").set(total - asleep)
