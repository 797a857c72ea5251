"""A world for controllers of your own.

The planes run on one host and your process on another, with the network, disks, crashes and faults
of the simulator between them.

    KEEPER = CustomProgram(controllers, prepare, act, missing, tidy_up, left, violation)
    run_custom_world(KEEPER, custom_scenario_of(42))  # raises WorldBroken, with the trace
    sys.exit(custom_main(KEEPER))                     # --seeds 50, or --seed 42 for a trace

A run has the phases of every other: chaos, in which ``act`` performs operations and faults happen;
calm, after which ``missing`` must find nothing and nothing may be written; and the end, when
``tidy_up`` has deleted everything. ``violation`` is checked at every commit. All of them read
committed rows, not the state of the program. Begin a violation with a number (``I1: ...``), because
the shrinker compares it. An error in the log that is not an API error is a violation, too (I20).

``tests/examples/ordered_world.py`` is a complete example.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Any

from datum_compute.api.errors import AlreadyExists, ApiError, Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, path_prefix
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport
from datum_compute.client.transport.retry import RetryingTransport
from datum_compute.controllers import registry
from datum_compute.planes.planes import Planes
from datum_compute.runtime.controller import Controller
from datum_compute.runtime.manager import Manager
from datum_compute.store.journal import Change, Entry
from datum_compute.telemetry.broken_pipe import exit_on_broken_pipe
from testkit.sim.actors.fault_injector import SimulatedFaultInjector
from testkit.sim.checks.client_view import LogChecker
from testkit.sim.checks.invariants import InvariantBroken, Observer
from testkit.sim.checks.state import ClusterState, Rows
from testkit.sim.disk import Disk
from testkit.sim.host import HostEnvironment, HostRoles, SimulatedHost, credentials_of
from testkit.sim.loop import VirtualLoop, run_virtual, stream
from testkit.sim.network import SimulatedNetwork, WrapTransport
from testkit.sim.run.shrink import shrink
from testkit.sim.run.trial import Failure, run_trial
from testkit.sim.run.world import Outcome, WorldBroken
from testkit.sim.scenario.draw import MEDIUM, draw_faults
from testkit.sim.scenario.faults import AnswerFromCache, ExpireToken, Fault, LoseHistory
from testkit.sim.scenario.scenario import CENTER, MANAGER, USER, Scenario, WorldLayout

# Faults are drawn for a world with a cell. Faults of that cell are left out.
LAYOUT = WorldLayout("managers", ("alpha",), ("dfw",))
WINDOW_S, TAIL_S = 30.0, 10.0
CONVERGE_S, QUIET_S = 300.0, 120.0
RECHECK_S = 35.0  # ``missing`` is checked once more

_PLANES = (PLATFORM, HUB)


@dataclass(frozen=True, slots=True)
class CustomUser:
    """A client of the plane that retries until it gets a response."""

    client: Client
    random: Random

    async def retry_until_done(self, ask: Callable[[], Awaitable[object]]) -> None:
        while True:
            try:
                await ask()
            except AlreadyExists:
                return
            except (ApiError, Unreachable):
                await asyncio.sleep(0.3)
            else:
                return


def _no_violation(_state: ClusterState, _before: Rows, _change: Change, _scenario: Scenario) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class CustomProgram:
    """Controllers of role ``hub``, their users and their checks. ``act`` and ``tidy_up`` retry;
    ``missing`` and ``left`` return what is wrong with the rows, or the empty string."""

    controllers: Callable[[ProcessEnvironment], Sequence[Controller[Planes]]]
    prepare: Callable[[Client], Awaitable[None]]  # creates the definitions of the kinds
    act: Callable[[CustomUser], Coroutine[Any, Any, None]]
    missing: Callable[[ClusterState], str]
    tidy_up: Callable[[CustomUser], Awaitable[None]]
    left: Callable[[ClusterState], str]
    # Called after every commit with the cluster state, the hub's rows before it, the change and the
    # scenario.
    violation: Callable[[ClusterState, Rows, Change, Scenario], str] = _no_violation


@dataclass(frozen=True, slots=True)
class _CustomProcess:
    """One process of the program."""

    environment: ProcessEnvironment
    reach: Callable[[PlaneName], Transport]
    program: CustomProgram

    async def dispatch(self, request: Request) -> Response:
        raise Unreachable(f"nothing is served here: {request.path}")

    async def run(self) -> None:
        controllers = self.program.controllers(self.environment)
        manager = Manager(
            controllers,
            lambda made: Planes(made.cached_client, made.engaged_planes),
            self.environment.random,
        )
        manager.engage(HUB, _client_of(self.reach(HUB)))
        await manager.run()

    def is_ready(self) -> bool:
        return True


def _client_of(transport: Transport) -> Client:
    return Client(transport, prefix=path_prefix(HUB), token=f"token-of-{HUB}", agent="test")


def custom_scenario_of(seed: int) -> Scenario:
    """Draw the faults of ``make sim`` that affect the two hosts."""
    drawn = [
        fault
        for part in range(8)
        for fault in draw_faults(stream(seed, "faults", str(part)), LAYOUT, MEDIUM, WINDOW_S)
        if "dfw" not in repr(fault)
    ]
    random = stream(seed, "faults", "blind")
    at_s = round(random.uniform(0, WINDOW_S), 2)
    link = (at_s, round(random.uniform(2, 10), 2), MANAGER, CENTER)
    blind = random.choice((LoseHistory(*link), ExpireToken(*link), AnswerFromCache(*link, 5.0)))
    faults: tuple[Fault, ...] = (*drawn[: seed % 6], blind)
    return Scenario(seed, LAYOUT, (), faults, chaos_s=WINDOW_S + TAIL_S)


class _CustomWorld:
    def __init__(self, loop: VirtualLoop, program: CustomProgram, scenario: Scenario) -> None:
        self._loop = loop
        self._program = program
        self._scenario = scenario
        seed = scenario.seed
        self._state = ClusterState({}, loop.time)
        self.observer = Observer(self._state, ())
        self.observer.on_broken = self._stop
        self._seen: Counter[str] = Counter()
        self._network = SimulatedNetwork(
            lambda part: stream(seed, "network", part), self._state.version_before, self._count
        )
        self._build_hosts()
        client = _client_of(self._network.transport(USER, CENTER))
        self._user = CustomUser(client, stream(seed, "workload"))
        self._chaos = SimulatedFaultInjector(
            loop=loop,
            layout=LAYOUT,
            network=self._network,
            hosts=self._network.hosts,
            providers={},
            operator=lambda _plane: client,
            log=self.observer.log,
            drop_plane=self._state.drop_plane,
            restored=self._state.restore,
            tamper=lambda _plane, _ref: None,
        )

    async def run(self) -> Outcome:
        program, user = self._program, self._user
        for host in self._network.hosts.values():
            host.start()
        await user.retry_until_done(lambda: program.prepare(user.client))
        acting = self._loop.create_task(program.act(user))
        injecting = self._loop.create_task(self._chaos.run(self._scenario.faults))
        await asyncio.sleep(self._scenario.chaos_s)
        self._chaos.recover()
        self.observer.log("calm")
        await acting
        if injecting.done():
            await injecting
        await self._settles(program.missing)
        self.observer.log("settled; everything is deleted")
        await program.tidy_up(user)
        await self._settles(program.left)
        return Outcome(
            commits=self._state.writes,
            crashes=sum(host.crash_count for host in self._network.hosts.values()),
            virtual_s=self._loop.time(),
            trace=self.observer.trace,
            sometimes=dict(self._seen),
            final=(),
        )

    async def _settles(self, missing: Callable[[ClusterState], str]) -> None:
        """Wait until ``missing`` returns the empty string, then check that nothing is written."""
        deadline_s = self._loop.time() + CONVERGE_S
        while left := missing(self._state) or ("late" if self._network.in_transit else ""):
            if self._loop.time() > deadline_s:
                raise InvariantBroken(f"I6: not converged: {left}")
            await asyncio.sleep(1)
        await asyncio.sleep(RECHECK_S)
        writes = self._state.writes
        await asyncio.sleep(QUIET_S)
        if self._state.writes != writes:
            last = self.observer.trace[-3:]
            raise InvariantBroken(f"I6: a settled world writes: {last}")

    def _build_hosts(self) -> None:
        host_environment = HostEnvironment(
            loop=self._loop,
            credentials=credentials_of(_PLANES),
            providers={},
            reach=self._reach,
            on_commit=self._on_commit,
            on_crash=self._network.drop_host,
            on_exit=self._on_exit,
            on_answer=lambda _request, _response: None,
        )
        cluster_controllers = tuple(c for c in registry.CLUSTER if c.role in ("hub", "platform"))
        process = partial(_CustomProcess, program=self._program)
        cast = (
            HostRoles(CENTER, _PLANES, True, cluster_controllers, ()),
            HostRoles(MANAGER, (), False, (), (HUB,), process=process),
        )
        for number, roles in enumerate(cast):
            disk = Disk(stream(self._scenario.seed, "disk", roles.name))
            ids = stream(self._scenario.seed, "ids", roles.name)
            self._network.hosts[roles.name] = SimulatedHost(
                roles, host_environment, disk, ids, number
            )

    def _reach(self, source: str, _plane: PlaneName, wrap: WrapTransport) -> Transport:
        link = wrap(self._network.transport(source, CENTER))
        random = stream(self._scenario.seed, "network", f"retries-{source}")
        return link if source == CENTER else RetryingTransport(link, random)

    def _on_commit(self, number: int, batch: Sequence[Entry]) -> None:
        before = dict(self._state.rows.get(HUB, {}))
        self.observer.on_commit(number, batch)
        for entry in batch:
            if isinstance(entry, Change):
                violation = self._program.violation(self._state, before, entry, self._scenario)
                if violation:
                    self.observer.report_violation(violation)

    def _on_exit(self, host: str, error: BaseException) -> None:
        if not self._network.hosts[host].disk.failed:
            self.observer.report_violation(f"{host} ended: {error!r}")

    def _stop(self, error: InvariantBroken) -> None:
        self._loop.call_exception_handler({"message": str(error), "exception": error})

    def _count(self, sign: str) -> None:
        self._seen[sign] += 1


def run_custom_world(program: CustomProgram, scenario: Scenario) -> Outcome:
    """Run one world. Raise WorldBroken with the trace so far if a rule is violated."""
    traces: list[Sequence[str]] = [()]

    async def main(loop: VirtualLoop) -> Outcome:
        world = _CustomWorld(loop, program, scenario)
        traces[0] = world.observer.trace
        with LogChecker(world.observer.report_violation):
            return await world.run()

    gc.disable()  # no finalizers during a run
    try:
        return run_virtual(stream(scenario.seed, "schedule"), main, scenario.shuffled_s)
    except Exception as error:
        raise WorldBroken(error, traces[0]) from error
    finally:
        gc.enable()


# --- command line


@exit_on_broken_pipe
def custom_main(program: CustomProgram, arguments: Sequence[str] | None = None) -> int:
    """Search seeds and shrink failures, or replay one seed with its trace."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=50, help="how many seeds to run (50)")
    parser.add_argument("--first", type=int, default=1, help="the first seed (1)")
    parser.add_argument("--seed", type=int, help="replay one seed and print its trace")
    options = parser.parse_args(arguments)
    run = partial(run_custom_world, program)
    if options.seed is not None:
        return _replay(run, custom_scenario_of(options.seed))
    for seed in range(options.first, options.first + options.seeds):
        found = run_trial(custom_scenario_of(seed), run)
        if isinstance(found, Failure):
            _print_shrunk(run, found)
            return 1
    _print(f"{options.seeds} seeds from {options.first} on: every rule held")
    return 0


def _replay(run: Callable[[Scenario], Outcome], scenario: Scenario) -> int:
    """Print a replay; equal for two runs of one seed, in any process."""
    found = run_trial(scenario, run)
    failed = isinstance(found, Failure)
    result = f"broke {found.message}" if isinstance(found, Failure) else "every rule held"
    for line in (*scenario.lines(), *found.trace, f"seed {scenario.seed}: {result}"):
        _print(line)
    return 1 if failed else 0


def _print_shrunk(run: Callable[[Scenario], Outcome], failure: Failure) -> None:
    _print(f"seed {failure.scenario.seed} broke {failure.message}")
    small = shrink(failure, trial=lambda scenario: run_trial(scenario, run))
    _print(f"shrunken in {small.runs} runs: {small.failure.message}")
    for line in (*small.failure.scenario.lines(), *small.failure.trace):
        _print(f"  {line}")
    _print(f"replay it whole: --seed {failure.scenario.seed}")


def _print(line: str) -> None:
    print(line)  # noqa: T201
