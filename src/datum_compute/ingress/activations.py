"""What each wake took, and the last one of each machine for its status.

A wake has four parts: the queue (until the engine was asked), the engine, getting ready (until the
connection was accepted) and the first byte of the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from datum_compute.api.compute.scale_to_zero import SleepMode, Wake
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import PlaneName

_WORDS_MAX = 1024


@dataclass(slots=True)
class WakeTimes:
    """Points in time of one wake, of the clock that only goes forward."""

    cell: PlaneName
    machine_id: str
    mode: SleepMode
    arrived_s: float
    engine_s: float = 0.0
    executes_s: float = 0.0
    connected_s: float = 0.0
    answered_s: float = 0.0
    counts: bool = True  # not if it turned out to have been awake

    @property
    def parts_s(self) -> dict[str, float]:
        """What has not happened took no time."""
        executes_s = self.executes_s or self.arrived_s
        connected_s = self.connected_s or executes_s
        answered_s = self.answered_s or connected_s
        return {
            "queue": max(0.0, executes_s - self.arrived_s - self.engine_s),
            "engine": self.engine_s,
            "ready": max(0.0, connected_s - executes_s),
            "first_byte": max(0.0, answered_s - connected_s),
        }


class WakeMetrics(Protocol):
    def woken(self, mode: SleepMode, parts_s: dict[str, float]) -> None: ...

    def not_woken(self, mode: SleepMode) -> None: ...

    def slept(self, mode: SleepMode, *, asleep: bool) -> None: ...

    def count(self, asleep: int, all_of_them: int) -> None: ...


class WakeBook:
    """``announce`` hears the cell and the id of a machine of which there is something new."""

    def __init__(
        self,
        unix_s: Callable[[], float],
        elapsed_s: Callable[[], float],
        metrics: WakeMetrics | None = None,
    ) -> None:
        self.last: dict[str, Wake] = {}
        self.announce: Callable[[PlaneName, str], None] = lambda _cell, _machine_id: None
        self._unix_s = unix_s
        self._elapsed_s = elapsed_s
        self._metrics = metrics

    def close(self, times: WakeTimes) -> None:
        """Nothing more will be known of this wake."""
        if times.counts:
            times.counts = False
            if self._metrics is not None:
                self._metrics.woken(times.mode, times.parts_s)
            self._keep(times, "")

    def failed(self, times: WakeTimes, why: str) -> None:
        times.counts = False
        if self._metrics is not None:
            self._metrics.not_woken(times.mode)
        self._keep(times, why[:_WORDS_MAX])

    def slept(self, mode: SleepMode, *, asleep: bool) -> None:
        if self._metrics is not None:
            self._metrics.slept(mode, asleep=asleep)

    def count(self, asleep: int, all_of_them: int) -> None:
        if self._metrics is not None:
            self._metrics.count(asleep, all_of_them)

    def forget(self, machine_id: str) -> None:
        self.last.pop(machine_id, None)

    def _keep(self, times: WakeTimes, failure: str) -> None:
        ago_s = self._elapsed_s() - times.arrived_s
        took = {part: round(1000 * seconds) for part, seconds in times.parts_s.items()}
        self.last[times.machine_id] = Wake(
            at=timestamp(self._unix_s() - ago_s),
            mode=times.mode,
            queue_milliseconds=took["queue"],
            engine_milliseconds=took["engine"],
            ready_milliseconds=took["ready"],
            first_byte_milliseconds=took["first_byte"],
            failure=failure,
        )
        self.announce(times.cell, times.machine_id)


# --- What is counted of sleeping and waking, as Prometheus families on a given registry


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
