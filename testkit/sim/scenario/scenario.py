"""A scenario: one run of the simulated world as a value.

A layout, the operations of users and the faults. Operations and faults are plain data: each of them
can be left out, and the rest stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from testkit.sim.scenario.faults import Fault
from testkit.sim.scenario.layout import WorldLayout
from testkit.sim.scenario.operations import Operation
from testkit.sim.virtual_loop import ALWAYS, Span


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    layout: WorldLayout
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]
    chaos_s: float  # faults heal then, and the calm begins
    fresh: bool = False  # from empty disks, instead of planes that have been brought up before
    shuffled_s: Span = ALWAYS  # else what is ready first comes first

    def lines(self) -> Iterator[str]:
        """One line for each part, in the order of time; what a replay prints first."""
        yield f"seed {self.seed}: {self.layout}, chaos for {self.chaos_s:g} s, fresh={self.fresh}"
        if self.shuffled_s != ALWAYS:
            begins_s, ends_s = self.shuffled_s
            told = f"only from {begins_s:g} to {ends_s:g} s" if ends_s > begins_s else "never"
            yield f"{'':9} shuffled {told}; else first come, first served"
        for step in sorted((*self.operations, *self.faults), key=lambda step: step.at_s):
            yield f"{step.at_s:9.3f} {_told(step)}"


def _told(step: Operation | Fault) -> str:
    fields = ", ".join(
        f"{name}={getattr(step, name)!r}" for name in step.__slots__ if name != "at_s"
    )
    return f"{type(step).__name__}({fields})"
