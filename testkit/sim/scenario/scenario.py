"""A scenario: one run of the simulated world as a value.

A layout, the operations of users and the faults. Operations and faults are plain data: each of them
can be left out, and the rest stays as it is.

Which processes a world has, which planes each serves, and who asks whom.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from datum_compute.api.plane import HUB, PLATFORM, PlaneName, cell_plane, project_plane
from datum_compute.api.quotametrics import DEFAULT_LIMITS, INSTANCES
from testkit.sim.loop import ALWAYS, Span
from testkit.sim.scenario.faults import Fault
from testkit.sim.scenario.operations import Operation

Processes = Literal["one", "split", "managers"]

ALL_IN_ONE = "all"
CENTRE = "centre"
MANAGER = "manager"
MANAGERS = (MANAGER, "manager-2")  # in a world with two, one of which leads
USER = "user"


# More than the people of any world ask for.
PLENTY = 1_000


@dataclass(frozen=True, slots=True)
class WorldLayout:
    """``one``: everything in one process. ``split``: a centre, and a process for each cell.
    ``managers``: as split, with the controllers of the centre in a process of their own.
    ``managers`` of them elect a leader, if there are several.
    ``instances`` is how many the quota of each project allows; of the rest there is plenty."""

    processes: Processes
    projects: tuple[str, ...]
    cells: tuple[str, ...]
    instances: int = PLENTY
    managers: int = 1
    revocable: tuple[str, ...] = ()  # projects that people may delete
    # The cells have joined, each from a process of its own; they and the spares come and go.
    joined: bool = False
    spares: tuple[str, ...] = ()  # such as dfw-2, which may serve DFW in the place of dfw
    published: bool = False  # cells publish the ports of what runs there

    @property
    def planes(self) -> tuple[PlaneName, ...]:
        projects = (project_plane(name) for name in self.projects)
        return (PLATFORM, *projects, HUB, *(cell_plane(name) for name in self.all_cells))

    @property
    def all_cells(self) -> tuple[str, ...]:
        return (*self.cells, *self.spares)

    @property
    def has_scarce_quota(self) -> bool:
        return self.instances < PLENTY

    @property
    def limits(self) -> Mapping[str, int]:
        """Of the grant that each project gets."""
        plenty = {name: limit * PLENTY for name, limit in DEFAULT_LIMITS.items()}
        return {**plenty, INSTANCES.resource_type: self.instances}


def city_of(cell: str) -> str:
    return cell.partition("-")[0].upper()


def hosts_of(layout: WorldLayout) -> tuple[str, ...]:
    if layout.processes == "one":
        return (ALL_IN_ONE,)
    return (CENTRE, *managers_of(layout), *(host_of_cell(layout, c) for c in layout.all_cells))


def managers_of(layout: WorldLayout) -> tuple[str, ...]:
    return MANAGERS[: layout.managers] if layout.processes == "managers" else ()


def host_of_cell(layout: WorldLayout, cell: str) -> str:
    return ALL_IN_ONE if layout.processes == "one" else f"cell-{cell}"


def host_of_plane(layout: WorldLayout, plane: PlaneName) -> str:
    """Which host serves the plane."""
    if layout.processes == "one":
        return ALL_IN_ONE
    role, _, name = plane.partition("/")
    return host_of_cell(layout, name) if role == "cell" else CENTRE


def links_of(layout: WorldLayout) -> tuple[tuple[str, str], ...]:
    """Who asks whom, as (source, target), users left out."""
    if layout.processes == "one":
        return ((ALL_IN_ONE, ALL_IN_ONE),)
    run_hub = managers_of(layout) or (CENTRE,)
    found = [(host, CENTRE) for host in run_hub]
    for cell in layout.all_cells:
        host = host_of_cell(layout, cell)
        found += [*((runs, host) for runs in run_hub), (host, CENTRE), (host, host)]
    return tuple(dict.fromkeys(found))


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
