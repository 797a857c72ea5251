"""One run of the world as a value: who is there, what people do, what goes wrong.

``scenario_of(seed)`` draws all of it from the seed. The two tuples are plain data: each line can be
left out, and the rest stays what it was.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from datum_compute.testing.drawing import (
    draw_data,
    draw_faults,
    draw_fleeting,
    draw_layout,
    draw_operations,
    draw_window_s,
)
from datum_compute.testing.faults import Fault
from datum_compute.testing.layout import WorldLayout
from datum_compute.testing.operations import Operation
from datum_compute.testing.sizes import draw_size
from datum_compute.testing.stories import with_story
from datum_compute.testing.streams import stream
from datum_compute.testing.virtual_loop import ALWAYS, Span

# After the last operation and fault have begun; what lasts longer is healed.
_TAIL_S = 10.0
# In every n-th world users soon ask for more instances than their project may have.
_TIGHT_EVERY, _TIGHT = 6, 3
# In every n-th world workloads refer to ConfigMaps and Secrets.
_DATA_EVERY = 5
# In every n-th world namespaces of projects come and go.
_FLEETING_EVERY, _FLEETING = 4, 1


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


def scenario_of(seed: int) -> Scenario:
    size = draw_size(stream(seed, "layout", "size"))
    layout = draw_layout(stream(seed, "layout"), size)
    if seed % _TIGHT_EVERY == 0:
        layout = replace(layout, instances=_TIGHT)
    window_s = draw_window_s(stream(seed, "layout", "window"))
    operations = draw_operations(stream(seed, "workload"), layout, size, window_s)
    if seed % _DATA_EVERY == 0:
        operations = draw_data(stream(seed, "workload", "data"), layout, operations, window_s)
    if seed % _FLEETING_EVERY == _FLEETING:
        operations += draw_fleeting(stream(seed, "workload", "namespaces"), layout, window_s)
    scenario = Scenario(
        seed=seed,
        layout=layout,
        operations=operations,
        faults=draw_faults(stream(seed, "faults"), layout, size, window_s),
        chaos_s=window_s + _TAIL_S,
        fresh=seed % 10 == 0,
    )
    return with_story(stream(seed, "workload", "story"), scenario)


def _told(step: Operation | Fault) -> str:
    fields = ", ".join(
        f"{name}={getattr(step, name)!r}" for name in step.__slots__ if name != "at_s"
    )
    return f"{type(step).__name__}({fields})"
