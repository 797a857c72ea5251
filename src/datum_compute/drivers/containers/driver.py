"""The driver: one task for each machine, which looks, decides (``steps.py``) and acts, again and
again; woken by the engine's events and by a list of all containers now and then.

``run`` must run for anything to happen. Until the engine's containers have been listed for the
first time nothing is reported about any machine: a machine is absent only if a list shows that it
is.

A machine that an earlier process made is adopted. It is observed when its containers have been
inspected and its readiness checks have reached a first verdict. Until then, and while the engine
does not answer, it is NOT_OBSERVED, and after OBSERVATION_DEADLINE_S its phase is Unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, MutableMapping

import msgspec

from datum_compute.api.reasons import Reason
from datum_compute.api.scaletozero import SleepMode
from datum_compute.api.server import ServerSpec
from datum_compute.drivers.container_defaults import container_limits
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
    can_sleep,
    machine_state,
    readiness_check_title,
    unproven_until_s,
)
from datum_compute.drivers.containers.steps import (
    CreateContainers,
    ForgetMachine,
    PauseContainers,
    RecordExit,
    RecordSleep,
    RemoveContainers,
    StartContainers,
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
RETRY_S = 1.0

_log = logging.getLogger(__name__)


class EngineEventWatcher:
    """Watches the events of the engine about containers of one cell.

    ``on_change`` receives the id of a changed machine, or an empty one if any may have changed
    because the stream was interrupted. ``on_disconnect`` is called when the stream ends.
    """

    def __init__(
        self,
        engine: Engine,
        owner: ContainerOwner,
        on_change: Callable[[str], None],
        on_disconnect: Callable[[], None],
    ) -> None:
        self._engine = engine
        self._owner = owner
        self._on_change = on_change
        self._lost = on_disconnect
        self.is_connected = True  # until proven otherwise

    async def run(self) -> None:
        query = {"filters": encode_filters(type=["container"])}
        while True:
            try:
                async with self._engine.stream("GET", "/events", query) as chunks:
                    self.is_connected = True
                    self._on_change("")
                    async for event in parse_json_lines(chunks):
                        self._handle_event((event.get("Actor") or {}).get("Attributes") or {})
            except (DriverError, AttributeError, TypeError) as error:
                if self.is_connected:
                    _log.warning("no events of the container engine: %s", error)
            if self.is_connected:
                self.is_connected = False
                self._lost()
            await asyncio.sleep(RETRY_S)

    def _handle_event(self, labels: dict[str, str]) -> None:
        list_labels = {PLATFORM: labels.get(PLATFORM), CELL: labels.get(CELL)} == self._owner.labels
        if list_labels and labels.get(MACHINE):
            self._on_change(labels[MACHINE])


RESYNC_S = 30.0
# The same while the engine sends no events.
RESYNC_WITHOUT_EVENTS_S = 2.0
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
YIELD_S = 0.02
NO_ANSWER = "the container engine does not answer"
NO_VERDICT = "the readiness check of the machine has not finished"
NO_INSPECTION = "the container engine cannot inspect the containers of the machine"

_log = logging.getLogger(__name__)


class ContainersDriver:
    is_simulated = False

    def __init__(
        self,
        operations: ContainerOperations,
        owner: ContainerOwner,
        records: MutableMapping[str, MachineRecord],
        *,
        unix_s: Callable[[], float],
        elapsed_s: Callable[[], float],
        save: Callable[[], None],
        save_now: Callable[[], None],
        log_archive: LogArchive,
        crash_reports: CrashReportArchive,
        ran_out_of_memory: Callable[[str], bool] = lambda _container_id: False,
        kill_process: KillProcess = lambda _process, _container_id, _by_force: None,
    ) -> None:
        self._operations = operations
        self._probes = ProbeRunner(
            operations.engine,
            self._on_ready_verdict,
            self._on_live_verdict,
            unix_s,
            confirm_engine=self._confirm_engine,
            on_early_failure=self._announce_if_changed,
        )
        self._owner = owner
        self._records = records
        self._unix_s = unix_s
        self._elapsed_s = elapsed_s
        # Since when the engine has not answered; None while it does.
        self._lost_since_s: float | None = elapsed_s()
        # When the engine last answered any request, or sent an event.
        self._last_answer_s = elapsed_s()
        operations.engine.response_listeners.append(self._record_answer)
        self._ping_lock = asyncio.Lock()
        self._save = save
        self._save_now = save_now
        self._crash_reports = crash_reports
        self._ran_out_of_memory = ran_out_of_memory
        self.queries = MachineQueries(
            operations, self._listed_machines, log_archive, crash_reports, unix_s, kill_process
        )
        self._machines: dict[str, Machine] = {}
        self._is_listed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._resync_soon = asyncio.Event()
        self._event_watcher = EngineEventWatcher(
            operations.engine, owner, self._wake_supervisors, self._resync_soon.set
        )
        self._pending_changes: dict[str, None] = {}
        self._has_changes = asyncio.Event()

    # --- what the cell asks

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        if machine_id in (await self._listed_machines()):
            return
        memory = {name: limits.mebibytes for name, limits in container_limits(spec).items()}
        machine = Machine(machine_id, build_plan(self._owner, spec, memory), spec, data)
        self._start_supervising(machine)

    async def remove(self, machine_id: str) -> None:
        machine = (await self._listed_machines()).get(machine_id)
        if machine is None:
            machine = await self._adopt_from_engine(machine_id)
        if machine is not None and machine.is_wanted:
            machine.is_wanted = False
            machine.changed.set()
            if machine.pull_task is not None:
                machine.pull_task.cancel()

    async def observe(self, machine_id: str) -> Observation:
        try:
            machine = (await self._listed_machines()).get(machine_id)
        except TransientError:
            assert self._lost_since_s is not None, "the first list has not succeeded"
            return self._missing_observation(self._lost_since_s, NO_ANSWER)
        return self._observation(machine) if machine is not None else None

    async def machines(self, name: str = "") -> list[str]:
        await self._listed_machines()
        server = f"{SERVER}={name.rstrip('/')}" if name else ""
        listed = {labels.get(MACHINE, "") for labels in await self._operations.list_labels(server)}
        tended = {machine_id for machine_id in self._machines if machine_id.startswith(name)}
        return sorted((listed - {""}) | tended)

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        machine = (await self._listed_machines()).get(machine_id)
        if not self._event_watcher.is_connected:  # what cannot be woken now must not fall asleep
            raise TransientError("the container engine does not answer")
        if machine is not None and can_sleep(machine, self._unix_s()):
            machine.sleep.requested_mode = mode
            machine.changed.set()
            try:
                await machine.wait_until(Machine.is_sleep_settled)
            finally:
                machine.sleep.requested_mode = ""

    async def wake(self, machine_id: str) -> float:
        machine = (await self._listed_machines()).get(machine_id)
        if machine is None:
            raise TransientError(f"there is no machine {machine_id}")
        if not machine.can_wake():
            return 0.0
        machine.sleep.is_wake_requested = True
        machine.changed.set()
        await machine.wait_until(lambda m: not m.sleep.is_wake_requested)
        return machine.check_woken()

    async def changes(self) -> AsyncIterator[str]:
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            news, self._pending_changes = self._pending_changes, {}
            for machine_id in news:
                yield machine_id

    # --- what it does by itself

    async def run(self) -> None:
        """Look after the machines until cancelled; they run on without us."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._event_watcher.run())
            self._group.create_task(self._watch_engine())
            self._group.create_task(self._watch_containers())
            while True:
                self._resync_soon.clear()
                began_s = self._elapsed_s()
                try:
                    await self._resync()
                except (DriverError, LookupError, TypeError, ValueError) as error:
                    _log.warning("cannot list the containers of %s: %s", self._owner.cell, error)
                    self._record_loss(min(began_s, self._last_answer_s))
                    await asyncio.sleep(RETRY_S)
                    continue
                await _wait_for_event(
                    self._resync_soon,
                    RESYNC_S if self._event_watcher.is_connected else RESYNC_WITHOUT_EVENTS_S,
                )

    async def _watch_engine(self) -> None:
        """Ping the engine whenever it has answered nothing for a while, until cancelled. A loss
        must be noticed between two lists, and the stream of events may be silent for hours."""
        while True:
            quiet_s = self._elapsed_s() - self._last_answer_s
            if quiet_s < PING_EVERY_S:
                await asyncio.sleep(max(RETRY_S, PING_EVERY_S - quiet_s))
                continue
            try:
                await self._ping()
            except TransientError:
                await asyncio.sleep(RETRY_S)

    async def _watch_containers(self) -> None:
        """Inspect each machine with a container that has started or ended without an event."""
        await self._is_listed.wait()
        while True:
            began_s = self._elapsed_s()
            try:
                running = await self._operations.list_running(LIST_TIMEOUT_S)
            except (DriverError, AttributeError, TypeError) as error:
                _log.debug("cannot compare the containers of %s: %s", self._owner.cell, error)
            else:
                for machine in self._machines.values():
                    inspected = {(machine.id, s.name): s.state for s in machine.inspected.values()}
                    if any((at in running) != (inspected[at] == "running") for at in inspected):
                        machine.changed.set()
            pause_s = (self._elapsed_s() - began_s) / COMPARE_SHARE_MAX
            await asyncio.sleep(min(max(COMPARE_EVERY_S, pause_s), RESYNC_S))

    async def _ping(self) -> None:
        """Raise TransientError and note the loss if the engine does not answer."""
        began_s = self._elapsed_s()
        # End at the observation deadline, so that Unknown is announced in time.
        left_s = self._last_answer_s + OBSERVATION_DEADLINE_S - began_s
        try:
            await self._operations.engine.ping(
                min(PING_TIMEOUT_S, left_s) if left_s > 0 else PING_TIMEOUT_S
            )
        except TransientError:
            if self._last_answer_s <= began_s:
                self._record_loss(self._last_answer_s)
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

    def _wake_supervisors(self, machine_id: str) -> None:
        """At that machine, or without an id at all of them."""
        for machine in self._machines.values():
            if machine_id in ("", machine.id):
                machine.changed.set()

    async def _resync(self) -> None:
        """Adopt machines that are not known yet, and inspect all of them again."""
        for labels in await self._operations.list_labels(timeout_s=LIST_TIMEOUT_S):
            self._adopt(labels)
        self._record_return()
        if not self._is_listed.is_set():
            self._drop_stale_state()
            self._is_listed.set()
        self._wake_supervisors("")

    def _drop_stale_state(self) -> None:
        """What an earlier process left of machines that are no more."""
        for machine_id in [known for known in self._records if known not in self._machines]:
            del self._records[machine_id]
        self._save()
        self._operations.remove_files_except(self._machines)

    def _adopt(self, labels: dict[str, str]) -> Machine | None:
        machine_id, plan = labels.get(MACHINE, ""), read_plan(labels)
        if machine_id.count("/") != 2 or plan is None or machine_id in self._machines:
            return self._machines.get(machine_id)
        record = self._records.get(machine_id, EMPTY_RECORD)
        machine = Machine(machine_id, plan, record=record, awaits_first_observation=True)
        machine.unobserved_since_s = self._elapsed_s()
        self._start_supervising(machine)
        return machine

    async def _adopt_from_engine(self, machine_id: str) -> Machine | None:
        """A machine that we do not know, if the engine has any of its containers."""
        server = f"{SERVER}={machine_id.rpartition('/')[0]}"
        for labels in await self._operations.list_labels(server):
            if labels.get(MACHINE) == machine_id:
                return self._adopt(labels)
        return None

    async def _listed_machines(self) -> dict[str, Machine]:
        """The machines, once the engine's containers have been listed."""
        if self._is_listed.is_set():
            return self._machines
        try:
            async with asyncio.timeout(self._first_list_timeout_s()):
                await self._is_listed.wait()
        except TimeoutError:
            if not self._is_listed.is_set():
                why = "the containers of the engine have not been listed yet"
                raise TransientError(why) from None
        return self._machines

    def _first_list_timeout_s(self) -> float:
        """Return how long to wait for the first list.

        The wait ends at the observation deadline, so that Unknown is reported in time.
        """
        assert self._lost_since_s is not None, "the first list has not succeeded"
        lost_for_s = self._elapsed_s() - self._lost_since_s
        return max(0.0, min(FIRST_LIST_WAIT_S, OBSERVATION_DEADLINE_S - lost_for_s))

    def _start_supervising(self, machine: Machine) -> None:
        assert self._group is not None
        self._machines[machine.id] = machine
        self._group.create_task(self._supervise(machine))

    async def _supervise(self, machine: Machine) -> None:
        """The life of one machine. Nothing that goes wrong with it touches another."""
        while True:
            machine.changed.clear()
            pause_s: float | None = RETRY_S
            try:
                if not machine.sleep.try_skip_inspection():
                    await self._inspect(machine)
                step = self._next_step(machine)
                if isinstance(step, ForgetMachine):
                    break
                pause_s = await self._apply_step(machine, step)
            except ImageUnavailable as error:
                self._record_problem(machine, error.reason, str(error))
                pause_s = 0.0
            except PermanentError as error:
                self._record_problem(machine, Reason.CONFIGURATION_ERROR, str(error))
                self._record_failed_wake(machine)
                pause_s = 0.0
            except (TransientError, EngineError) as error:
                machine.progress = str(error)
                pause_s = 0.0 if machine.sleep.take_skipped_inspection() else RETRY_S
                _log.info("%s: %s", machine.id, error)
            except Exception:
                _log.exception("%s: looking after it failed", machine.id)
            self._announce_if_changed(machine)
            machine.sleep.notify_step_done()
            await _wait_for_event(machine.changed, pause_s)
        await self._stop_supervising(machine)

    async def _inspect(self, machine: Machine) -> None:
        began_s = self._elapsed_s()
        try:
            machine.inspected = await self._operations.inspect(machine)
        except DriverError:
            if machine.unobserved_since_s is None:
                machine.unobserved_since_s = began_s
            raise
        self._record_observation(machine)

    def _next_step(self, machine: Machine) -> Step:
        """A wish to sleep is for this step only: one that has just ended does not fall asleep."""
        step = next_step(machine.snapshot(self._unix_s()))
        machine.sleep.requested_mode = ""
        return step

    async def _apply_step(self, machine: Machine, step: Step) -> float | None:
        """Do it, and say how long to rest: None is until something happens."""
        match step:
            case CreateContainers():
                await self._create(machine)
                machine.progress = "the containers are being started"
                return 0.0
            case StartContainers(names):
                await self._operations.start(machine, names)
                machine.problem, machine.sleep.was_unpaused = None, False
                self._record_event(machine, f"started: {', '.join(names)}")
                machine.spec, machine.data = None, NO_DATA
                self._update_record(machine, record_start(machine.record))
                return 0.0
            case RecordExit(name):
                await self._record_exit(machine, name)
                return 0.0
            case StopContainers(names):
                await self._operations.stop(machine, names)
                return 0.0
            case RecordSleep(mode):
                self._update_record(machine, record_sleep(machine.record, mode))
                self._save_now()  # before it ends, or its end would be a crash to who comes after
                self._probes.end(machine)
                return await self._apply_step(machine, self._next_step(machine))
            case PauseContainers(names):
                await self._operations.pause(machine, names)
                return 0.0
            case WakeContainers(names):
                record = await self._operations.wake(machine, names, self._unix_s)
                machine.record = self._records[machine.id] = record
                await self._yield_to_waiters(machine)
                self._save()
                return 0.0
            case RemoveContainers():
                self._probes.end(machine)
                self._announce_if_changed(machine)
                await self._remove(machine)
                return 0.0
            case WaitForChange(until_s, is_up):
                return await self._wait(machine, until_s, is_up=is_up)
            case ForgetMachine():
                return 0.0

    async def _remove(self, machine: Machine) -> None:
        await self._operations.stop(
            machine, [s.name for s in machine.inspected.values() if s.is_up]
        )
        machine.inspected = await self._operations.inspect(machine)
        name = machine.container_names[0]
        lines = await self._operations.read_last_lines(machine, name)
        report = build_removal_report(machine, machine.inspected.get(name), lines, self._unix_s())
        await self._operations.remove(machine)
        self._crash_reports.save(machine.id, report)
        machine.has_crash_report = True

    async def _create(self, machine: Machine) -> None:
        """Pulling may be cut short by a removal; making is not, or something would be left."""
        assert self._group is not None
        machine.pull_task = self._group.create_task(self._pull(machine))
        try:
            images = await machine.pull_task
        except asyncio.CancelledError:
            if machine.is_wanted:
                raise
            return
        finally:
            machine.pull_task = None
        if isinstance(images, DriverError):
            raise images
        await self._operations.create(machine, images)
        machine.problem = None
        self._record_event(machine, "the containers were created")

    async def _pull(self, machine: Machine) -> dict[str, ImageInfo] | DriverError:
        """An error as a value: raised in a task of the group it would end all of them."""
        try:
            return await self._operations.pull(machine)
        except DriverError as error:
            return error

    async def _wait(self, machine: Machine, until_s: float | None, *, is_up: bool) -> float | None:
        if not is_up:
            self._probes.end(machine)
            machine.sleep.is_inspected_asleep = bool(machine.record.sleep_mode)
        else:
            if machine.record.is_down:
                self._update_record(machine, record_start(machine.record))
            assert self._group is not None
            self._probes.begin(machine, self._group.create_task)
            now_s = self._unix_s()
            until_s = unproven_until_s(machine.plan, machine.snapshot(now_s))
            until_s = until_s or machine.sleep.shown_asleep_until(now_s)
        return None if until_s is None else max(0.0, until_s - self._unix_s())

    async def _record_exit(self, machine: Machine, name: str) -> None:
        self._probes.end(machine)
        inspected, now_s = machine.inspected[name], self._unix_s()
        record = record_exit(machine.record, inspected, now_s)
        lines = list(await self._operations.read_last_lines(machine, name))
        oom = record.out_of_memory or (
            inspected.exit_code == 137
            and not record.stop_reason
            and self._ran_out_of_memory(inspected.id)
        )
        self._update_record(
            machine, msgspec.structs.replace(record, last_lines=lines, out_of_memory=oom)
        )
        report = build_crash_report(machine, now_s)
        self._record_event(machine, report.message)
        self._crash_reports.save(machine.id, report)

    def _record_problem(self, machine: Machine, reason: str, message: str) -> None:
        before_s = machine.problem.backoff_s if machine.problem is not None else 0.0
        wait_s = min(max(BACKOFF_S, 2 * before_s), BACKOFF_MAX_S)
        machine.problem = SetupProblem(reason, message, self._unix_s() + wait_s, wait_s)
        self._record_event(machine, f"{reason}: {message}")

    async def _yield_to_waiters(self, machine: Machine) -> None:
        """Whoever waits for a wake goes first: to look, to report and to save takes longer than to
        pass on what it was woken for."""
        assert self._group is not None
        self._probes.begin(machine, self._group.create_task)
        machine.sleep.notify_step_done()
        await asyncio.sleep(YIELD_S)

    def _record_failed_wake(self, machine: Machine) -> None:
        if machine.sleep.is_wake_requested and machine.problem is not None:
            machine.sleep.is_wake_requested = False
            self._update_record(
                machine, record_failed_wake(machine.record, machine.problem.retry_at_s)
            )

    async def _stop_supervising(self, machine: Machine) -> None:
        self._probes.end(machine)
        machine.sleep.is_wake_requested = False
        machine.sleep.notify_step_done()
        if self._machines.get(machine.id) is machine:
            del self._machines[machine.id]
        if not machine.is_wanted:
            if machine.problem is not None and not machine.has_crash_report:
                self._crash_reports.save(
                    machine.id, build_removal_report(machine, None, (), self._unix_s())
                )
            self._operations.remove_files(machine)
            if self._records.pop(machine.id, None) is not None:
                self._save()
            network = machine.plan.network
            if network != DEFAULT_NETWORK and not self._is_used(network):
                await self._remove_network(network)
        self._announce(machine.id)

    def _is_used(self, network: str) -> bool:
        return any(machine.plan.network == network for machine in self._machines.values())

    async def _remove_network(self, network: str) -> None:
        try:
            await self._operations.remove_network(network)
        except DriverError as error:
            _log.info("network %s stays: %s", network, error)

    # --- what probes say

    async def _on_ready_verdict(
        self, machine: Machine, name: str, is_good: bool, words: str
    ) -> None:
        machine.readiness[name], machine.readiness_failures[name] = is_good, words
        if machine.awaits_first_observation:
            self._record_observation(machine)
        container = next(c for c in machine.plan.containers if c.name == name)
        self._record_event(
            machine, f"{readiness_check_title(container)}: {'ready' if is_good else words}"
        )
        self._announce_if_changed(machine)

    async def _on_live_verdict(
        self, machine: Machine, name: str, is_good: bool, words: str
    ) -> None:
        """One that does not live is stopped; that it ended is noted like any other end."""
        if is_good or not machine.is_wanted:
            return
        why = f"its liveness probe failed: {words}"
        self._update_record(machine, msgspec.structs.replace(machine.record, stop_reason=why))
        _log.info("%s: container %s is stopped: %s", machine.id, name, why)
        self._record_event(machine, f"container {name} is stopped: {why}")
        try:
            await self._operations.stop(machine, [name])
        except DriverError as error:
            _log.warning("%s: container %s cannot be stopped: %s", machine.id, name, error)

    # --- what is observed

    def _record_observation(self, machine: Machine) -> None:
        """Record that the containers were inspected or that a readiness check has finished.

        The first observation of an adopted machine needs both.
        """
        if not machine.awaits_first_observation or machine.is_readiness_known(self._unix_s()):
            machine.awaits_first_observation = False
            machine.unobserved_since_s = None

    def _record_answer(self) -> None:
        self._last_answer_s = self._elapsed_s()

    def _record_loss(self, since_s: float) -> None:
        """Record that the engine does not answer. A list of its containers ends the loss."""
        if self._lost_since_s is None:
            self._lost_since_s = since_s
            self._resync_soon.set()
        for machine in self._machines.values():
            self._announce_if_changed(machine)

    def _record_return(self) -> None:
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
        if machine.is_wanted and machine.spec is None:
            if self._lost_since_s is not None:
                return self._missing_observation(self._lost_since_s, NO_ANSWER)
            if machine.unobserved_since_s is not None:
                why = NO_VERDICT if machine.inspected else NO_INSPECTION
                return self._missing_observation(machine.unobserved_since_s, why)
        return machine_state(machine, self._unix_s())

    def _missing_observation(self, since_s: float, why: str) -> MachineState | NotObserved:
        return missing_observation(self._elapsed_s() - since_s, why)

    # --- telling

    def _record_event(self, machine: Machine, text: str) -> None:
        machine.record_event(self._unix_s(), text)

    def _update_record(self, machine: Machine, record: MachineRecord) -> None:
        if record != machine.record:
            machine.record = self._records[machine.id] = record
            self._save()

    def _announce_if_changed(self, machine: Machine) -> None:
        """Announce the machine if its state has changed. NOT_OBSERVED is not a change."""
        observed = self._observation(machine)
        if observed is not NOT_OBSERVED and observed != machine.announced:
            machine.announced = observed
            self._announce(machine.id)

    def _announce(self, machine_id: str) -> None:
        self._pending_changes[machine_id] = None
        self._has_changes.set()


async def _wait_for_event(event: asyncio.Event, timeout_s: float | None) -> None:
    """Until woken, or until the time is over."""
    if timeout_s is not None and timeout_s <= 0:
        return
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
