"""Templates of features: federation, cells that leave and join, projects, quota and sleep.

Each group draws from a random stream of its own, so that adding one changes no recorded scenario.
To add a template: a function of a random stream and a scenario, and its line in the table of its
group (``FEDERATION_TEMPLATES``, ``CELL_TEMPLATES``, ``SLEEP_TEMPLATES``). ``generate.py`` contains
the weights of the groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any, Literal

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.kinds import BINDING, DEPLOYMENT, INSTANCE, NAMESPACE
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.planes import HUB, cell_plane, project_plane
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.draw import (
    CELLS,
    LARGE,
    MANY_CELLS,
    MEDIUM,
    SMALL,
    draw_faults,
    draw_operations,
    draw_partitions,
)
from testkit.sim.scenario.fault_templates import Template, split, with_steps
from testkit.sim.scenario.faults import EmptyHost, RestorePlane
from testkit.sim.scenario.operations import (
    AllowFallback,
    ChangeImage,
    CreateProject,
    CreateWorkload,
    Decide,
    DeleteObject,
    DeleteProject,
    DeleteWorkload,
    DeployIn,
    DrainCell,
    EditObject,
    GateCompute,
    LeaveCell,
    LetSleep,
    MoveBack,
    MoveCity,
    MoveWorkload,
    Operation,
    OrderCities,
    RenewAccess,
    RequestAccess,
    RestartCity,
    RestartWorkload,
    ScaleWorkload,
    SecondCell,
    StartWorkload,
    StopWorkload,
    SuspendProject,
    UndoRollout,
    Visit,
)
from testkit.sim.scenario.scenario import (
    CENTER,
    PLENTY,
    Scenario,
    WorldLayout,
    host_of_cell,
    hosts_of,
)

MANY_PERCENT = 8  # of partitioned worlds: those have twenty cells and take long


def with_federation_template(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(FEDERATION_TEMPLATES)(random, scenario)


def _left_alone(random: Random, scenario: Scenario) -> Scenario:
    """I19: the center is unreachable. Meanwhile machines fail, and an operator deletes instances on
    the cell; the cell deletes and recreates them without the center."""
    scenario = replace(split(scenario), faults=(), operations=())
    project, cell = random.choice(scenario.layout.projects), random.choice(scenario.layout.cells)
    create = CreateWorkload(0.0, project, "db", "db:1", 2, (cell.upper(),))
    at_s, for_s = round(random.uniform(3, 6), 2), round(random.uniform(70, 120), 2)
    deleted = [
        DeleteObject(
            round(at_s + random.uniform(1, 10), 2), cell_plane(cell), INSTANCE.resource, pick
        )
        for pick in range(random.randint(1, 2))
    ]
    lost = f.LoseMachine(round(at_s + random.uniform(0, 10), 2), cell, random.randrange(100))
    stop = f.StopHost(at_s, for_s, hosts_of(scenario.layout)[0])
    return with_steps(scenario, (create, *deleted), (stop, lost))


def _crash_with_pending_deletions(random: Random, scenario: Scenario) -> Scenario:
    """Instances are deleted on their cell while the center is unreachable, and the cell crashes
    before it could report that. When the center is back, users have changed the workload."""
    scenario = replace(split(scenario), faults=(), operations=())
    layout = scenario.layout
    project, cell = random.choice(layout.projects), random.choice(layout.cells)
    at_s, for_s = round(random.uniform(4, 6), 2), round(random.uniform(10, 40), 2)
    steps = (
        CreateWorkload(0.0, project, "db", "db:1", 3, (cell.upper(),)),
        ScaleWorkload(round(at_s - random.uniform(0, 0.2), 2), project, "db", 1),
        DeleteObject(
            round(at_s + 1, 2), cell_plane(cell), INSTANCE.resource, random.randrange(100)
        ),
    )
    killed_s = round(at_s + random.uniform(0.2, 4), 2)
    faults = (
        f.StopHost(at_s, for_s, hosts_of(layout)[0]),
        f.StopHost(killed_s, round(random.uniform(0.1, 5), 2), host_of_cell(layout, cell)),
    )
    return with_steps(scenario, steps, faults)


def _fallback(random: Random, scenario: Scenario) -> Scenario:
    """I16: a city fails for a while or forever, and its replicas move to fallback cities. Perhaps a
    fallback city fails, too, and perhaps a user moves the replicas back."""
    scenario = replace(split(scenario), faults=(), operations=())
    layout = replace(scenario.layout, cells=CELLS)
    scenario = replace(scenario, layout=layout)
    first, *rest = random.sample(layout.cells, len(layout.cells))
    project, cities = random.choice(layout.projects), tuple(cell.upper() for cell in rest)
    at_s = round(random.uniform(4, 8), 2)
    steps: tuple[Operation, ...] = (
        CreateWorkload(0.0, project, "db", "db:1", random.randint(1, 2), (first.upper(),)),
        AllowFallback(0.5, project, "db", cities, 30),
    )
    for_s = random.choice((round(random.uniform(20, 200), 2), f.FOR_EVER))
    fault = random.choice((f.StopHost, f.IsolateHost))
    faults: tuple[f.Fault, ...] = (fault(at_s, for_s, host_of_cell(layout, first)),)
    if random.random() < 0.4:
        also_s = round(at_s + random.uniform(0, 90), 2)
        lasts_s = round(random.uniform(20, 120), 2)
        faults += (f.StopHost(also_s, lasts_s, host_of_cell(layout, rest[0])),)
    back_s = round(at_s + (for_s if for_s != f.FOR_EVER else 100.0) + random.uniform(5, 60), 2)
    if random.random() < 0.8:
        steps += (MoveBack(back_s, project, "db"),)
    return with_steps(scenario, steps, faults)


def _partitioned(random: Random, scenario: Scenario) -> Scenario:
    """Three cells, sometimes twenty, whose planes cannot reach each other in several ways at once,
    while users change workloads in many cities."""
    many = random.random() * 100 < MANY_PERCENT
    layout = replace(scenario.layout, processes="split", cells=MANY_CELLS if many else CELLS)
    window_s = random.choice((12.0, 40.0))
    size = LARGE if many else MEDIUM
    steps = draw_operations(random, layout, size, window_s)
    faults = draw_partitions(random, layout, random.randint(3, 8), window_s)
    plain = replace(scenario, layout=layout, operations=(), faults=())
    return with_steps(plain, steps, faults)


FEDERATION_TEMPLATES: tuple[Template, ...] = (
    _left_alone,
    _crash_with_pending_deletions,
    _fallback,
    _partitioned,
)


def with_drain_template(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(DRAIN_TEMPLATES)(random, scenario)


def _drained(random: Random, scenario: Scenario) -> Scenario:
    """A cell is drained before, while and after workloads are placed in its city."""
    layout = scenario.layout
    cell, project = random.choice(layout.cells), random.choice(layout.projects)
    at_s = round(random.uniform(1, 6), 2)
    during_s, for_s = round(at_s + random.uniform(0, 5), 2), round(random.uniform(2, 15), 2)
    steps: tuple[Operation, ...] = (
        CreateWorkload(0.0, project, "kept", "kept:1", random.randint(1, 2), (cell.upper(),)),
        DrainCell(at_s, cell, for_s),
        ScaleWorkload(during_s, project, "kept", random.randint(1, 3)),
        ChangeImage(round(during_s + 1, 2), project, "kept", "kept:2"),
        CreateWorkload(during_s, project, "held", "held:1", 1, (cell.upper(),)),
    )
    return with_steps(scenario, steps, ())


DRAIN_TEMPLATES: tuple[Template, ...] = (_drained,)


# --- cells that leave and join


def with_cell_template(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(CELL_TEMPLATES)(random, scenario)


def _leaving(random: Random, scenario: Scenario) -> Scenario:
    """A cell leaves while users change its workloads, and the same cell or another one joins."""
    scenario, cell, spare = _with_joined_cells(random, scenario)
    at_s, forced = round(random.uniform(1, 12), 2), random.random() < 0.5
    heir = random.choice((cell, spare))
    away_s = round(random.choice((0.0, random.uniform(0, 6), random.uniform(20, 60))), 2)
    steps = LeaveCell(at_s, cell, heir, away_s, forced, random.random() < 0.5)
    return with_steps(scenario, (steps,), _isolate_cell(random, cell, at_s) if forced else ())


def _second(random: Random, scenario: Scenario) -> Scenario:
    """A city has two cells for a while."""
    scenario, _, spare = _with_joined_cells(random, scenario)
    at_s, for_s = round(random.uniform(1, 8), 2), round(random.uniform(0, 12), 2)
    steps = SecondCell(at_s, spare, for_s, random.random() < 0.5)
    return with_steps(scenario, (steps,), ())


def _there_and_back(random: Random, scenario: Scenario) -> Scenario:
    """A city moves to another cell and back, perhaps while the first is unreachable."""
    scenario, cell, spare = _with_joined_cells(random, scenario)
    at_s, for_s = round(random.uniform(1, 8), 2), round(random.uniform(0, 40), 2)
    steps = MoveCity(at_s, spare, for_s)
    silent = _isolate_cell(random, cell, at_s) if random.random() < 0.7 else ()
    return with_steps(scenario, (steps,), silent)


def _with_joined_cells(random: Random, scenario: Scenario) -> tuple[Scenario, str, str]:
    """Return a world whose cells have joined, one of these cells, and a spare for its city. Faults
    that look like a cell that has left are removed."""
    cell = random.choice(scenario.layout.cells)
    spare = f"{cell}-2"
    layout = replace(scenario.layout, processes="split", managers=1, joined=True, spares=(spare,))
    size = MEDIUM if random.random() < 0.2 else SMALL
    window_s = random.choice((4.0, 12.0))
    steps = draw_operations(random, layout, size, window_s)
    faults = [x for x in draw_faults(random, layout, size, window_s) if not _is_fatal(x)]
    scenario = replace(scenario, layout=layout, operations=steps, faults=tuple(faults))
    return replace(scenario, chaos_s=window_s + 10.0), cell, spare


def _is_fatal(fault: f.Fault) -> bool:
    """Return True for a fault that lasts forever, wipes a disk, or makes certificates invalid."""
    if isinstance(fault, f.EmptyHost):
        return True
    skewed = isinstance(fault, f.SkewClock) and fault.host == CENTER
    return skewed or getattr(fault, "for_s", 0.0) == f.FOR_EVER


def _isolate_cell(random: Random, cell: str, at_s: float) -> tuple[f.Fault, ...]:
    """Return faults that make the cell unreachable around this time."""
    begins_s = round(max(0.0, at_s - random.uniform(0, 5)), 2)
    return (f.IsolateHost(begins_s, round(random.uniform(5, 90), 2), f"cell-{cell}"),)


CELL_TEMPLATES: tuple[Template, ...] = (_leaving, _leaving, _second, _there_and_back)


NEW_PROJECT = "gamma"
_PROJECT_TAIL_S = 15.0
_Against = Literal["Denied", "Suspended", "Removed"]
_AGAINST: tuple[_Against, ...] = ("Denied", "Suspended", "Removed")


def with_new_project(random: Random, scenario: Scenario) -> Scenario:
    """Add a project that is created while the world runs.

    Not in worlds that restore a plane from a backup: the backup does not record what was released
    since. Not if a cell comes back empty: with the writes of the new project its versions soon pass
    those that readers have observed, and readers cannot detect the replacement.
    """
    if any(isinstance(fault, RestorePlane | EmptyHost) for fault in scenario.faults):
        return scenario
    steps = _draw_project_operations(random, scenario)
    return replace(
        scenario,
        operations=tuple(sorted((*scenario.operations, *steps), key=lambda step: step.at_s)),
        chaos_s=round(max(scenario.chaos_s, steps[-1].at_s + _PROJECT_TAIL_S), 2),
    )


def _change_access(
    random: Random, later: Callable[[], float], deployed: Callable[[], DeployIn]
) -> list[Operation]:
    """Return operations that revoke access, and perhaps grant or request it again."""
    choice = random.random()
    if choice < 0.25:
        return []
    if choice < 0.5:
        return [RenewAccess(later(), NEW_PROJECT), deployed()]
    against = random.choice(_AGAINST)
    steps: list[Operation] = [Decide(later(), NEW_PROJECT, against)]
    if choice < 0.85:
        steps.append(
            Decide(later(), NEW_PROJECT, "Resumed" if against == "Suspended" else "Approved")
        )
        steps.append(deployed())
    return steps


def _draw_project_operations(random: Random, scenario: Scenario) -> list[Operation]:
    at_s, gated = round(random.uniform(0, 3), 2), random.random() < 0.5

    def later() -> float:
        nonlocal at_s
        at_s = round(at_s + random.uniform(0.2, 4), 2)
        return at_s

    def deployed() -> DeployIn:
        city = random.choice(scenario.layout.cells).upper()
        return DeployIn(later(), NEW_PROJECT, random.choice(("db", "api")), 1, (city,))

    steps: list[Operation] = [CreateProject(at_s, NEW_PROJECT)]
    if gated:
        steps.append(GateCompute(later(), NEW_PROJECT, True))
    steps.append(RequestAccess(later(), NEW_PROJECT))
    if gated:
        steps.append(
            Decide(later(), NEW_PROJECT, random.choice(("Approved", "Approved", "Denied")))
        )
    steps.append(deployed())
    steps += _change_access(random, later, deployed)
    if random.random() < 0.5:
        steps.append(DeleteProject(later(), NEW_PROJECT))
        if random.random() < 0.5:
            steps += [
                CreateProject(later(), NEW_PROJECT),
                RequestAccess(later(), NEW_PROJECT),
                deployed(),
            ]
    return steps


def with_halts(random: Random, scenario: Scenario) -> Scenario:
    """Add a workload that is stopped and started, whose project is suspended and resumed, or both.

    Meanwhile users change it, and the faults of the scenario happen. One in five stays halted.
    """
    project, cell = random.choice(scenario.layout.projects), random.choice(scenario.layout.cells)
    replicas, at_s = random.randint(1, 3), round(random.uniform(1, 8), 2)
    steps: list[Operation] = [CreateWorkload(0.0, project, "db", "db:1", replicas, (cell.upper(),))]
    for_s = round(random.choice((random.uniform(0.1, 3), random.uniform(3, 40))), 2)
    is_kept = random.random() < 0.2
    kinds = random.choice((("stop",), ("stop",), ("suspend",), ("suspend",), ("stop", "suspend")))
    if "stop" in kinds:
        steps.append(StopWorkload(at_s, project, "db"))
        if not is_kept:
            steps.append(StartWorkload(round(at_s + for_s, 2), project, "db"))
    if "suspend" in kinds:
        also_s = round(max(0.0, at_s + random.uniform(-2, 2)), 2)
        steps.append(SuspendProject(also_s, project, f.FOR_EVER if is_kept else for_s))
    during_s = round(at_s + random.uniform(0, for_s), 2)
    match random.choice(("image", "scale", "none", "none")):
        case "image":
            steps.append(ChangeImage(during_s, project, "db", "db:2"))
        case "scale":
            steps.append(ScaleWorkload(during_s, project, "db", random.randint(1, 3)))
        case _:
            pass
    extended = with_steps(scenario, tuple(steps), ())
    return replace(extended, chaos_s=round(max(scenario.chaos_s, at_s + for_s + 10.0), 2))


EDITED_PERCENT = 4  # of scenarios


def with_mislabeled_namespaces(random: Random, scenario: Scenario) -> Scenario:
    if random.random() * 100 >= EDITED_PERCENT:
        return scenario
    # Several edits, because most namespaces of a hub belong to no project.
    edits = tuple(
        EditObject(
            round(random.uniform(1, 10), 2),
            HUB,
            NAMESPACE.resource,
            "label",
            random.randrange(100),
        )
        for _ in range(random.randint(3, 6))
    )
    return with_steps(scenario, edits, ())


def with_orphans(random: Random, scenario: Scenario) -> Scenario:
    steps = tuple(_with_orphan_policy(random, operation) for operation in scenario.operations)
    return with_steps(
        replace(scenario, operations=steps), _draw_orphaning_deletes(random, scenario), ()
    )


def _with_orphan_policy(random: Random, operation: Operation) -> Operation:
    if isinstance(operation, DeleteWorkload | DeleteObject) and random.random() < 0.7:
        return replace(operation, orphan=True)
    return operation


def _draw_orphaning_deletes(random: Random, scenario: Scenario) -> tuple[Operation, ...]:
    """Delete another workload as an orphan and perhaps recreate it; perhaps delete an owned object,
    too."""
    layout, at_s = scenario.layout, round(random.uniform(1, 8), 2)
    project, city = random.choice(layout.projects), random.choice(layout.cells).upper()
    first = CreateWorkload(0.0, project, "gone", "gone:1", random.randint(1, 2), (city,))
    deleted = DeleteWorkload(at_s, project, "gone", orphan=True)
    steps: tuple[Operation, ...] = (first, deleted)
    if random.random() < 0.5:
        again_s = round(at_s + random.uniform(0, 3), 2)
        steps += (replace(first, at_s=again_s, image="gone:2"),)
    places: list[tuple[str, KindInfo[Any]]] = [
        (HUB, DEPLOYMENT),
        (HUB, BINDING),
        *((project_plane(name), DEPLOYMENT) for name in layout.projects),
        *((cell_plane(c), kind) for c in layout.cells for kind in (DEPLOYMENT, INSTANCE)),
    ]
    if random.random() < 0.6:
        plane, kind = random.choice(places)
        also_s = round(random.uniform(1, 8), 2)
        steps += (DeleteObject(also_s, plane, kind.resource, random.randrange(100), orphan=True),)
    return steps


_HOLDER, _WAITING = "first", ("next", "last")


def with_quota_contention(random: Random, scenario: Scenario) -> Scenario:
    """One workload has all the quota and releases one instance, while two others wait for quota."""
    layout = scenario.layout
    project, allowed = random.choice(layout.projects), layout.instances
    cities = (random.choice(layout.cells).upper(),)
    waiting = (
        CreateWorkload(round(random.uniform(3, 5), 2), project, name, f"{name}:1", 1, cities)
        for name in _WAITING
    )
    at_s = round(random.uniform(7, 12), 2)
    gives_back: Operation = DeleteWorkload(at_s, project, _HOLDER)
    if allowed > 1:
        gives_back = ScaleWorkload(at_s, project, _HOLDER, allowed - 1)
    holder = CreateWorkload(0.0, project, _HOLDER, f"{_HOLDER}:1", allowed, cities)
    steps = (holder, *waiting, gives_back)
    return with_steps(replace(scenario, operations=()), steps, ())


# Shorter than the time in which a world settles: instances must sleep before the quiet phase.
IDLE_MS = (500, 1000, 2000)


Sleepers = tuple[CreateWorkload, LetSleep]


def with_sleep_template(random: Random, scenario: Scenario) -> Scenario:
    if scenario.layout.joined:
        return scenario
    return random.choice(SLEEP_TEMPLATES)(random, scenario)


def _come_and_go(random: Random, scenario: Scenario) -> Scenario:
    """Visitors connect to sleeping instances, during all drawn faults."""
    scenario, steps = _sleepers(random, scenario)
    return with_steps(scenario, (*steps, *_visits(random, steps, 3.0, 20.0)), ())


def _left_idle(random: Random, scenario: Scenario) -> Scenario:
    """I19: the center is unreachable, and instances still wake."""
    scenario = replace(split(scenario), faults=(), operations=())
    scenario, steps = _sleepers(random, scenario)
    at_s, for_s = round(random.uniform(6, 9), 2), round(random.uniform(20, 60), 2)
    stop = f.StopHost(at_s, for_s, hosts_of(scenario.layout)[0])
    visits = _visits(random, steps, at_s, at_s + for_s)
    return with_steps(scenario, (*steps, *visits), (stop,))


def _killed_asleep(random: Random, scenario: Scenario) -> Scenario:
    """The process of the cell crashes while its machines sleep, wake or are being paused."""
    scenario, steps = _sleepers(random, replace(scenario, faults=()))
    host = host_of_cell(scenario.layout, steps[0].cities[0].lower())
    stops = tuple(
        f.StopHost(round(random.uniform(4, 20), 2), round(random.uniform(0.1, 3), 2), host)
        for _ in range(random.randint(1, 3))
    )
    return with_steps(scenario, (*steps, *_visits(random, steps, 3.0, 25.0)), stops)


def _rolled_asleep(random: Random, scenario: Scenario) -> Scenario:
    """Sleeping instances are replaced, scaled and visited."""
    scenario, steps = _sleepers(random, replace(scenario, faults=(), operations=()))
    project = steps[0].project
    changes: tuple[Operation, ...] = (
        ChangeImage(round(random.uniform(6, 14), 2), project, "idle", "idle:3"),
        ScaleWorkload(round(random.uniform(6, 20), 2), project, "idle", random.randint(1, 3)),
    )
    return with_steps(scenario, (*steps, *changes, *_visits(random, steps, 3.0, 22.0)), ())


def _sleepers(random: Random, scenario: Scenario) -> tuple[Scenario, Sleepers]:
    """Add a workload that sleeps, in a world whose cells publish ports."""
    scenario = replace(scenario, layout=replace(scenario.layout, published=True))
    layout = scenario.layout
    project, cell = random.choice(layout.projects), random.choice(layout.cells)
    mode: SleepMode = random.choice(("pause", "stop"))
    return scenario, (
        CreateWorkload(0.0, project, "idle", "idle:1", random.randint(1, 2), (cell.upper(),)),
        LetSleep(0.3, project, "idle", "idle:2", random.choice(IDLE_MS), mode),
    )


def _visits(random: Random, steps: Sleepers, from_s: float, until_s: float) -> tuple[Visit, ...]:
    return tuple(
        _visit(random, steps, round(random.uniform(from_s, until_s), 2))
        for _ in range(random.randint(3, 8))
    )


def _visit(random: Random, steps: Sleepers, at_s: float) -> Visit:
    """Return one visit, many visits at once, or visits at the time of the pause."""
    create, sleep = steps
    stays_s = random.choice((0.0, 0.2, 0.2, 3.0))
    again_s = sleep.idle_ms / 1000 + stays_s + random.choice((0.0, 0.02, 0.05, 0.08))
    return Visit(
        at_s,
        create.cities[0].lower(),
        random.randrange(100),
        random.choice((1, 5, 5, 15)),
        round(random.choice((0.0, 0.3, again_s, again_s)), 3),
        stays_s,
    )


SLEEP_TEMPLATES: tuple[Template, ...] = (_come_and_go, _left_idle, _killed_asleep, _rolled_asleep)


# --- names of deployments

# The readable names of their deployments are equal: web-a-b-<city>.
_TWINS = (("web", "a-b"), ("web-a", "b"))
_LONG_NAME, _LONG_PLACEMENT = "web-" + "x" * 50, "p" * 40


def with_contended_names(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(NAME_TEMPLATES)(random, scenario)


def _twins(random: Random, scenario: Scenario) -> Scenario:
    """Two workloads want the same names. One is deleted while the other exists, sometimes just
    before the other is created, and is created again."""
    layout = scenario.layout
    project, cities = random.choice(layout.projects), _some_cities(random, layout)
    (first, second) = random.sample(_TWINS, 2)
    created_s = round(random.choice((0.0, random.uniform(0, 6), random.uniform(3, 12))), 2)
    deleted_s = round(created_s + random.choice((-0.5, -0.1, 0.0, 2.0, 5.0)), 2)
    gone = random.choice((first, second))
    steps: tuple[Operation, ...] = (
        _create_named(random, 0.0, project, first, cities),
        _create_named(random, created_s, project, second, cities),
        DeleteWorkload(max(0.5, deleted_s), project, gone[0], random.random() < 0.2),
    )
    if random.random() < 0.6:
        again_s = round(max(0.5, deleted_s) + random.uniform(0, 8), 2)
        steps += (_create_named(random, again_s, project, gone, cities),)
    return with_steps(replace(scenario, operations=()), steps, ())


def _reborn(random: Random, scenario: Scenario) -> Scenario:
    """A workload is deleted and created again with the same name, mostly while the cell is
    unreachable on which the instances of the first one run."""
    scenario = replace(split(scenario), operations=())
    layout = scenario.layout
    project, cell = random.choice(layout.projects), random.choice(layout.cells)
    cities = tuple(sorted({cell.upper(), *_some_cities(random, layout)}))
    named = random.choice((("web", "default"), (_LONG_NAME, _LONG_PLACEMENT)))
    away_s, for_s = round(random.uniform(3, 6), 2), round(random.uniform(2, 60), 2)
    deleted_s = round(away_s + random.uniform(-0.5, 3), 2)
    again_s = round(deleted_s + random.uniform(0, 30), 2)
    steps = (
        _create_named(random, 0.0, project, named, cities),
        DeleteWorkload(deleted_s, project, named[0], random.random() < 0.2),
        _create_named(random, again_s, project, named, cities),
    )
    host = host_of_cell(layout, cell)
    fault = random.choice((f.StopHost, f.IsolateHost, f.IsolateHost))
    return with_steps(scenario, steps, (fault(away_s, for_s, host),))


def _create_named(
    random: Random, at_s: float, project: str, named: tuple[str, str], cities: tuple[str, ...]
) -> CreateWorkload:
    name, placement = named
    image, replicas = f"web:{random.randint(1, 3)}", random.choice((1, 1, 2))
    return CreateWorkload(at_s, project, name, image, replicas, cities, placement)


def _some_cities(random: Random, layout: WorldLayout) -> tuple[str, ...]:
    count = random.randint(1, len(layout.cells))
    return tuple(sorted(cell.upper() for cell in random.sample(layout.cells, count)))


NAME_TEMPLATES: tuple[Template, ...] = (_twins, _reborn)


# --- rollouts from city to city

_IMAGES = ("", "", "", "fail.example/", "crash.example/", "slow.example/", "stuck.example/")
_ORDERS = ("Sequential", "Sequential", "CanaryCity", "Parallel")


def with_city_order(random: Random, scenario: Scenario) -> Scenario:
    """Users change a workload in several cities, with good and bad images, and return to an earlier
    one. The last change is a good image that stops after a failure, so that the end is known.
    Quota is sufficient: a city that waits for quota holds up the cities after it."""
    layout = replace(scenario.layout, cells=CELLS, instances=PLENTY)
    scenario = replace(scenario, layout=layout, operations=(), faults=())
    project, name = random.choice(layout.projects), "db"
    cities = tuple(sorted(cell.upper() for cell in random.sample(CELLS, random.choice((2, 3)))))
    at_s = round(random.uniform(3, 6), 2)

    def ordered(paused: bool = False) -> OrderCities:
        order, on_failure = random.choice(_ORDERS), random.choice(("Stop", "Rollback"))
        deadline_s = random.choice((2, 5, 20))
        return OrderCities(at_s, project, name, order, on_failure, deadline_s, paused)  # type: ignore[arg-type]

    def later() -> float:
        return round(at_s + random.choice((0.3, 2, 6, 20)) * random.uniform(0.5, 1.5), 2)

    steps: list[Operation] = [
        CreateWorkload(0.0, project, name, "db:1", random.choice((1, 1, 2)), cities),
        replace(ordered(), at_s=0.2),
    ]
    for number in range(2, random.choice((3, 4, 5))):
        steps.append(ChangeImage(at_s, project, name, f"{random.choice(_IMAGES)}db:{number}"))
        at_s = later()
        choice = random.random()
        if choice < 0.25:
            steps.append(ChangeImage(at_s, project, name, f"db:{number - 1}"))
        elif choice < 0.4:
            steps.append(ScaleWorkload(at_s, project, name, random.randint(1, 3)))
        elif choice < 0.5:
            moved = tuple(sorted(cell.upper() for cell in random.sample(CELLS, 2)))
            steps.append(MoveWorkload(at_s, project, name, moved))
        elif choice < 0.7:
            steps.append(ordered(paused=random.random() < 0.5))
        at_s = later()
    steps.append(OrderCities(at_s, project, name, random.choice(_ORDERS), "Stop", 600))  # type: ignore[arg-type]
    steps.append(ChangeImage(round(at_s + 0.1, 2), project, name, "db:9"))
    faults: tuple[f.Fault, ...] = ()
    for _ in range(random.choice((0, 0, 1, 2))):
        begins_s = round(random.uniform(1, at_s + 5), 2)
        host = host_of_cell(layout, random.choice(CELLS))
        for_s = round(random.choice((2, 10, 60)) * random.uniform(0.5, 1.5), 2)
        fault = random.choice((f.StopHost, f.IsolateHost))
        if layout.processes == "one" or random.random() < 0.3:
            host, fault = hosts_of(layout)[0], f.StopHost
        faults += (fault(begins_s, for_s, host),)
    return with_steps(scenario, tuple(steps), faults)


def with_city_restarts(random: Random, scenario: Scenario) -> Scenario:
    """Users restart a workload in one of its cities once or twice: at any time, or shortly after
    another operation on it."""
    created = [step for step in scenario.operations if isinstance(step, CreateWorkload)]
    if not created:
        return scenario
    workload = random.choice(created)
    owner = workload.project, workload.name
    own = [
        step
        for step in scenario.operations
        if (getattr(step, "project", ""), getattr(step, "name", "")) == owner
    ]
    steps = []
    for _ in range(random.choice((1, 1, 2))):
        near = random.choice(own)
        late_s = random.choice(
            (random.uniform(0.02, 1), random.uniform(1, 4), random.uniform(4, 20))
        )
        city = random.choice(getattr(near, "cities", workload.cities))
        steps.append(RestartCity(round(near.at_s + late_s, 2), *owner, city))
    return with_steps(scenario, tuple(steps), ())


# --- restarts and undo


def with_undo(random: Random, scenario: Scenario) -> Scenario:
    """Users change, restart, scale and move a workload, and undo the last change now and then,
    while processes stop. Quota is sufficient."""
    layout = replace(scenario.layout, cells=CELLS, instances=PLENTY)
    scenario = replace(scenario, layout=layout, operations=(), faults=())
    project, name = random.choice(layout.projects), "db"
    cities = tuple(sorted(cell.upper() for cell in random.sample(CELLS, random.choice((1, 2)))))
    steps: list[Operation] = [CreateWorkload(0.0, project, name, "db:1", 1, cities)]
    at_s, images = 3.0, itertools.count(2)
    for _ in range(random.randint(3, 7)):
        # Often faster than a rollout, or than the controller that records revisions.
        at_s = round(at_s + random.choice((0.05, 0.5, 4, 12)) * random.uniform(0.5, 1.5), 2)
        choice = random.random()
        if choice < 0.3:
            steps.append(ChangeImage(at_s, project, name, f"db:{next(images)}"))
        elif choice < 0.5:
            steps.append(RestartWorkload(at_s, project, name))
        elif choice < 0.6:
            steps.append(RestartCity(at_s, project, name, random.choice(cities)))
        elif choice < 0.7:
            steps.append(ScaleWorkload(at_s, project, name, random.randint(1, 2)))
        else:
            steps.append(UndoRollout(at_s, project, name))
    # Each of these worlds undoes a change after a restart.
    for change in (
        ChangeImage(0.0, project, name, f"db:{next(images)}"),
        RestartWorkload(0.0, project, name),
        UndoRollout(0.0, project, name),
    ):
        at_s = round(at_s + random.choice((1, 6)), 2)
        steps.append(replace(change, at_s=at_s))
    faults: tuple[f.Fault, ...] = ()
    for _ in range(random.choice((0, 0, 1, 2))):
        begins_s = round(random.uniform(1, at_s + 3), 2)
        for_s = round(random.choice((0.5, 4, 20)) * random.uniform(0.5, 1.5), 2)
        faults += (f.StopHost(begins_s, for_s, random.choice(hosts_of(layout))),)
    return with_steps(scenario, tuple(steps), faults)
