"""A measured value, and functions to measure, print and save values."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Measurement:
    name: str
    value: float
    unit: str
    floor: str = ""  # name of the measurement of the same bench to compare with
    at_least: float | None = None  # goals
    at_most: float | None = None

    @property
    def verdict(self) -> str:
        """Return whether the goal is met; empty without a goal."""
        if self.at_least is not None:
            met = self.value >= self.at_least
            return f"{'met' if met else 'MISSED'}: at least {self.at_least:,.0f}"
        if self.at_most is not None:
            met = self.value <= self.at_most
            return f"{'met' if met else 'MISSED'}: at most {self.at_most:,.4g}"
        return ""


def rate(step: Callable[[], int], *, seconds: float = 1.0) -> float:
    """Return units per second. ``step`` returns how many units it has done."""
    start = time.perf_counter()
    done = 0
    while (spent := time.perf_counter() - start) < seconds:
        done += step()
    return done / spent


async def rate_async(
    step: Callable[[int], Awaitable[object]], *, workers: int, seconds: float = 2.0
) -> float:
    """Return calls per second of ``workers`` that call ``step`` without pause."""
    start = time.perf_counter()

    async def work(worker: int) -> int:
        done = 0
        while time.perf_counter() - start < seconds:
            await step(worker)
            done += 1
        return done

    done = await asyncio.gather(*(work(worker) for worker in range(workers)))
    return sum(done) / (time.perf_counter() - start)


def p50_ms(taken_s: list[float]) -> float:
    return sorted(taken_s)[len(taken_s) // 2] * 1000


def p99_ms(taken_s: list[float]) -> float:
    return sorted(taken_s)[min(len(taken_s) * 99 // 100, len(taken_s) - 1)] * 1000


def table(measurements: list[Measurement]) -> str:
    values = {m.name: m.value for m in measurements}
    width = max(len(m.name) for m in measurements)
    lines = []
    for m in measurements:
        share = f"{_ratio(m.value / values[m.floor])} of {m.floor}" if m.floor else ""
        number = f"{m.value:>12,.0f}" if m.value >= 100 else f"{m.value:>12.2f}"
        words = "; ".join(filter(None, (share, m.verdict)))
        lines.append(f"  {m.name:<{width}}  {number} {m.unit:<10}  {words}".rstrip())
    return "\n".join(lines)


def _ratio(value: float) -> str:
    return f"{value:4.1f}x" if value >= 2 else f"{value:5.0%}"


def keep(bench: str, measurements: list[Measurement]) -> Path:
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{bench}.json"
    path.write_text(json.dumps([asdict(m) for m in measurements], indent=2) + "\n")
    return path
