"""The containers driver: adopts the machines of the engine and supervises them.

- The driver works only while ``run`` runs. It lists the containers of the cell at intervals, adopts
  unknown machines and starts a supervisor task for each (``supervisor.py``).
- Before the first list, nothing is reported about any machine: only a list shows that a machine is
  absent.
- Machines are inspected again after events of the engine (``engine_watch.py``), after each list and
  when a comparison with the running containers shows that an event was lost.
- Machines keep running when the driver ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, MutableMapping
from typing import Any

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec
from datum_compute.drivers.container_defaults import container_limits
from datum_compute.drivers.containers.container_spec import (
    MACHINE,
    SERVER,
    ContainerOwner,
    build_plan,
    read_plan,
)
from datum_compute.drivers.containers.crash_reports import CrashReportArchive
from datum_compute.drivers.containers.engine_watch import ENGINE_UNREACHABLE, RETRY_S, EngineWatch
from datum_compute.drivers.containers.exec import KillProcess
from datum_compute.drivers.containers.machine import EMPTY_RECORD, Machine, MachineRecord
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.containers.queries import MachineQueries
from datum_compute.drivers.containers.status import can_sleep
from datum_compute.drivers.containers.supervisor import (
    Supervisor,
    SupervisorPorts,
    wait_for_event,
)
from datum_compute.drivers.driver import (
    NO_DATA,
    OBSERVATION_DEADLINE_S,
    DriverError,
    MachineData,
    Observation,
    TransientError,
)
from datum_compute.drivers.logs import LogArchive

RESYNC_S = 30.0
RESYNC_WITHOUT_EVENTS_S = 2.0
# How long a request waits for the first list of the engine's containers.
FIRST_LIST_WAIT_S = 5.0
# An engine that takes longer to list its containers counts as not answering.
LIST_TIMEOUT_S = 10.0
# How often running containers are listed, in case an event was lost. The interval grows so that the
# engine spends at most this share of the time on it: podman takes about 0.7 ms for each container.
COMPARE_EVERY_S = 4.0
COMPARE_SHARE_MAX = 0.05

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
        self._owner = owner
        self._records = records
        self._unix_s = unix_s
        self._elapsed_s = elapsed_s
        self._save = save
        self._machines: dict[str, Machine] = {}
        self._is_listed = asyncio.Event()
        self._group: asyncio.TaskGroup | None = None
        self._engine_watch = EngineWatch(
            operations.engine,
            owner,
            elapsed_s,
            on_event=self._mark_changed,
            on_loss=self._announce_all,
        )
        ports = SupervisorPorts(unix_s, elapsed_s, save, save_now, ran_out_of_memory, self._spawn)
        self._supervisor = Supervisor(
            operations, self._engine_watch, self._machines, records, crash_reports, ports
        )
        self.queries = MachineQueries(
            operations, self._listed_machines, log_archive, crash_reports, unix_s, kill_process
        )

    # --- the protocol

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
            lost_since_s = self._engine_watch.lost_since_s
            assert lost_since_s is not None, "the first list has not succeeded"
            return self._supervisor.missing_observation(lost_since_s, ENGINE_UNREACHABLE)
        return self._supervisor.observation(machine) if machine is not None else None

    async def machines(self, name: str = "") -> list[str]:
        await self._listed_machines()
        label = f"{SERVER}={name.rstrip('/')}" if name else ""
        listed = {labels.get(MACHINE, "") for labels in await self._operations.list_labels(label)}
        supervised = {machine_id for machine_id in self._machines if machine_id.startswith(name)}
        return sorted((listed - {""}) | supervised)

    async def sleep(self, machine_id: str, mode: SleepMode) -> None:
        machine = (await self._listed_machines()).get(machine_id)
        if not self._engine_watch.has_events:
            # A machine that cannot be woken now must not fall asleep.
            raise TransientError(ENGINE_UNREACHABLE)
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
        if machine.record.is_suspended:
            raise TransientError(f"machine {machine_id} is suspended")
        if not machine.can_wake():
            return 0.0
        machine.sleep.is_wake_requested = True
        machine.changed.set()
        await machine.wait_until(lambda machine: not machine.sleep.is_wake_requested)
        return machine.check_woken()

    async def suspend(self, machine_id: str) -> None:
        machine = (await self._listed_machines()).get(machine_id)
        if machine is None or not machine.is_wanted:
            return
        if not machine.record.is_suspended or machine.is_resume_requested:
            self._supervisor.suspend(machine)

    async def resume(self, machine_id: str) -> None:
        machine = (await self._listed_machines()).get(machine_id)
        if machine is not None and machine.record.is_suspended:
            machine.is_resume_requested = True
            machine.changed.set()

    def changes(self) -> AsyncIterator[str]:
        return self._supervisor.changes()

    # --- tasks

    async def run(self) -> None:
        """Supervise the machines until cancelled."""
        async with asyncio.TaskGroup() as self._group:
            self._group.create_task(self._engine_watch.run_events())
            self._group.create_task(self._engine_watch.run_pings())
            self._group.create_task(self._compare_containers())
            await self._resync_forever()

    async def _resync_forever(self) -> None:
        resync_requested = self._engine_watch.resync_requested
        while True:
            resync_requested.clear()
            began_s = self._elapsed_s()
            try:
                await self._resync()
            except (DriverError, LookupError, TypeError, ValueError) as error:
                _log.warning("cannot list the containers of %s: %s", self._owner.cell, error)
                self._engine_watch.record_loss(min(began_s, self._engine_watch.last_answer_s))
                await asyncio.sleep(RETRY_S)
                continue
            has_events = self._engine_watch.has_events
            await wait_for_event(
                resync_requested, RESYNC_S if has_events else RESYNC_WITHOUT_EVENTS_S
            )

    async def _compare_containers(self) -> None:
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
                    if any(
                        ((machine.id, container.name) in running) != (container.state == "running")
                        for container in machine.inspected.values()
                    ):
                        machine.changed.set()
            pause_s = (self._elapsed_s() - began_s) / COMPARE_SHARE_MAX
            await asyncio.sleep(min(max(COMPARE_EVERY_S, pause_s), RESYNC_S))

    def _spawn(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        assert self._group is not None, "the driver does not run"
        return self._group.create_task(work)

    def _start_supervising(self, machine: Machine) -> None:
        self._machines[machine.id] = machine
        self._spawn(self._supervisor.supervise(machine))

    def _mark_changed(self, machine_id: str) -> None:
        """Start the next step of the machine, or of all machines if the id is empty."""
        for machine in self._machines.values():
            if machine_id in ("", machine.id):
                machine.changed.set()

    def _announce_all(self) -> None:
        for machine in self._machines.values():
            self._supervisor.announce_if_changed(machine)

    # --- adoption

    async def _resync(self) -> None:
        """List the containers, adopt unknown machines, and inspect all machines again."""
        for labels in await self._operations.list_labels(timeout_s=LIST_TIMEOUT_S):
            self._adopt(labels)
        self._end_loss()
        if not self._is_listed.is_set():
            self._drop_stale_state()
            self._is_listed.set()
        self._mark_changed("")

    def _end_loss(self) -> None:
        """Mark machines as unobserved since the loss: they may have ended while it lasted."""
        lost_since_s = self._engine_watch.end_loss()
        if lost_since_s is None:
            return
        for machine in self._machines.values():
            if machine.unobserved_since_s is None:
                machine.unobserved_since_s = lost_since_s

    def _drop_stale_state(self) -> None:
        """Drop records and files of machines that no longer exist."""
        for machine_id in [known for known in self._records if known not in self._machines]:
            del self._records[machine_id]
        self._save()
        self._operations.remove_files_except(self._machines)

    def _adopt(self, labels: dict[str, str]) -> Machine | None:
        """Adopt the machine of a container, unless its labels are invalid or it is known."""
        machine_id, plan = labels.get(MACHINE, ""), read_plan(labels)
        if machine_id.count("/") != 2 or plan is None or machine_id in self._machines:
            return self._machines.get(machine_id)
        record = self._records.get(machine_id, EMPTY_RECORD)
        machine = Machine(machine_id, plan, record=record, awaits_first_observation=True)
        machine.unobserved_since_s = self._elapsed_s()
        self._start_supervising(machine)
        return machine

    async def _adopt_from_engine(self, machine_id: str) -> Machine | None:
        """Adopt a machine that has appeared since the last list; None if it does not exist."""
        label = f"{SERVER}={machine_id.rpartition('/')[0]}"
        for labels in await self._operations.list_labels(label):
            if labels.get(MACHINE) == machine_id:
                return self._adopt(labels)
        return None

    async def _listed_machines(self) -> dict[str, Machine]:
        """Return the machines. Wait for the first list; raise TransientError if it takes long."""
        if self._is_listed.is_set():
            return self._machines
        try:
            async with asyncio.timeout(self._first_list_timeout_s()):
                await self._is_listed.wait()
        except TimeoutError:
            if not self._is_listed.is_set():
                message = "the containers of the engine have not been listed yet"
                raise TransientError(message) from None
        return self._machines

    def _first_list_timeout_s(self) -> float:
        """Return how long to wait for the first list.

        The wait ends at the observation deadline, so that Unknown is reported in time.
        """
        lost_since_s = self._engine_watch.lost_since_s
        assert lost_since_s is not None, "the first list has not succeeded"
        lost_for_s = self._elapsed_s() - lost_since_s
        return max(0.0, min(FIRST_LIST_WAIT_S, OBSERVATION_DEADLINE_S - lost_for_s))
