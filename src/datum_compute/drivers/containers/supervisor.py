"""Supervises machines: one task for each, which inspects it and applies the next step.

- ``steps.py`` decides the step. It is applied when the machine is marked as changed, or after the
  delay that the last step requested.
- A failure affects one machine only. A setup problem is retried with a backoff, any other error
  after RETRY_S.
- An adopted machine is observed when its containers have been inspected and its readiness checks
  have reached a first verdict. Until then, and while the engine is unreachable, the observation is
  NOT_OBSERVED, and after OBSERVATION_DEADLINE_S the phase is Unknown.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, MutableMapping
from dataclasses import dataclass
from typing import Any

import msgspec

from datum_compute.api.conditions import Reason
from datum_compute.drivers.containers.container_spec import DEFAULT_NETWORK
from datum_compute.drivers.containers.crash_reports import (
    CrashReportArchive,
    build_crash_report,
    build_removal_report,
)
from datum_compute.drivers.containers.engine import EngineError
from datum_compute.drivers.containers.engine_watch import ENGINE_UNREACHABLE, RETRY_S, EngineWatch
from datum_compute.drivers.containers.images import ImageInfo, ImageUnavailable
from datum_compute.drivers.containers.machine import (
    BACKOFF_MAX_S,
    BACKOFF_S,
    Machine,
    MachineRecord,
    SetupProblem,
    record_exit,
    record_failed_wake,
    record_resumption,
    record_sleep,
    record_start,
    record_suspension,
)
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.containers.probes import ProbeRunner
from datum_compute.drivers.containers.status import (
    machine_state,
    readiness_check_title,
    unproven_until_s,
)
from datum_compute.drivers.containers.steps import (
    CreateContainers,
    DropMachineState,
    PauseContainers,
    RecordExit,
    RecordSleep,
    RemoveContainers,
    ResumeContainers,
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
    DriverError,
    MachineState,
    NotObserved,
    PermanentError,
    TransientError,
    missing_observation,
)

# Callers of wake() run for this long before the driver does anything else for the machine.
WAKE_PRIORITY_S = 0.02
NO_VERDICT = "the readiness check of the machine has not finished"
NO_INSPECTION = "the container engine cannot inspect the containers of the machine"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SupervisorPorts:
    """What the supervisor uses of the process: clocks, files and tasks.

    ``save`` writes the records soon, ``save_now`` before it returns. ``ran_out_of_memory`` returns
    whether the kernel killed a process of a container. ``spawn`` starts a task of the driver.
    """

    unix_s: Callable[[], float]
    elapsed_s: Callable[[], float]
    save: Callable[[], None]
    save_now: Callable[[], None]
    ran_out_of_memory: Callable[[str], bool]
    spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]]


class Supervisor:
    """``machines`` is the table of the driver. A machine leaves it when its supervision ends."""

    def __init__(
        self,
        operations: ContainerOperations,
        engine_watch: EngineWatch,
        machines: dict[str, Machine],
        records: MutableMapping[str, MachineRecord],
        crash_reports: CrashReportArchive,
        ports: SupervisorPorts,
    ) -> None:
        self._operations = operations
        self._engine_watch = engine_watch
        self._machines = machines
        self._records = records
        self._crash_reports = crash_reports
        self._ports = ports
        self._unix_s = ports.unix_s
        self._probes = ProbeRunner(
            operations.engine,
            self._on_ready_verdict,
            self._on_live_verdict,
            ports.unix_s,
            confirm_engine=engine_watch.confirm,
            on_early_failure=self.announce_if_changed,
        )
        self._pending_changes: dict[str, None] = {}
        self._has_changes = asyncio.Event()

    async def supervise(self, machine: Machine) -> None:
        """Apply steps until the machine is gone."""
        while True:
            machine.changed.clear()
            pause_s: float | None = RETRY_S
            try:
                if not machine.sleep.try_skip_inspection():
                    await self._inspect(machine)
                step = self._next_step(machine)
                if isinstance(step, DropMachineState):
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
                _log.exception("%s: a step failed", machine.id)
            self.announce_if_changed(machine)
            machine.sleep.notify_step_done()
            await wait_for_event(machine.changed, pause_s)
        await self._end_supervision(machine)

    # --- steps

    async def _inspect(self, machine: Machine) -> None:
        began_s = self._ports.elapsed_s()
        try:
            machine.inspected = await self._operations.inspect(machine)
        except DriverError:
            if machine.unobserved_since_s is None:
                machine.unobserved_since_s = began_s
            raise
        self._record_observation(machine)

    def _next_step(self, machine: Machine) -> Step:
        """Decide the step. A request to sleep applies to this step only.

        If another step is needed, for example because the machine has exited, the request is
        dropped.
        """
        step = next_step(machine.snapshot(self._unix_s()))
        machine.sleep.requested_mode = ""
        return step

    async def _apply_step(self, machine: Machine, step: Step) -> float | None:
        """Apply the step. Return the delay until the next one; None to wait for a change."""
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
                # Before the containers stop: after a crash of this process the next one would
                # report their exits as a crash of the machine.
                self._ports.save_now()
                self._probes.end(machine)
                return await self._apply_step(machine, self._next_step(machine))
            case PauseContainers(names):
                await self._operations.pause(machine, names)
                return 0.0
            case WakeContainers(names):
                record = await self._operations.wake(machine, names, self._unix_s)
                machine.record = self._records[machine.id] = record
                await self._yield_to_wakers(machine)
                self._ports.save()
                return 0.0
            case ResumeContainers(names):
                await self._operations.start(machine, names)
                machine.problem, machine.is_resume_requested = None, False
                self._record_event(machine, "resumed")
                self._update_record(machine, record_resumption(machine.record))
                return 0.0
            case RemoveContainers():
                self._probes.end(machine)
                self.announce_if_changed(machine)
                await self._remove(machine)
                return 0.0
            case WaitForChange(until_s, is_up):
                return self._pause_s(machine, until_s, is_up=is_up)
            case DropMachineState():
                return 0.0

    async def _create(self, machine: Machine) -> None:
        """Pull the images and create the containers.

        A removal cancels the pull. It does not cancel the creation, which would leave containers.
        """
        machine.pull_task = self._ports.spawn(self._pull(machine))
        try:
            images = await machine.pull_task
        except asyncio.CancelledError:
            if machine.is_wanted and not machine.record.is_suspended:
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
        """Pull the images. An error is returned: raised in a task, it would end the task group."""
        try:
            return await self._operations.pull(machine)
        except DriverError as error:
            return error

    async def _remove(self, machine: Machine) -> None:
        up = [c.name for c in machine.inspected.values() if c.is_up]
        await self._operations.stop(machine, up)
        machine.inspected = await self._operations.inspect(machine)
        name = machine.container_names[0]
        lines = await self._operations.read_last_lines(machine, name)
        report = build_removal_report(machine, machine.inspected.get(name), lines, self._unix_s())
        await self._operations.remove(machine)
        self._crash_reports.save(machine.id, report)
        machine.has_crash_report = True

    async def _yield_to_wakers(self, machine: Machine) -> None:
        """Let the callers of wake() run first, to forward the connections that wait for it.

        Inspecting, reporting and saving would delay these connections.
        """
        self._probes.begin(machine, self._ports.spawn)
        machine.sleep.notify_step_done()
        await asyncio.sleep(WAKE_PRIORITY_S)

    def _pause_s(self, machine: Machine, until_s: float | None, *, is_up: bool) -> float | None:
        """Start or end the probes, and return when the reported state changes without an event."""
        if not is_up:
            self._probes.end(machine)
            is_asleep = bool(machine.record.sleep_mode) and not machine.record.is_suspended
            machine.sleep.is_inspected_asleep = is_asleep
        else:
            if machine.record.is_down:
                self._update_record(machine, record_start(machine.record))
            self._probes.begin(machine, self._ports.spawn)
            now_s = self._unix_s()
            until_s = unproven_until_s(machine.plan, machine.snapshot(now_s))
            until_s = until_s or machine.sleep.asleep_status_end(now_s)
        return None if until_s is None else max(0.0, until_s - self._unix_s())

    async def _end_supervision(self, machine: Machine) -> None:
        """Drop the machine. If its removal was requested, also remove what belongs to it."""
        self._probes.end(machine)
        machine.sleep.is_wake_requested = False
        machine.sleep.notify_step_done()
        if self._machines.get(machine.id) is machine:
            del self._machines[machine.id]
        if not machine.is_wanted:
            if machine.problem is not None and not machine.has_crash_report:
                report = build_removal_report(machine, None, (), self._unix_s())
                self._crash_reports.save(machine.id, report)
            self._operations.remove_files(machine)
            if self._records.pop(machine.id, None) is not None:
                self._ports.save()
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
            _log.info("cannot remove network %s: %s", network, error)

    # --- records

    async def _record_exit(self, machine: Machine, name: str) -> None:
        self._probes.end(machine)
        container, now_s = machine.inspected[name], self._unix_s()
        record = record_exit(machine.record, container, now_s)
        lines = list(await self._operations.read_last_lines(machine, name))
        out_of_memory = record.out_of_memory or (
            container.exit_code == 137
            and not record.stop_reason
            and self._ports.ran_out_of_memory(container.id)
        )
        replace = msgspec.structs.replace
        record = replace(record, last_lines=lines, out_of_memory=out_of_memory)
        self._update_record(machine, record)
        report = build_crash_report(machine, now_s)
        self._record_event(machine, report.message)
        self._crash_reports.save(machine.id, report)

    def _record_problem(self, machine: Machine, reason: str, message: str) -> None:
        last_backoff_s = machine.problem.backoff_s if machine.problem is not None else 0.0
        backoff_s = min(max(BACKOFF_S, 2 * last_backoff_s), BACKOFF_MAX_S)
        retry_at_s = self._unix_s() + backoff_s
        machine.problem = SetupProblem(reason, message, retry_at_s, backoff_s)
        self._record_event(machine, f"{reason}: {message}")

    def _record_failed_wake(self, machine: Machine) -> None:
        if machine.sleep.is_wake_requested and machine.problem is not None:
            machine.sleep.is_wake_requested = False
            record = record_failed_wake(machine.record, machine.problem.retry_at_s)
            self._update_record(machine, record)

    def _update_record(self, machine: Machine, record: MachineRecord) -> None:
        if record != machine.record:
            machine.record = self._records[machine.id] = record
            self._ports.save()

    def _record_event(self, machine: Machine, text: str) -> None:
        machine.record_event(self._unix_s(), text)

    def suspend(self, machine: Machine) -> None:
        """Record that the machine is suspended; the next step stops its containers.

        The record is saved before they stop: after a crash of this process the next one would
        report their exits as a crash of the machine.
        """
        machine.is_resume_requested = False
        self._update_record(machine, record_suspension(machine.record))
        self._ports.save_now()
        self._record_event(machine, "suspended")
        self._probes.end(machine)
        machine.sleep.is_wake_requested = False
        if machine.pull_task is not None:
            machine.pull_task.cancel()
        machine.changed.set()

    # --- probes

    async def _on_ready_verdict(
        self, machine: Machine, name: str, is_good: bool, failure: str
    ) -> None:
        machine.readiness[name], machine.readiness_failures[name] = is_good, failure
        if machine.awaits_first_observation:
            self._record_observation(machine)
        container = next(c for c in machine.plan.containers if c.name == name)
        result = "ready" if is_good else failure
        self._record_event(machine, f"{readiness_check_title(container)}: {result}")
        self.announce_if_changed(machine)

    async def _on_live_verdict(
        self, machine: Machine, name: str, is_good: bool, failure: str
    ) -> None:
        """Stop the container if the verdict is bad. Its exit is then handled like any other."""
        if is_good or not machine.is_wanted or machine.record.is_suspended:
            return
        reason = f"its liveness probe failed: {failure}"
        self._update_record(machine, msgspec.structs.replace(machine.record, stop_reason=reason))
        _log.info("%s: stopping container %s: %s", machine.id, name, reason)
        self._record_event(machine, f"container {name} is stopped: {reason}")
        try:
            await self._operations.stop(machine, [name])
        except DriverError as error:
            _log.warning("%s: cannot stop container %s: %s", machine.id, name, error)

    # --- observations

    def observation(self, machine: Machine) -> MachineState | NotObserved:
        """Return the state of the machine, unless it cannot be observed.

        While this process creates or removes a machine, its state does not depend on the engine.
        """
        if machine.is_wanted and machine.spec is None:
            if self._engine_watch.lost_since_s is not None:
                return self.missing_observation(self._engine_watch.lost_since_s, ENGINE_UNREACHABLE)
            if machine.unobserved_since_s is not None:
                message = NO_VERDICT if machine.inspected else NO_INSPECTION
                return self.missing_observation(machine.unobserved_since_s, message)
        return machine_state(machine, self._unix_s())

    def missing_observation(self, since_s: float, message: str) -> MachineState | NotObserved:
        return missing_observation(self._ports.elapsed_s() - since_s, message)

    def _record_observation(self, machine: Machine) -> None:
        """Record that the containers were inspected or that a readiness check has finished.

        The first observation of an adopted machine needs both.
        """
        if not machine.awaits_first_observation or machine.is_readiness_known(self._unix_s()):
            machine.awaits_first_observation = False
            machine.unobserved_since_s = None

    # --- announcements

    async def changes(self) -> AsyncIterator[str]:
        while True:
            await self._has_changes.wait()
            self._has_changes.clear()
            changed, self._pending_changes = self._pending_changes, {}
            for machine_id in changed:
                yield machine_id

    def announce_if_changed(self, machine: Machine) -> None:
        """Announce the machine if its state has changed. NOT_OBSERVED is not a change."""
        observed = self.observation(machine)
        if observed is not NOT_OBSERVED and observed != machine.announced:
            machine.announced = observed
            self._announce(machine.id)

    def _announce(self, machine_id: str) -> None:
        self._pending_changes[machine_id] = None
        self._has_changes.set()


async def wait_for_event(event: asyncio.Event, timeout_s: float | None) -> None:
    """Wait until the event is set, or until the timeout."""
    if timeout_s is not None and timeout_s <= 0:
        return
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        return
