"""Measures how long each hostile request blocks the event loop, and its memory. Then measures the
memory that unread watches and lists take (``unread_watches.py``).

The requests are those of ``testkit/hostile/corpus.py``. Each run has a new server. Time is
processor time. The best of three runs counts, because other programs on the machine only add to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench import unread_watches
from bench.measurement import Measurement
from datum_compute.app.process import settle_memory
from testkit.hostile.corpus import CORPUS
from testkit.hostile.logs import LOGS
from testkit.hostile.measure import (
    BLOCKED_MAX_MS,
    GROWTH_MAX_MB,
    Cost,
    measure_cost,
    measure_log_cost,
)

RUNS = 3


def measure() -> list[Measurement]:
    settle_memory()  # as the server does
    found = []
    for hostile in CORPUS:
        costs = [asyncio.run(measure_cost(hostile)) for _ in range(RUNS)]
        statuses = {response.status for cost in costs for response in cost.responses}
        if statuses != {hostile.status}:
            raise SystemExit(f"{hostile.name}: expected {hostile.status}, got {statuses}")
        found += _measurements(hostile.name, costs)
    for log in LOGS:
        costs = [asyncio.run(measure_log_cost(log)) for _ in range(RUNS)]
        found += _measurements(log.name, costs)
    return found + unread_watches.measure()


def _measurements(name: str, costs: Sequence[Cost]) -> list[Measurement]:
    blocked_ms = min(cost.blocked_ms for cost in costs)
    growth_mb = min(cost.growth_mb for cost in costs)
    return [
        Measurement(f"{name}: blocked", blocked_ms, "ms", at_most=BLOCKED_MAX_MS),
        Measurement(f"{name}: memory", growth_mb, "MB", at_most=GROWTH_MAX_MB),
    ]
