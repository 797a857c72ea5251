"""The driver: one task for each machine, which looks, decides (``steps.py``) and acts, again and
again; woken by the engine's events and by a list of all containers now and then.

``run`` must run for anything to happen. Until the engine's containers have been listed for the
first time nothing is reported about any machine: a machine is absent only if a list shows that it
is.

A machine that an earlier process made is adopted. It is observed when its containers have been
inspected and its readiness checks have reached a first verdict. Until then, and while the engine
does not answer, it is NOT_OBSERVED, and after OBSERVATION_DEADLINE_S its phase is Unknown.
"""
# MERGED-DOC """Hears what the engine tells of the containers of a cell."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, MutableMapping

import msgspec

from datum_compute.api.reasons import Reason
from datum_compute.api.scaletozero import SleepMode
from datum_compute.api.server import ServerSpec
from datum_compute.drivers.container_defaults import container_limits
from datum_compute.drivers.containers import operations as sleeping
from datum_compute.drivers.containers.container_spec import (
    CELL,
    DEFAULT_NETWORK,
    MACHINE,
    PLATFORM,
    SERVER,
    ContainerOwner,
    build_plan,
    read_plan,
)
from datum_compute.drivers.containers.crash_reports import (
    CrashReportArchive,
    build_crash_report,
    build_removal_report,
    note,
)
from datum_compute.drivers.containers.engine import (
    PING_TIMEOUT_S,
    Engine,
    EngineError,
    encode_filters,
    parse_json_lines,
)
from datum_compute.drivers.containers.exec import KillProcess
from datum_compute.drivers.containers.images import ImageInfo, ImageUnavailable
from datum_compute.drivers.containers.machine import (
    BACKOFF_MAX_S,
    BACKOFF_S,
    EMPTY_RECORD,
    Machine,
    MachineRecord,
    SetupProblem,
    record_exit,
    record_failed_wake,
    record_sleep,
    record_start,
)
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.containers.probes import ProbeRunner
from datum_compute.drivers.containers.queries import MachineQueries
from datum_compute.drivers.containers.status import (
    machine_state,
    readiness_check_title,
    unproven_until_s,
)
from datum_compute.drivers.containers.steps import (
    CreateContainers,
    ForgetMachine,
    PauseContainers,
    RecordExit,
    RemoveContainers,
    StartContainers,
    StartSleep,
    Step,
    StopContainers,
    WaitForChange,
    WakeContainers,
    next_step,
)
from datum_compute.drivers.driver import (
    NO_DATA,
    NOT_OBSERVED,
    OBSERVATION_DEADLINE_S,
    DriverError,
    MachineData,
    MachineState,
    NotObserved,
    Observation,
    PermanentError,
    TransientError,
    missing_observation,
)
from datum_compute.drivers.logs import LogArchive

# Between tries while the engine does not answer.
AWAY_S = 1.0

_log = logging.getLogger(__name__)


class EngineEventWatcher:
    """``heard`` receives the id of a machine of which there is news; an empty one means that it may
    be any of them, because the stream was interrupted. ``lost`` is called when the stream ends."""

    def __init__(
        self,
        engine: Engine,
        owner: ContainerOwner,
        heard: Callable[[str], None],
        lost: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._heard = heard
        self._lost = lost
        self.hears = True  # until proven otherwise

    async def listen(self) -> None:
        query = {"filters": encode_filters(type=["container"])}
        while True:
            try:
                async with self._engine.stream("GET", "/events", query) as chunks:
                    self.hears = True
                    self._heard("")
                    async for event in parse_json_lines(chunks):
                        self._hear((event.get("Actor") or {}).get("Attributes") or {})
            except (DriverError, AttributeError, TypeError) as error:
                if self.hears:
                    _log.warning("no events of the container engine: %s", error)
            if self.hears:
                self.hears = False
                self._lost()
            await asyncio.sleep(AWAY_S)

    def _hear(self, labels: dict[str, str]) -> None:
        ours = {PLATFORM: labels.get(PLATFORM), CELL: labels.get(CELL)} == self._owner.labels
        if ours and labels.get(MACHINE):
            self._heard(labels[MACHINE])


RESYNC_S = 30.0
# The same while the engine sends no events.
DEAF_S = 2.0
# How long a request waits for the first list of the engine's containers.
FIRST_LIST_WAIT_S = 5.0
# An engine that takes longer to list its containers counts as lost.
LIST_TIMEOUT_S = 10.0
# How often running containers are listed, in case an event was lost. The interval grows so that the
# engine spends at most this share of the time on it: podman takes about 0.7 ms for each container.
COMPARE_EVERY_S = 4.0
COMPARE_SHARE_MAX = 0.05
# An engine that has answered nothing for this time is pinged.
PING_EVERY_S = 5.0
NO_ANSWER = "the container engine does not answer"
NO_VERDICT = "the readiness check of the machine has not finished"
NO_INSPECTION = "the container engine cannot inspect the containers of the machine"

_log = logging.getLogger(__name__)


class ContainersDriver:
    is_simulated = False

    def __init__(
        self,
        hands: ContainerOperations,
        owner: ContainerOwner,
        records: MutableMapping[str, MachineRecord],
        *,
        unix_s: Callable[[], float],
        elapsed_s: Callable[[], float],
        save: Callable[[], None],
        save_now: Callable[[], None],
        archive: LogArchive,
        cards: CrashReportArchive,
        ran_out_of_memory: Callable[[str], bool] = lambda _container_id: False,
        hang_up: KillProcess = lambda _process, _container_id, _by_force: None,
    ) -> None:
        self._hands = hands
        self._probing = ProbeRunner(
            hands.engine,
            self._on_ready_verdict,
            self._on_live_verdict,
            unix_s,
            confirm_engine=self._confirm_engine,
            on_early_failure=self._tell,
        )
        self._owner = owner
        self._records = records
        self._unix_s = unix_s
        self._elapsed_s = elapsed_s
        # Since when the engine has not answered; None while it does.
        self._lost_since_s: float | None = elapsed_s()
        # When the engine last answered any request, or sent an event.
        self._last_answer_s = elapsed_s()
        hands.engine.answer_listeners.append(self._note_answer)
        self._ping_lock = asyncio.Lock()
        self._save = save
        self._save_now = save_now
        self._cards = cards
        self._ran_out_of_memory = ran_out_of_memory
        self.inside = MachineQueries(hands, self._known, archive, cards, unix_s, hang_up)
        self._machines: dict[str, Machine] = {}
        self._read = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._resync_soon = asyncio.Event()
        self._ears = EngineEventWatcher(
            hands.engine, owner, self._look_again, self._resync_soon.set
        )
        self._news: dict[str, None] = {}
        self._has_news = asyncio.Event()

    # --- what the cell asks

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        if machine_id in (await self._known()):
            return
        memory = {name: limits.mebibytes for name, limits in container_limits(spec).items()}
        machine = Machine(machine_id, build_plan(self._owner, spec, memory), spec, data)
        self._tend(machine)

    async def remove(self, machine_id: str) -> None:
        machine = (await self._known()).get(machine_id)
        if machine is None:
            machine = await self._found(machine_id)
        if machine is not None and machine.wanted:
            machine.wanted = False
            machine.woken.set()
            if machine.pulling is not None:
                machine.pulling.cancel()

    async def observe(self, machine_id: str) -> Observation:
        try:
            machine = (await self._known()).get(machine_id)
        except TransientError:
            assert self._lost_since_s is not None, "the first list has not succeeded"
            return self._missing_observation(self._lost_since_s, NO_ANSWER)
        return self._observation(machine) if machine is not None else None

    async def machines(self, name: str = "") -> list[str]:
        await self._known()
        server = f"{SERVER}={name.rstrip('/')}" if name else ""
        listed = {labels.get(MACHINE, "") for labels in await self._hands.ours(server)}
        tended = {machine_id for machine_id in self._machines if machine_id.startswith(name)}
        return sorted((listed - {""}) | tended)

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        machine = (await self._known()).get(machine_id)
        if not self._ears.hears:  # what cannot be woken now must not fall asleep
            raise TransientError("the container engine does not answer")
        if machine is not None and sleeping.may_sleep(machine, self._unix_s()):
            machine.sleep.falling = mode
            machine.woken.set()
            try:
                await sleeping.until(machine, sleeping.is_asleep)
            finally:
                machine.sleep.falling = ""

    async def wake(self, machine_id: str) -> float:
        machine = (await self._known()).get(machine_id)
        if machine is None:
            raise TransientError(f"there is no machine {machine_id}")
        if not sleeping.can_wake(machine):
            return 0.0
        machine.sleep.waking = True
        machine.woken.set()
        await sleeping.until(machine, lambda m: not m.sleep.waking)
        return sleeping.woken_in_s(machine)

    async def changes(self) -> AsyncIterator[str]:
        while True:
            await self._has_news.wait()
            self._has_news.clear()
            news, self._news = self._news, {}
            for machine_id in news:
                yield machine_id

    # --- what it does by itself

    async def run(self) -> None:
        """Look after the machines until cancelled; they run on without us."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._ears.listen())
            self._group.create_task(self._watch_engine())
            self._group.create_task(self._watch_containers())
            while True:
                self._resync_soon.clear()
                began_s = self._elapsed_s()
                try:
                    await self._resync()
                except (DriverError, LookupError, TypeError, ValueError) as error:
                    _log.warning("cannot list the containers of %s: %s", self._owner.cell, error)
                    self._note_loss(min(began_s, self._last_answer_s))
                    await asyncio.sleep(AWAY_S)
                    continue
                await _woken(self._resync_soon, RESYNC_S if self._ears.hears else DEAF_S)

    async def _watch_engine(self) -> None:
        """Ping the engine whenever it has answered nothing for a while, until cancelled. A loss
        must be noticed between two lists, and the stream of events may be silent for hours."""
        while True:
            quiet_s = self._elapsed_s() - self._last_answer_s
            if quiet_s < PING_EVERY_S:
                await asyncio.sleep(max(AWAY_S, PING_EVERY_S - quiet_s))
                continue
            try:
                await self._ping()
            except TransientError:
                await asyncio.sleep(AWAY_S)

    async def _watch_containers(self) -> None:
        """Inspect each machine with a container that has started or ended without an event."""
        await self._read.wait()
        while True:
            began_s = self._elapsed_s()
            try:
                running = await self._hands.list_running(LIST_TIMEOUT_S)
            except (DriverError, AttributeError, TypeError) as error:
                _log.debug("cannot compare the containers of %s: %s", self._owner.cell, error)
            else:
                for machine in self._machines.values():
                    seen = {(machine.id, s.name): s.standing for s in machine.seen.values()}
                    if any((at in running) != (seen[at] == "running") for at in seen):
                        machine.woken.set()
            pause_s = (self._elapsed_s() - began_s) / COMPARE_SHARE_MAX
            await asyncio.sleep(min(max(COMPARE_EVERY_S, pause_s), RESYNC_S))

    async def _ping(self) -> None:
        """Raise TransientError and note the loss if the engine does not answer."""
        began_s = self._elapsed_s()
        # End at the observation deadline, so that Unknown is announced in time.
        left_s = self._last_answer_s + OBSERVATION_DEADLINE_S - began_s
        try:
            await self._hands.engine.ping(
                min(PING_TIMEOUT_S, left_s) if left_s > 0 else PING_TIMEOUT_S
            )
        except TransientError:
            if self._last_answer_s <= began_s:
                self._note_loss(self._last_answer_s)
            raise

    async def _confirm_engine(self) -> None:
        """Raise TransientError unless the engine has answered something after this call. Many
        callers share a ping."""
        asked_s = self._elapsed_s()
        async with self._ping_lock:
            if self._lost_since_s is not None:
                raise TransientError(NO_ANSWER)
            if self._last_answer_s <= asked_s:
                await self._ping()

    def _look_again(self, machine_id: str) -> None:
        """At that machine, or without an id at all of them."""
        for machine in self._machines.values():
            if machine_id in ("", machine.id):
                machine.woken.set()

    async def _resync(self) -> None:
        """Adopt machines that are not known yet, and inspect all of them again."""
        for labels in await self._hands.ours(timeout_s=LIST_TIMEOUT_S):
            self._adopt(labels)
        self._note_return()
        if not self._read.is_set():
            self._forget_the_gone()
            self._read.set()
        self._look_again("")

    def _forget_the_gone(self) -> None:
        """What an earlier process left of machines that are no more."""
        for machine_id in [known for known in self._records if known not in self._machines]:
            del self._records[machine_id]
        self._save()
        self._hands.keep_files_of(self._machines)

    def _adopt(self, labels: dict[str, str]) -> Machine | None:
        machine_id, plan = labels.get(MACHINE, ""), read_plan(labels)
        if machine_id.count("/") != 2 or plan is None or machine_id in self._machines:
            return self._machines.get(machine_id)
        record = self._records.get(machine_id, EMPTY_RECORD)
        machine = Machine(machine_id, plan, record=record, awaits_first_observation=True)
        machine.unobserved_since_s = self._elapsed_s()
        self._tend(machine)
        return machine

    async def _found(self, machine_id: str) -> Machine | None:
        """A machine that we do not know, if the engine has any of its containers."""
        server = f"{SERVER}={machine_id.rpartition('/')[0]}"
        for labels in await self._hands.ours(server):
            if labels.get(MACHINE) == machine_id:
                return self._adopt(labels)
        return None

    async def _known(self) -> dict[str, Machine]:
        """The machines, once the engine's containers have been listed."""
        if self._read.is_set():
            return self._machines
        try:
            async with asyncio.timeout(self._read_timeout_s()):
                await self._read.wait()
        except TimeoutError:
            if not self._read.is_set():
                why = "the containers of the engine have not been listed yet"
                raise TransientError(why) from None
        return self._machines

    def _read_timeout_s(self) -> float:
        """Return how long to wait for the first list.

        The wait ends at the observation deadline, so that Unknown is reported in time.
        """
        assert self._lost_since_s is not None, "the first list has not succeeded"
        lost_for_s = self._elapsed_s() - self._lost_since_s
        return max(0.0, min(FIRST_LIST_WAIT_S, OBSERVATION_DEADLINE_S - lost_for_s))

    def _tend(self, machine: Machine) -> None:
        assert self._group is not None
        self._machines[machine.id] = machine
        self._group.create_task(self._look_after(machine))

    async def _look_after(self, machine: Machine) -> None:
        """The life of one machine. Nothing that goes wrong with it touches another."""
        while True:
            machine.woken.clear()
            pause_s: float | None = AWAY_S
            try:
                if not machine.sleep.trust():
                    await self._inspect(machine)
                step = self._next_step(machine)
                if isinstance(step, ForgetMachine):
                    break
                pause_s = await self._carry_out(machine, step)
            except ImageUnavailable as error:
                self._note_problem(machine, error.reason, str(error))
                pause_s = 0.0
            except PermanentError as error:
                self._note_problem(machine, Reason.CONFIGURATION_ERROR, str(error))
                self._give_up_waking(machine)
                pause_s = 0.0
            except (TransientError, EngineError) as error:
                machine.stage = str(error)
                pause_s = 0.0 if machine.sleep.is_mistaken() else AWAY_S
                _log.info("%s: %s", machine.id, error)
            except Exception:
                _log.exception("%s: looking after it failed", machine.id)
            self._tell(machine)
            machine.sleep.turn()
            await _woken(machine.woken, pause_s)
        await self._let_go(machine)

    async def _inspect(self, machine: Machine) -> None:
        began_s = self._elapsed_s()
        try:
            machine.seen = await self._hands.look(machine)
        except DriverError:
            if machine.unobserved_since_s is None:
                machine.unobserved_since_s = began_s
            raise
        self._note_observation(machine)

    def _next_step(self, machine: Machine) -> Step:
        """A wish to sleep is for this step only: one that has just ended does not fall asleep."""
        step = next_step(machine.sight(self._unix_s()))
        machine.sleep.falling = ""
        return step

    async def _carry_out(self, machine: Machine, step: Step) -> float | None:
        """Do it, and say how long to rest: None is until something happens."""
        match step:
            case CreateContainers():
                await self._create(machine)
                machine.stage = "the containers are being started"
                return 0.0
            case StartContainers(names):
                await self._hands.start(machine, names)
                machine.problem, machine.sleep.thawed = None, False
                self._note(machine, f"started: {', '.join(names)}")
                machine.spec, machine.data = None, NO_DATA
                self._keep(machine, record_start(machine.record))
                return 0.0
            case RecordExit(name):
                await self._note_end(machine, name)
                return 0.0
            case StopContainers(names):
                await self._hands.stop(machine, names)
                return 0.0
            case StartSleep(mode):
                self._keep(machine, record_sleep(machine.record, mode))
                self._save_now()  # before it ends, or its end would be a crash to who comes after
                self._probing.end(machine)
                return await self._carry_out(machine, self._next_step(machine))
            case PauseContainers(names):
                await self._hands.pause(machine, names)
                return 0.0
            case WakeContainers(names):
                record = await sleeping.wake(self._hands, machine, names, self._unix_s)
                machine.record = self._records[machine.id] = record
                await self._let_pass(machine)
                self._save()
                return 0.0
            case RemoveContainers():
                self._probing.end(machine)
                self._tell(machine)
                await self._remove(machine)
                return 0.0
            case WaitForChange(until_s, is_up):
                return await self._rest(machine, until_s, is_up=is_up)
            case ForgetMachine():
                return 0.0

    async def _remove(self, machine: Machine) -> None:
        await self._hands.stop(machine, [s.name for s in machine.seen.values() if s.is_up])
        machine.seen = await self._hands.look(machine)
        name = machine.containers[0]
        lines = await self._hands.last_lines(machine, name)
        card = build_removal_report(machine, machine.seen.get(name), lines, self._unix_s())
        await self._hands.remove(machine)
        self._cards.keep(machine.id, card)
        machine.has_card = True

    async def _create(self, machine: Machine) -> None:
        """Pulling may be cut short by a removal; making is not, or something would be left."""
        assert self._group is not None
        machine.pulling = self._group.create_task(self._pull(machine))
        try:
            images = await machine.pulling
        except asyncio.CancelledError:
            if machine.wanted:
                raise
            return
        finally:
            machine.pulling = None
        if isinstance(images, DriverError):
            raise images
        await self._hands.create(machine, images)
        machine.problem = None
        self._note(machine, "the containers were made")

    async def _pull(self, machine: Machine) -> dict[str, ImageInfo] | DriverError:
        """An error as a value: raised in a task of the group it would end all of them."""
        try:
            return await self._hands.pull(machine)
        except DriverError as error:
            return error

    async def _rest(self, machine: Machine, until_s: float | None, *, is_up: bool) -> float | None:
        if not is_up:
            self._probing.end(machine)
            machine.sleep.is_known = bool(machine.record.asleep)
        else:
            if machine.record.is_down:
                self._keep(machine, record_start(machine.record))
            assert self._group is not None
            self._probing.begin(machine, self._group.create_task)
            now_s = self._unix_s()
            until_s = unproven_until_s(machine.plan, machine.sight(now_s))
            until_s = until_s or machine.sleep.drowsy_after(now_s)
        return None if until_s is None else max(0.0, until_s - self._unix_s())

    async def _note_end(self, machine: Machine, name: str) -> None:
        self._probing.end(machine)
        seen, now_s = machine.seen[name], self._unix_s()
        record = record_exit(machine.record, seen, now_s)
        lines = list(await self._hands.last_lines(machine, name))
        oom = record.out_of_memory or (
            seen.exit_code == 137 and not record.why and self._ran_out_of_memory(seen.id)
        )
        self._keep(machine, msgspec.structs.replace(record, lines=lines, out_of_memory=oom))
        card = build_crash_report(machine, now_s)
        self._note(machine, card.message)
        self._cards.keep(machine.id, card)

    def _note_problem(self, machine: Machine, reason: str, message: str) -> None:
        before_s = machine.problem.wait_s if machine.problem is not None else 0.0
        wait_s = min(max(BACKOFF_S, 2 * before_s), BACKOFF_MAX_S)
        machine.problem = SetupProblem(reason, message, self._unix_s() + wait_s, wait_s)
        self._note(machine, f"{reason}: {message}")

    async def _let_pass(self, machine: Machine) -> None:
        """Whoever waits for a wake goes first: to look, to report and to save takes longer than to
        pass on what it was woken for."""
        assert self._group is not None
        self._probing.begin(machine, self._group.create_task)
        machine.sleep.turn()
        await asyncio.sleep(sleeping.LET_PASS_S)

    def _give_up_waking(self, machine: Machine) -> None:
        if machine.sleep.waking and machine.problem is not None:
            machine.sleep.waking = False
            self._keep(machine, record_failed_wake(machine.record, machine.problem.again_s))

    async def _let_go(self, machine: Machine) -> None:
        self._probing.end(machine)
        machine.sleep.waking = False
        machine.sleep.turn()
        if self._machines.get(machine.id) is machine:
            del self._machines[machine.id]
        if not machine.wanted:
            if machine.problem is not None and not machine.has_card:
                self._cards.keep(
                    machine.id, build_removal_report(machine, None, (), self._unix_s())
                )
            self._hands.forget_files(machine)
            if self._records.pop(machine.id, None) is not None:
                self._save()
            network = machine.plan.network
            if network != DEFAULT_NETWORK and not self._is_used(network):
                await self._drop_network(network)
        self._announce(machine.id)

    def _is_used(self, network: str) -> bool:
        return any(machine.plan.network == network for machine in self._machines.values())

    async def _drop_network(self, network: str) -> None:
        try:
            await self._hands.remove_network(network)
        except DriverError as error:
            _log.info("network %s stays: %s", network, error)

    # --- what probes say

    async def _on_ready_verdict(
        self, machine: Machine, name: str, is_good: bool, words: str
    ) -> None:
        machine.ready[name], machine.words[name] = is_good, words
        if machine.awaits_first_observation:
            self._note_observation(machine)
        container = next(c for c in machine.plan.containers if c.name == name)
        self._note(machine, f"{readiness_check_title(container)}: {'ready' if is_good else words}")
        self._tell(machine)

    async def _on_live_verdict(
        self, machine: Machine, name: str, is_good: bool, words: str
    ) -> None:
        """One that does not live is stopped; that it ended is noted like any other end."""
        if is_good or not machine.wanted:
            return
        why = f"its liveness probe failed: {words}"
        self._keep(machine, msgspec.structs.replace(machine.record, why=why))
        _log.info("%s: container %s is stopped: %s", machine.id, name, why)
        self._note(machine, f"container {name} is stopped: {why}")
        try:
            await self._hands.stop(machine, [name])
        except DriverError as error:
            _log.warning("%s: container %s cannot be stopped: %s", machine.id, name, error)

    # --- what is observed

    def _note_observation(self, machine: Machine) -> None:
        """Record that the containers were inspected or that a readiness check has finished.

        The first observation of an adopted machine needs both.
        """
        if not machine.awaits_first_observation or machine.is_readiness_known(self._unix_s()):
            machine.awaits_first_observation = False
            machine.unobserved_since_s = None

    def _note_answer(self) -> None:
        self._last_answer_s = self._elapsed_s()

    def _note_loss(self, since_s: float) -> None:
        """Record that the engine does not answer. A list of its containers ends the loss."""
        if self._lost_since_s is None:
            self._lost_since_s = since_s
            self._resync_soon.set()
        for machine in self._machines.values():
            self._tell(machine)

    def _note_return(self) -> None:
        """Record that the engine answers again.

        Machines may have ended meanwhile, so each is unobserved until it has been inspected.
        """
        if self._lost_since_s is None:
            return
        for machine in self._machines.values():
            if machine.unobserved_since_s is None:
                machine.unobserved_since_s = self._lost_since_s
        self._lost_since_s = None

    def _observation(self, machine: Machine) -> MachineState | NotObserved:
        """Return the state of the machine, unless it cannot be observed.

        While this process creates or removes a machine, it knows the state without the engine.
        """
        if machine.wanted and machine.spec is None:
            if self._lost_since_s is not None:
                return self._missing_observation(self._lost_since_s, NO_ANSWER)
            if machine.unobserved_since_s is not None:
                why = NO_VERDICT if machine.seen else NO_INSPECTION
                return self._missing_observation(machine.unobserved_since_s, why)
        return machine_state(machine, self._unix_s())

    def _missing_observation(self, since_s: float, why: str) -> MachineState | NotObserved:
        return missing_observation(self._elapsed_s() - since_s, why)

    # --- telling

    def _note(self, machine: Machine, text: str) -> None:
        note(machine.moments, self._unix_s(), text)

    def _keep(self, machine: Machine, record: MachineRecord) -> None:
        if record != machine.record:
            machine.record = self._records[machine.id] = record
            self._save()

    def _tell(self, machine: Machine) -> None:
        """Announce the machine if its state has changed. NOT_OBSERVED is not a change."""
        observed = self._observation(machine)
        if observed is not NOT_OBSERVED and observed != machine.announced:
            machine.announced = observed
            self._announce(machine.id)

    def _announce(self, machine_id: str) -> None:
        self._news[machine_id] = None
        self._has_news.set()


async def _woken(event: asyncio.Event, timeout_s: float | None) -> None:
    """Until woken, or until the time is over."""
    if timeout_s is not None and timeout_s <= 0:
        return
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
