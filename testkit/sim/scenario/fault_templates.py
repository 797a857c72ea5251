"""Templates of faults: operations and faults that need each other, and rarely coincide by chance.

About every third scenario applies one of them on top of what was drawn. Templates whose rule can be
checked only without other faults replace what was drawn. ``generate.py`` contains the weights. To
add one: a function of a random stream and a scenario that returns the extended scenario, and its
line in ``FAULT_TEMPLATES``.

The restart templates are about processes that restart or find another state than they left. Most
are rollouts of an image that never serves, or serves only after a while, during a restart of the
cell process, the center or the engine. Finally an image that serves is deployed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random

from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER, WORK
from datum_compute.api.planes import HUB, cell_plane, project_plane
from testkit.sim.scenario import faults as c
from testkit.sim.scenario import faults as f
from testkit.sim.scenario.draw import CELL_KINDS, HUB_KINDS
from testkit.sim.scenario.operations import (
    AllowSurge,
    ChangeImage,
    CreateWorkload,
    DeleteAll,
    DeleteObject,
    DeleteWorkload,
    DropField,
    EditObject,
    FleetingNamespace,
    Operation,
    RevokeProject,
    RollCarefully,
    ScaleWorkload,
)
from testkit.sim.scenario.scenario import (
    MANAGERS,
    Scenario,
    host_of_cell,
    host_of_plane,
    hosts_of,
    links_of,
)

Template = Callable[[Random, "Scenario"], "Scenario"]

_TAIL_S = 10.0
# Within this time a hub that lost the connection to a cell has written to it again.
_COPY_S = 30.0


def with_fault_template(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(FAULT_TEMPLATES)(random, scenario)


# --- missed events


def _blind_spell(random: Random, scenario: Scenario) -> Scenario:
    """A process observes nothing of what users do, and later only the result."""
    link = random.choice(links_of(scenario.layout))
    at_s = _draw_moment_s(random, scenario)
    return with_steps(scenario, (), (c.LoseHistory(at_s, _draw_duration_s(random), *link),))


def _recreated_unseen(random: Random, scenario: Scenario) -> Scenario:
    """An object on the hub is replaced by one with the same name while a cell is not watching."""
    scenario = split(scenario)
    cell, at_s = random.choice(scenario.layout.cells), _draw_moment_s(random, scenario)
    link = (host_of_cell(scenario.layout, cell), hosts_of(scenario.layout)[0])
    deleted = DeleteObject(round(at_s + 0.5, 2), HUB, DEPLOYMENT.resource, random.randrange(100))
    return with_steps(scenario, (deleted,), (c.LoseHistory(at_s, _draw_duration_s(random), *link),))


def _restart_onto_a_cache(random: Random, scenario: Scenario) -> Scenario:
    """An object is created and deleted while the center restarts with old lists."""
    scenario = split(scenario)
    project, cell = random.choice(scenario.layout.projects), random.choice(scenario.layout.cells)
    at_s = round(random.uniform(3, 6), 2)
    create = CreateWorkload(0.0, project, "db", "db:1", 2, (cell.upper(),))
    delete = DeleteWorkload(round(at_s + random.uniform(0.1, 1), 2), project, "db")
    host = host_of_cell(scenario.layout, cell)
    fault = c.AnswerFromCache(
        at_s, _draw_duration_s(random), hosts_of(scenario.layout)[0], host, 20.0
    )
    return with_steps(replace(scenario, operations=()), (create, delete), (fault,))


def _replayed(random: Random, scenario: Scenario) -> Scenario:
    link = random.choice(links_of(scenario.layout))
    at_s, percent = _draw_moment_s(random, scenario), random.choice((10, 50))
    fault = f.RepeatEvents(at_s, _draw_duration_s(random), *link, percent, random.getrandbits(32))
    return with_steps(scenario, (), (fault,))


# --- failing writes


def _trouble_with_writes(random: Random, scenario: Scenario) -> Scenario:
    """A rollout and a scale-down, while a host's requests to its own planes fail."""
    cell = random.choice(scenario.layout.cells)
    host = random.choice((host_of_cell(scenario.layout, cell), hosts_of(scenario.layout)[0]))
    at_s, for_s, salt = round(random.uniform(3, 6), 2), 20.0, random.getrandbits(32)
    fault = random.choice(
        (
            f.Throttle(at_s, for_s, host, host, 80, salt),
            f.RepeatWrites(at_s, for_s, host, host, 30, 3.0, salt),
            f.DelayWrites(0.0, for_s, host, host, 30, 20.0, salt),
            f.Throttle(at_s, for_s, host, host, 60, salt),
        )
    )
    project = random.choice(scenario.layout.projects)
    rolled = random.random() < 0.5 and isinstance(fault, f.RepeatWrites | f.DelayWrites)
    change_s = round(at_s + 1, 2)
    steps: tuple[Operation, ...] = (
        CreateWorkload(0.0, project, "db", "db:1", 2, (cell.upper(),)),
        ChangeImage(change_s, project, "db", "db:2")
        if rolled
        else ScaleWorkload(change_s, project, "db", 1),
    )
    return with_steps(replace(scenario, operations=()), steps, (fault,))


def _expired_token(random: Random, scenario: Scenario) -> Scenario:
    link = random.choice(links_of(scenario.layout))
    fault = c.ExpireToken(_draw_moment_s(random, scenario), _draw_duration_s(random), *link)
    return with_steps(scenario, (), (fault,))


def _new_namespace_deleted(random: Random, scenario: Scenario) -> Scenario:
    host = random.choice([h for h in hosts_of(scenario.layout) if h not in MANAGERS])
    return with_steps(scenario, (), (c.DeleteNewNamespace(0.0, host),))


# --- emptied, restored and unreachable planes


def _lost_with_a_copy(random: Random, scenario: Scenario) -> Scenario:
    """A cell comes back empty, and is lost as soon as it has received an object."""
    scenario = split(scenario)
    host = host_of_cell(scenario.layout, random.choice(scenario.layout.cells))
    at_s = round(random.uniform(3, 8), 2)
    return with_steps(scenario, (), (f.EmptyHost(at_s, host), c.DieWithCopy(at_s, host)))


def _restored(random: Random, scenario: Scenario) -> Scenario:
    plane = random.choice((HUB, *map(cell_plane, scenario.layout.cells)))
    fault = c.RestorePlane(_draw_moment_s(random, scenario), _draw_duration_s(random), plane)
    return with_steps(scenario, (), (fault,))


def _migrated(random: Random, scenario: Scenario) -> Scenario:
    """Every row of a plane is written again, perhaps while commits are slow."""
    plane, at_s = random.choice(scenario.layout.planes), _draw_moment_s(random, scenario)
    faults: tuple[f.Fault, ...] = (c.TouchEverything(at_s, plane),)
    if random.random() < 0.5:
        host = host_of_plane(scenario.layout, plane)
        faults += (c.SlowDisk(at_s, _draw_duration_s(random), host, random.choice((10.0, 50.0))),)
    return with_steps(scenario, (), faults)


def _center_stopped(random: Random, scenario: Scenario) -> Scenario:
    """I19: the center is unreachable for a long time, and cells lose machines meanwhile."""
    scenario = replace(split(scenario), faults=())
    at_s, for_s = _draw_moment_s(random, scenario), round(random.uniform(60, 120), 2)
    lost = [
        f.LoseMachine(round(at_s + random.uniform(0, 10), 2), cell, random.randrange(100))
        for cell in scenario.layout.cells
    ]
    return with_steps(scenario, (), (f.StopHost(at_s, for_s, hosts_of(scenario.layout)[0]), *lost))


def _machines_lost(random: Random, scenario: Scenario) -> Scenario:
    """The machines of a cell are lost, and for a while no new machine runs."""
    at_s, cell = _draw_moment_s(random, scenario), random.choice(scenario.layout.cells)
    fault = c.BurnMachines(at_s, round(random.uniform(60, 120), 2), cell)
    return with_steps(replace(scenario, faults=()), (), (fault,))


def _two_leaders(random: Random, scenario: Scenario) -> Scenario:
    """F16: the leader is paused for longer than its lease while it has work, and then continues."""
    layout = replace(scenario.layout, processes="managers", managers=2)
    at_s = _draw_moment_s(random, scenario)
    scenario = replace(scenario, layout=layout, faults=(), operations=())
    managers = MANAGERS if random.random() < 0.3 else random.sample(MANAGERS, 1)
    paused = [f.PauseHost(at_s, round(random.uniform(18, 40), 2), host) for host in managers]
    project = random.choice(layout.projects)
    change = ChangeImage(round(at_s + 0.3, 2), project, "db", "db:2")
    create = CreateWorkload(0.0, project, "db", "db:1", 2, (layout.cells[0].upper(),))
    return with_steps(scenario, (create, change), tuple(paused))


# --- unusual operations


def _too_much_deleted(random: Random, scenario: Scenario) -> Scenario:
    """F12, F34: all objects of a kind with a prefix are deleted."""
    plane, kinds = random.choice(((HUB, HUB_KINDS), (_draw_cell(random, scenario), CELL_KINDS)))
    prefix = random.choice(("", "", "w", "db"))
    at_s = _draw_moment_s(random, scenario)
    operation = DeleteAll(at_s, plane, random.choice(kinds).resource, prefix)
    return with_steps(scenario, (operation,), ())


def _old_writer(random: Random, scenario: Scenario) -> Scenario:
    """F31: an old client drops fields that it does not support."""
    plane, kind = random.choice(
        (
            (HUB, DEPLOYMENT),
            (HUB, WORK),
            (_draw_cell(random, scenario), DEPLOYMENT),
            (_draw_cell(random, scenario), INSTANCE),
            (project_plane(scenario.layout.projects[0]), INSTANCE),
        )
    )
    at_s = _draw_moment_s(random, scenario)
    drops = tuple(
        DropField(round(at_s + step, 2), plane, kind.resource, random.randrange(100))
        for step in range(3)
    )
    return with_steps(scenario, drops, ())


def _names_alike(random: Random, scenario: Scenario) -> Scenario:
    """F34: the name of one workload is a prefix of another's; operations on one do not affect the
    other."""
    project, cities = random.choice(scenario.layout.projects), _draw_city(random, scenario)
    at_s = round(random.uniform(3, 6), 2)
    steps = (
        CreateWorkload(0.0, project, "web", "web:1", 2, cities),
        CreateWorkload(0.0, project, "web-0", "web:2", 2, cities),
        random.choice(
            (
                DeleteWorkload(at_s, project, "web"),
                DeleteWorkload(at_s, project, "web-0"),
                ScaleWorkload(at_s, project, "web", 1),
                ChangeImage(at_s, project, "web", "web:3"),
            )
        ),
    )
    return with_steps(replace(scenario, operations=()), steps, ())


def _revoked(random: Random, scenario: Scenario) -> Scenario:
    """A project is revoked while its workloads run."""
    layout = replace(scenario.layout, projects=("alpha", "beta"), revocable=("beta",))
    scenario = replace(scenario, layout=layout)
    replicas, cities = random.choice((1, 1, 2)), _draw_city(random, scenario)
    create = CreateWorkload(0.0, "beta", "db", "db:1", replicas, cities)
    revoke = RevokeProject(round(random.uniform(2, 8), 2), "beta")
    return with_steps(scenario, (create, revoke), ())


FAULT_TEMPLATES: tuple[Template, ...] = (
    _blind_spell,
    _recreated_unseen,
    _restart_onto_a_cache,
    _replayed,
    _trouble_with_writes,
    _trouble_with_writes,
    _expired_token,
    _new_namespace_deleted,
    _lost_with_a_copy,
    _restored,
    _migrated,
    _center_stopped,
    _machines_lost,
    _two_leaders,
    _too_much_deleted,
    _old_writer,
    _names_alike,
    _revoked,
    _revoked,
)


# --- helpers


def with_steps(
    scenario: Scenario, operations: tuple[Operation, ...], faults: tuple[f.Fault, ...]
) -> Scenario:
    """Add the steps and extend the chaos until they are over."""
    ends_s = [s.at_s + _lasts_s(s) + _TAIL_S for s in (*operations, *faults)]
    steps = (*scenario.operations, *operations)
    faults = (*_faults_of_layout(scenario), *faults)
    return replace(
        scenario,
        operations=tuple(sorted(steps, key=lambda step: step.at_s)),
        faults=tuple(sorted(faults, key=lambda step: step.at_s)),
        chaos_s=round(max([scenario.chaos_s, *ends_s]), 2),
    )


def _lasts_s(step: Operation | f.Fault) -> float:
    if isinstance(step, c.DieWithCopy):
        return _COPY_S
    for_s = float(getattr(step, "for_s", 0.0))
    return 0.0 if for_s == f.FOR_EVER else for_s


def _faults_of_layout(scenario: Scenario) -> tuple[f.Fault, ...]:
    """Leave out faults that name a host that this layout does not have."""
    hosts = hosts_of(scenario.layout)
    named = ("host", "source", "target")
    return tuple(
        fault
        for fault in scenario.faults
        if all(getattr(fault, name, hosts[0]) in hosts for name in named)
    )


def split(scenario: Scenario) -> Scenario:
    if scenario.layout.processes == "split":
        return scenario
    return replace(scenario, layout=replace(scenario.layout, processes="split"))


def _draw_moment_s(random: Random, scenario: Scenario) -> float:
    """Return a time shortly before an operation."""
    times = [operation.at_s for operation in scenario.operations if operation.at_s >= 1]
    at_s = random.choice(times) if times else 5.0
    return round(max(0.0, at_s - random.uniform(0, 0.5)), 2)


def _draw_duration_s(random: Random) -> float:
    return round(random.uniform(2, 10), 2)


def _draw_cell(random: Random, scenario: Scenario) -> str:
    return cell_plane(random.choice(scenario.layout.cells))


def _draw_city(random: Random, scenario: Scenario) -> tuple[str, ...]:
    return (random.choice(scenario.layout.cells).upper(),)


# Registries whose images behave differently (drivers/simulated); "" is the default one.
_REGISTRIES = (
    *("", "crash.example/", "fail.example/", "stuck.example/", "exit.example/"),
    *("flaky.example/", "slow.example/"),
)
_NAME = "db"


def with_restart_template(random: Random, scenario: Scenario) -> Scenario:
    return random.choice(RESTART_TEMPLATES)(random, replace(scenario, operations=(), faults=()))


def _interrupted_rollout(random: Random, scenario: Scenario) -> Scenario:
    """Processes or the engine restart during a rollout."""
    layout = scenario.layout
    project, cell = random.choice(layout.projects), random.choice(layout.cells)
    at_s = round(random.choice((random.uniform(0.3, 2), random.uniform(3, 6))), 2)
    steps: list[Operation] = [
        CreateWorkload(0.0, project, _NAME, "db:1", random.choice((2, 2, 2, 3)), (cell.upper(),)),
        ChangeImage(at_s, project, _NAME, f"{random.choice(_REGISTRIES)}db:2"),
    ]
    if random.random() < 0.4:
        min_ready_s, most = random.choice((0, 2, 10)), random.choice((1, 1, 2))
        steps.append(RollCarefully(0.2, project, _NAME, min_ready_s, most))
    restarts = [
        _restart(random, scenario, cell, round(at_s + random.uniform(0.05, late_s), 2))
        for late_s in random.choice(((1.0,), (1.0, 1.0), (1.0, 40.0), (40.0,)))
    ]
    over_s = max(fault.at_s + getattr(fault, "for_s", 0.0) for fault in restarts)
    steps.append(ChangeImage(round(over_s + random.uniform(1, 60), 2), project, _NAME, "db:3"))
    return with_steps(scenario, tuple(steps), tuple(restarts))


# Pairs of maxSurge and maxUnavailable; None is the default. None of them is 0 for both.
_LIMITS: tuple[tuple[int | str | None, int | str | None], ...] = (
    *((None, None), (None, None), (1, None), (1, 0), (2, None), (3, 0)),
    *(("25%", None), ("50%", "0%"), ("100%", 0), (1, 1), ("50%", "50%"), (0, None), ("0%", 1)),
)


def with_surge(random: Random, scenario: Scenario) -> Scenario:
    """Rollouts with surge to good and bad images, with changes back to the image before, while
    processes restart. Sometimes quota suffices for no surge instance, or for one."""
    layout = scenario.layout
    project, cell = random.choice(layout.projects), random.choice(layout.cells)
    replicas = random.choice((1, 1, 2, 3, 4))
    is_tight = random.random() < 0.25
    if is_tight:
        layout = replace(layout, instances=replicas + random.choice((0, 1)))
    scenario = replace(scenario, layout=layout, operations=(), faults=())
    policy = random.choice(("OrderedReady", "OrderedReady", "Parallel"))
    surge, unavailable = random.choice(_LIMITS)
    at_s = round(random.uniform(3, 6), 2)

    def later() -> float:
        return round(at_s + random.choice((0.5, 1, 2, 3, 8, 40)) * random.uniform(0.7, 1.3), 2)

    steps: list[Operation] = [
        CreateWorkload(0.0, project, _NAME, "db:1", replicas, (cell.upper(),)),
        AllowSurge(0.2, project, _NAME, surge, unavailable, policy),  # type: ignore[arg-type]
    ]
    for number in range(2, random.choice((3, 4, 5))):
        registry = random.choice(("", "", *_REGISTRIES))
        steps.append(ChangeImage(at_s, project, _NAME, f"{registry}db:{number}"))
        at_s = later()
        choice = random.random()
        if choice < 0.4:
            steps.append(ChangeImage(at_s, project, _NAME, f"db:{number - 1}"))
        elif choice < 0.5 and not is_tight and surge is not None:
            steps.append(ScaleWorkload(at_s, project, _NAME, random.randint(1, 4)))
        at_s = later()
    steps.append(ChangeImage(at_s, project, _NAME, "db:9"))
    restarts = tuple(
        _restart(random, scenario, cell, round(random.uniform(3, at_s + 5), 2))
        for _ in range(random.choice((0, 0, 1, 2)))
    )
    return with_steps(scenario, tuple(steps), restarts)


def _edited_while_lost(random: Random, scenario: Scenario) -> Scenario:
    """An operator edits a Server whose machine has just failed: the edit applies to the next
    machine."""
    project, cell = random.choice(scenario.layout.projects), random.choice(scenario.layout.cells)
    at_s = round(random.uniform(3, 8), 2)
    create = CreateWorkload(0.0, project, _NAME, "db:1", 1, (cell.upper(),))
    edit = EditObject(
        round(at_s + random.uniform(0.1, 5), 2), cell_plane(cell), SERVER.resource, "spec", 0
    )
    return with_steps(scenario, (create, edit), (f.LoseMachine(at_s, cell, 0),))


def _emptied_with_news(random: Random, scenario: Scenario) -> Scenario:
    """A cell comes back empty, and receives a new namespace before the hub watches it again."""
    scenario = split(scenario)
    project, cell = random.choice(scenario.layout.projects), random.choice(scenario.layout.cells)
    at_s, city = round(random.uniform(3, 15), 2), (cell.upper(),)
    create = CreateWorkload(0.0, project, _NAME, "db:1", 1, city)
    change = ChangeImage(round(at_s + random.uniform(5, 15), 2), project, _NAME, "db:2")
    fleeting_namespace = FleetingNamespace(
        round(at_s - random.uniform(0, 0.1), 2), project, "fleeting-0", city, 20.0
    )
    emptied_planes = f.EmptyHost(at_s, host_of_cell(scenario.layout, cell))
    return with_steps(scenario, (create, fleeting_namespace, change), (emptied_planes,))


def _restart(random: Random, scenario: Scenario, cell: str, at_s: float) -> f.Fault:
    """Return a restart, mostly of the process with the driver."""
    owner = host_of_cell(scenario.layout, cell)
    host = random.choice((owner, owner, owner, random.choice(hosts_of(scenario.layout))))
    return random.choice(
        (
            f.StopHost(at_s, round(random.uniform(0.2, 5), 2), host),
            f.StopHost(at_s, round(random.uniform(0.2, 5), 2), host),
            f.CrashAtCommit(at_s, host, random.randint(1, 12), random.random() < 0.5),
            f.ProviderAway(at_s, round(random.uniform(1, 60), 2), cell),
        )
    )


RESTART_TEMPLATES: tuple[Template, ...] = (
    *(_interrupted_rollout,) * 6,
    _edited_while_lost,
    _emptied_with_news,
)


# Images that crash later, fail their liveness or readiness probe for ever or in turn, or do not end
# when they are requested to.
_UNRELIABLE = (
    *("late.example/", "unhealthy.example/", "unready.example/"),
    *("flapping.example/", "stubborn.example/"),
)


def with_unreliable_image(random: Random, scenario: Scenario) -> Scenario:
    """Roll a workload out to an image that starts and does not stay healthy, and some time later to
    one that does.

    Not where visitors expect every connection to be served, and not with scarce quota: a rollout
    that does not complete holds the quota that others wait for.
    """
    created = [step for step in scenario.operations if isinstance(step, CreateWorkload)]
    if not created or scenario.layout.published or scenario.layout.has_scarce_quota:
        return scenario
    workload = random.choice(created)
    project, name = workload.project, workload.name
    at_s = round(workload.at_s + random.uniform(2, 12), 2)
    for_s = random.choice((random.uniform(1, 4), random.uniform(5, 15), random.uniform(20, 40)))
    return with_steps(
        scenario,
        (
            ChangeImage(at_s, project, name, f"{random.choice(_UNRELIABLE)}{name}:7"),
            ChangeImage(round(at_s + for_s, 2), project, name, f"{name}:8"),
        ),
        (),
    )
