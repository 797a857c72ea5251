"""A scenario: one run of the simulated world as a value.

It consists of a layout (which processes exist, which planes each serves, which links they use), the
operations of users and the faults. Operations and faults are plain data: each can be left out
without changing the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from datum_compute.api.planes import HUB, PLATFORM, PlaneName, cell_plane, project_plane
from datum_compute.api.quota import DEFAULT_LIMITS, INSTANCES
from testkit.sim.loop import ALWAYS, Span
from testkit.sim.scenario.faults import Fault
from testkit.sim.scenario.operations import Operation

Processes = Literal["one", "split", "managers"]

ALL_IN_ONE = "all"
CENTER = "centre"
MANAGER = "manager"
MANAGERS = (MANAGER, "manager-2")  # of worlds with two managers, one of which leads
USER = "user"


# More instances than the users of any world want.
PLENTY = 1_000


@dataclass(frozen=True, slots=True)
class WorldLayout:
    """The processes, projects and cells of a world.

    - ``one``: everything in one process.
    - ``split``: a center, and a process for each cell.
    - ``managers``: as split, with the controllers of the center in processes of their own. If
      ``managers`` is more than one, they elect a leader.

    ``instances`` is the instance quota of each project; other quota is sufficient.
    """

    processes: Processes
    projects: tuple[str, ...]
    cells: tuple[str, ...]
    instances: int = PLENTY
    managers: int = 1
    revocable: tuple[str, ...] = ()  # projects that operators may delete
    # The cells have joined, each from a process of its own; they and the spares leave and join.
    joined: bool = False
    spares: tuple[str, ...] = ()  # such as dfw-2, which may serve DFW instead of dfw
    published: bool = False  # cells publish the ports of their machines

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
        """Return the limits of the grant of each project."""
        plenty = {name: limit * PLENTY for name, limit in DEFAULT_LIMITS.items()}
        return {**plenty, INSTANCES.resource_type: self.instances}


def city_of(cell: str) -> str:
    return cell.partition("-")[0].upper()


def hosts_of(layout: WorldLayout) -> tuple[str, ...]:
    if layout.processes == "one":
        return (ALL_IN_ONE,)
    return (CENTER, *managers_of(layout), *(host_of_cell(layout, c) for c in layout.all_cells))


def managers_of(layout: WorldLayout) -> tuple[str, ...]:
    return MANAGERS[: layout.managers] if layout.processes == "managers" else ()


def host_of_cell(layout: WorldLayout, cell: str) -> str:
    return ALL_IN_ONE if layout.processes == "one" else f"cell-{cell}"


def host_of_plane(layout: WorldLayout, plane: PlaneName) -> str:
    """Return the host that serves the plane."""
    if layout.processes == "one":
        return ALL_IN_ONE
    role, _, name = plane.partition("/")
    return host_of_cell(layout, name) if role == "cell" else CENTER


def links_of(layout: WorldLayout) -> tuple[tuple[str, str], ...]:
    """Return the links as (source, target), without those of users."""
    if layout.processes == "one":
        return ((ALL_IN_ONE, ALL_IN_ONE),)
    run_hub = managers_of(layout) or (CENTER,)
    found = [(host, CENTER) for host in run_hub]
    for cell in layout.all_cells:
        host = host_of_cell(layout, cell)
        found += [*((runs, host) for runs in run_hub), (host, CENTER), (host, host)]
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Scenario:
    seed: int
    layout: WorldLayout
    operations: tuple[Operation, ...]
    faults: tuple[Fault, ...]
    chaos_s: float  # faults end then, and the calm begins
    fresh: bool = False  # start with empty disks, instead of planes that were brought up before
    shuffled_s: Span = ALWAYS  # outside of it ready callbacks run in order

    def lines(self) -> Iterator[str]:
        """Yield one line for each step in the order of time. A replay prints these lines first."""
        yield f"seed {self.seed}: {self.layout}, chaos for {self.chaos_s:g} s, fresh={self.fresh}"
        if self.shuffled_s != ALWAYS:
            begins_s, ends_s = self.shuffled_s
            when = f"only from {begins_s:g} to {ends_s:g} s" if ends_s > begins_s else "never"
            yield f"{'':9} shuffled {when}; else first come, first served"
        for step in sorted((*self.operations, *self.faults), key=lambda step: step.at_s):
            yield f"{step.at_s:9.3f} {_format_step(step)}"


def _format_step(step: Operation | Fault) -> str:
    fields = ", ".join(
        f"{name}={getattr(step, name)!r}" for name in step.__slots__ if name != "at_s"
    )
    return f"{type(step).__name__}({fields})"
