"""Draws layouts, operations and faults from tables.

Each table is (value, weight). A size is drawn first, then everything else from its tables. Most
worlds are small, because small ones find most and cost least; some are large enough for
interactions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import TypeVar

from datum_compute.api.kinds import (
    BINDING,
    CLUSTER_BINDING,
    CLUSTER_POLICY,
    CONFIG_MAP,
    DEPLOYMENT,
    INSTANCE,
    POLICY,
    SECRET,
    SERVER,
    WORK,
)
from datum_compute.api.planes import HUB, cell_plane, project_plane
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.operations import (
    ByUser,
    ChangeImage,
    CreatePoison,
    CreateWorkload,
    DeleteNamespace,
    DeleteObject,
    DeleteWorkload,
    EditObject,
    FleetingNamespace,
    MoveWorkload,
    Operation,
    ReferToData,
    ReplaceData,
    ScaleWorkload,
)
from testkit.sim.scenario.scenario import (
    MANAGERS,
    Processes,
    WorldLayout,
    host_of_cell,
    hosts_of,
    links_of,
)

T = TypeVar("T")

Table = Sequence[tuple[T, float]]


@dataclass(frozen=True, slots=True)
class Size:
    cells: Table[int]
    projects: Table[int]
    operations: Table[int]  # the first one always creates a workload
    replicas: Table[int]
    faults: Table[int]


SMALL = Size(
    cells=((1, 9), (2, 1)),
    projects=((1, 19), (2, 1)),
    operations=((0, 3), (1, 5), (2, 1)),
    replicas=((1, 8), (2, 2)),
    faults=((1, 5), (2, 3), (3, 1)),
)
MEDIUM = Size(
    cells=((1, 4), (2, 5), (3, 1)),
    projects=((1, 3), (2, 1)),
    operations=((1, 2), (2, 4), (4, 3)),
    replicas=((1, 5), (2, 4), (3, 1)),
    faults=((1, 3), (2, 4), (4, 3)),
)
LARGE = Size(
    cells=((2, 6), (3, 4)),
    projects=((1, 1), (2, 1)),
    operations=((4, 4), (8, 1)),
    replicas=((1, 3), (2, 4), (3, 2), (5, 1)),
    faults=((2, 3), (4, 4), (8, 2)),
)
SIZES: Table[Size] = ((SMALL, 89), (MEDIUM, 9), (LARGE, 2))


def draw_size(random: Random) -> Size:
    return weighted(random, SIZES)


def weighted(random: Random, table: Table[T]) -> T:
    return random.choices([item for item, _ in table], [weight for _, weight in table])[0]


PROCESSES: tuple[tuple[Processes, int], ...] = (("one", 6), ("split", 3), ("managers", 1))
CELLS = ("dfw", "iad", "ams")
# Cells of worlds with more than three cells.
MANY_CELLS = (
    *CELLS,
    *("lhr", "syd", "fra", "nrt", "sin", "gru", "jnb", "ord", "sjc", "cdg", "arn"),
    *("mad", "bom", "hkg", "yyz", "sea", "mia"),
)
PROJECTS = ("alpha", "beta")
NAMES = ("web", "api", "db")
WINDOWS_S = ((4.0, 5), (12.0, 5), (40.0, 2), (3600.0, 0.05))
TAMPER_PERCENT = 25  # of scenarios: an operator changes objects
CALM_PERCENT = 10  # of scenarios: no fault happens

HUB_KINDS = (DEPLOYMENT, WORK, BINDING, POLICY, CLUSTER_POLICY, CLUSTER_BINDING, INSTANCE)
PROJECT_KINDS = (DEPLOYMENT, INSTANCE)
CELL_KINDS = (DEPLOYMENT, INSTANCE, SERVER)


def draw_layout(random: Random, size: Size) -> WorldLayout:
    return WorldLayout(
        processes=weighted(random, PROCESSES),
        projects=PROJECTS[: weighted(random, size.projects)],
        cells=CELLS[: weighted(random, size.cells)],
    )


def draw_window_s(random: Random) -> float:
    """Return the time span in which operations and faults begin."""
    return weighted(random, WINDOWS_S)


# --- operations


def draw_operations(
    random: Random, layout: WorldLayout, size: Size, window_s: float
) -> tuple[Operation, ...]:
    count = weighted(random, size.operations)
    window_s = min(window_s, 60.0)
    times = sorted(round(random.uniform(0, window_s), 2) for _ in range(count))
    first = _create(random, layout, size, 0.0)
    found: list[Operation] = [first]
    known = [(first.project, first.name)]
    for at_s in times:
        operation = _by_user(random, layout, size, at_s, known)
        known.append((operation.project, operation.name))
        found.append(operation)
    if random.random() * 100 < TAMPER_PERCENT:
        for _ in range(random.randint(1, 4)):
            at_s = round(random.uniform(1, window_s + 5), 2)
            found.append(_perform_operator_operation(random, layout, at_s))
    return tuple(sorted(found, key=lambda operation: operation.at_s))


def draw_data(
    random: Random, layout: WorldLayout, operations: Sequence[Operation], window_s: float
) -> tuple[Operation, ...]:
    """Some workloads reference data, which is replaced; sometimes an operator deletes a copy of
    it."""
    created = [o for o in operations if isinstance(o, CreateWorkload)]
    found: list[Operation] = []
    for _ in range(random.choice((1, 1, 2, 3))):
        workload = random.choice(created)
        at_s = round(workload.at_s + random.uniform(0, min(window_s, 20.0)), 2)
        late_s, number = random.choice((0.0, 0.5, 4.0)), random.randrange(1000)
        project, name = workload.project, workload.name
        if random.random() < 0.7 or not found:
            found.append(ReferToData(at_s, project, name, f"{name}:9", late_s, number))
        else:
            found.append(ReplaceData(at_s, project, name, late_s, number))
    if random.random() * 100 < TAMPER_PERCENT:
        plane = random.choice((HUB, *map(cell_plane, layout.cells)))
        resource = random.choice((CONFIG_MAP, SECRET)).resource
        at_s = round(random.uniform(1, window_s + 5), 2)
        found.append(DeleteObject(at_s, plane, resource, random.randrange(100)))
    return tuple(sorted((*operations, *found), key=lambda operation: operation.at_s))


def draw_fleeting(
    random: Random, layout: WorldLayout, window_s: float
) -> tuple[FleetingNamespace, ...]:
    """Draw one or two namespaces that are deleted while faults happen."""
    window_s = min(window_s, 60.0)
    return tuple(
        FleetingNamespace(
            round(random.uniform(0, window_s / 2), 2),
            random.choice(layout.projects),
            f"fleeting-{number}",
            _cities(random, layout),
            round(random.uniform(0, window_s / 2), 2),
        )
        for number in range(random.choice((1, 1, 2)))
    )


def _by_user(
    random: Random, layout: WorldLayout, size: Size, at_s: float, known: list[tuple[str, str]]
) -> ByUser:
    """Draw an operation, mostly on a workload that was used before."""
    project, name = random.choice(known)
    match random.choice(("create", "create", "image", "image", "scale", "scale", "move", "delete")):
        case "create":
            fresh = _create(random, layout, size, at_s)
            again = replace(fresh, project=project, name=name, image=f"{name}:1")
            return again if random.random() < 0.5 else fresh
        case "image":
            return ChangeImage(at_s, project, name, f"{name}:{random.randint(1, 3)}")
        case "scale":
            return ScaleWorkload(at_s, project, name, weighted(random, size.replicas))
        case "move":
            return MoveWorkload(at_s, project, name, _cities(random, layout))
        case _:
            return DeleteWorkload(at_s, project, name)


def _create(random: Random, layout: WorldLayout, size: Size, at_s: float) -> CreateWorkload:
    name = random.choice(NAMES)
    return CreateWorkload(
        at_s,
        random.choice(layout.projects),
        name,
        f"{name}:{random.randint(1, 3)}",
        weighted(random, size.replicas),
        _cities(random, layout),
    )


def _cities(random: Random, layout: WorldLayout) -> tuple[str, ...]:
    count = random.randint(1, len(layout.cells))
    return tuple(sorted(cell.upper() for cell in random.sample(layout.cells, count)))


def _perform_operator_operation(random: Random, layout: WorldLayout, at_s: float) -> Operation:
    planes = [
        (HUB, HUB_KINDS),
        *((project_plane(name), PROJECT_KINDS) for name in layout.projects),
        *((cell_plane(name), CELL_KINDS) for name in layout.cells),
    ]
    plane, kinds = random.choice(planes)
    resource, pick = random.choice(kinds).resource, random.randrange(100)
    match random.choice(("delete", "delete", "edit", "edit", "edit", "namespace", "poison")):
        case "delete":
            return DeleteObject(at_s, plane, resource, pick)
        case "edit":
            part = random.choice(("label", "annotation", "owner", "spec"))
            return EditObject(at_s, plane, resource, part, pick)  # type: ignore[arg-type]
        case "poison":
            return CreatePoison(at_s, plane, resource)
        case _:
            namespace_planes = [HUB, *(cell_plane(name) for name in layout.cells)]
            return DeleteNamespace(at_s, random.choice(namespace_planes), pick)


# --- faults

Draw = Callable[[Random, WorldLayout, float, float], f.Fault]


def draw_faults(
    random: Random, layout: WorldLayout, size: Size, window_s: float
) -> tuple[f.Fault, ...]:
    if random.random() * 100 < CALM_PERCENT:
        return ()
    count = weighted(random, size.faults)
    found = []
    for _ in range(count):
        draw = weighted(random, DRAWS)
        at_s = round(random.uniform(0, window_s), 2)
        for_s = round(random.uniform(0.5, max(2.0, window_s / 2)), 2)
        found.append(draw(random, layout, at_s, for_s))
    return tuple(sorted(found, key=lambda fault: fault.at_s))


def _draw_host(random: Random, layout: WorldLayout) -> str:
    return random.choice(hosts_of(layout))


def _draw_disk_host(random: Random, layout: WorldLayout) -> str:
    """Return a host with a store."""
    return random.choice([host for host in hosts_of(layout) if host not in MANAGERS])


def _center_host(layout: WorldLayout) -> str:
    return hosts_of(layout)[0]


def _draw_link(random: Random, layout: WorldLayout) -> tuple[str, str]:
    return random.choice(links_of(layout))


def _crash_at_commit(random: Random, layout: WorldLayout, at_s: float, _for_s: float) -> f.Fault:
    return f.CrashAtCommit(
        at_s, _draw_disk_host(random, layout), random.randint(1, 40), random.random() < 0.5
    )


def _crash_between_planes(
    random: Random, layout: WorldLayout, at_s: float, _for_s: float
) -> f.Fault:
    return f.CrashBetweenPlanes(at_s, _center_host(layout))


def _stop_host(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.StopHost(at_s, for_s, _draw_host(random, layout))


def _empty_host(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    if layout.processes == "one":
        return _stop_host(random, layout, at_s, for_s)
    return f.EmptyHost(at_s, host_of_cell(layout, random.choice(layout.cells)))


def _pause_host(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.PauseHost(at_s, for_s, _draw_host(random, layout))


def _skew_clock(random: Random, layout: WorldLayout, at_s: float, _for_s: float) -> f.Fault:
    skew_s = random.choice((-7200.0, -30.0, 45.0, 86400.0))
    return f.SkewClock(at_s, _draw_host(random, layout), skew_s)


def _fill_disk(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.FillDisk(at_s, for_s, _draw_disk_host(random, layout))


def _break_sync(random: Random, layout: WorldLayout, at_s: float, _for_s: float) -> f.Fault:
    return f.BreakSync(at_s, _draw_disk_host(random, layout), random.random() < 0.5)


def _slow_host(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.SlowHost(at_s, for_s, _draw_disk_host(random, layout), random.choice((10.0, 100.0)))


def _cut_link(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    source, target = _draw_link(random, layout)
    if random.random() < 0.5:
        source, target = target, source
    return f.CutLink(at_s, for_s, source, target)


def _isolate_cell(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    if layout.processes == "one":
        return _cut_link(random, layout, at_s, for_s)
    return f.IsolateHost(at_s, for_s, host_of_cell(layout, random.choice(layout.cells)))


def _lose_cell(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    if layout.processes == "one":
        return _stop_host(random, layout, at_s, for_s)
    return f.StopHost(at_s, f.FOR_EVER, host_of_cell(layout, random.choice(layout.cells)))


def _flap_link(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    period_s = random.choice((0.3, 2.0, 9.0))
    return f.FlapLink(at_s, for_s, *_draw_link(random, layout), period_s)


def _swizzle(random: Random, _layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.SwizzleClog(at_s, for_s, _draw_salt(random))


def _lose_requests(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    percent, applied = random.choice((5, 30, 60)), random.random() < 0.6
    link = _draw_link(random, layout)
    return f.LoseRequests(at_s, for_s, *link, percent, applied, _draw_salt(random))


def _delay_writes(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    percent, delay_s = random.choice((5, 30)), random.choice((0.5, 5.0, 20.0))
    link = _draw_link(random, layout)
    return f.DelayWrites(at_s, for_s, *link, percent, delay_s, _draw_salt(random))


def _repeat_writes(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    percent, delay_s = random.choice((5, 30)), random.choice((0.1, 3.0))
    link = _draw_link(random, layout)
    return f.RepeatWrites(at_s, for_s, *link, percent, delay_s, _draw_salt(random))


def _throttle(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    percent = random.choice((20, 80))
    return f.Throttle(at_s, for_s, *_draw_link(random, layout), percent, _draw_salt(random))


def _conflict_storm(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    cells = ((cell_plane(name), INSTANCE.resource) for name in layout.cells)
    places = [(HUB, WORK.resource), (HUB, DEPLOYMENT.resource), *cells]
    return f.ConflictStorm(at_s, min(for_s, 3.0), *random.choice(places), 0.05)


def _serve_stale_lists(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.StaleLists(at_s, for_s, *_draw_link(random, layout), random.choice((0.5, 3.0, 10.0)))


def _break_pages(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.BreakPages(at_s, for_s, *_draw_link(random, layout))


def _close_watches(random: Random, layout: WorldLayout, at_s: float, _for_s: float) -> f.Fault:
    return f.CloseWatches(at_s, *_draw_link(random, layout))


def _drop_history(random: Random, layout: WorldLayout, at_s: float, _for_s: float) -> f.Fault:
    return f.ForgetHistory(at_s, _draw_disk_host(random, layout))


def _half_open_watches(random: Random, layout: WorldLayout, at_s: float, _for_s: float) -> f.Fault:
    return f.HalfOpenWatches(at_s, *_draw_link(random, layout))


def _slow_watches(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    delay_s = random.choice((3.0, 100.0))
    return f.SlowWatches(at_s, for_s, *_draw_link(random, layout), delay_s)


def _repeat_events(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    percent = random.choice((10, 50))
    return f.RepeatEvents(at_s, for_s, *_draw_link(random, layout), percent, _draw_salt(random))


def _lag_watches(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.LagWatches(at_s, for_s, *_draw_link(random, layout), random.choice((0.2, 2.0, 8.0)))


def _lose_deletes(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.LoseDeletes(at_s, for_s, *_draw_link(random, layout))


def _make_provider_lie(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    lie = random.choice(("never-there", "still-alive", "there-twice"))
    return f.LyingProvider(at_s, for_s, random.choice(layout.cells), lie)  # type: ignore[arg-type]


def _take_provider_away(random: Random, layout: WorldLayout, at_s: float, for_s: float) -> f.Fault:
    return f.ProviderAway(at_s, for_s, random.choice(layout.cells))


def _lose_machine(random: Random, layout: WorldLayout, at_s: float, _for_s: float) -> f.Fault:
    return f.LoseMachine(at_s, random.choice(layout.cells), random.randrange(100))


def _draw_salt(random: Random) -> int:
    return random.getrandbits(32)


DRAWS: tuple[tuple[Draw, float], ...] = (
    (_crash_at_commit, 6),
    (_crash_between_planes, 2),
    (_stop_host, 2),
    (_lose_cell, 0.5),
    (_empty_host, 1),
    (_pause_host, 1),
    (_skew_clock, 1),
    (_fill_disk, 1),
    (_break_sync, 1),
    (_slow_host, 1),
    (_cut_link, 2),
    (_isolate_cell, 2),
    (_flap_link, 1),
    (_swizzle, 1),
    (_lose_requests, 3),
    (_delay_writes, 2),
    (_repeat_writes, 2),
    (_throttle, 1),
    (_conflict_storm, 1),
    (_serve_stale_lists, 2),
    (_break_pages, 0.3),
    (_close_watches, 2),
    (_drop_history, 2),
    (_half_open_watches, 1),
    (_slow_watches, 1),
    (_repeat_events, 1),
    (_lag_watches, 2),
    (_lose_deletes, 1),
    (_make_provider_lie, 2),
    (_take_provider_away, 1),
    (_lose_machine, 2),
)

# All faults that prevent planes from reaching each other.
PARTITIONS: tuple[Draw, ...] = (
    *(
        _cut_link,
        _isolate_cell,
        _flap_link,
        _swizzle,
        _lose_requests,
        _delay_writes,
        _half_open_watches,
        _slow_watches,
        _lag_watches,
    ),
    *(_stop_host, _lose_cell, _close_watches, _serve_stale_lists),
)


def draw_partitions(
    random: Random, layout: WorldLayout, count: int, window_s: float
) -> tuple[f.Fault, ...]:
    found = []
    for _ in range(count):
        at_s = round(random.uniform(0, window_s), 2)
        for_s = round(random.uniform(1.0, max(2.0, window_s / 2)), 2)
        found.append(random.choice(PARTITIONS)(random, layout, at_s, for_s))
    return tuple(sorted(found, key=lambda fault: fault.at_s))
