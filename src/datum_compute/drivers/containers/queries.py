"""Queries about the machines of a cell: logs, usage, crash reports, images and exec sessions.

``server`` is always the name of a Server, ``namespace/name``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress

from datum_compute.api.gateway import ExecRequest
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.drivers.containers.crash_reports import CrashReportArchive
from datum_compute.drivers.containers.exec import KillProcess, start_exec
from datum_compute.drivers.containers.images import default_pull_policy
from datum_compute.drivers.containers.logs import read_page
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.operations import ContainerOperations
from datum_compute.drivers.containers.registry import check_registry
from datum_compute.drivers.containers.status import machine_state
from datum_compute.drivers.containers.usage import MachineUsage, UsageMeter, read_usage
from datum_compute.drivers.driver import DriverError
from datum_compute.drivers.logs import LogArchive, LogPage, LogQuery, WorkloadLog
from datum_compute.drivers.queries import (
    CrashReport,
    DriverReport,
    ExecSession,
    ImageCheck,
    NoSuchContainer,
    NotRunning,
    Usage,
)

VERSION_TIMEOUT_S = 10.0
# The number of containers without an init process is left out if listing them takes longer.
COUNT_TIMEOUT_S = 3.0


class MachineQueries:
    """``list_machines`` returns the machines by id, or raises if they are not known yet."""

    def __init__(
        self,
        operations: ContainerOperations,
        list_machines: Callable[[], Awaitable[dict[str, Machine]]],
        log_archive: LogArchive,
        crash_reports: CrashReportArchive,
        unix_s: Callable[[], float],
        kill_process: KillProcess,
    ) -> None:
        self._operations = operations
        self._list_machines = list_machines
        self._log_archive = log_archive
        self._crash_reports = crash_reports
        self._unix_s = unix_s
        self._kill_process = kill_process
        self._meter = UsageMeter()

    async def log_page(self, server: str, query: LogQuery) -> LogPage:
        """Return lines of the machines of the Server, also of deleted ones."""
        machines = [m for m in (await self._list_machines()).values() if m.server == server]
        return await read_page(self._operations, self._log_archive, server, machines, query)

    async def workload_logs(self, namespace: str, workload: str) -> list[WorkloadLog]:
        """Return the instances of a workload that have a log, also after their deletion."""
        found = await self._log_archive.find(namespace, workload)
        for machine in (await self._list_machines()).values():
            owner = machine.plan.owner
            space, _, name = machine.server.partition("/")
            if (space, owner.workload) == (namespace, workload):
                log = WorkloadLog(
                    instance=name,
                    workload_uid=owner.uid,
                    city=owner.city,
                    written_at=timestamp(self._unix_s()),
                )
                found.append(log)
        return found

    async def usage(self, server: str) -> Usage | None:
        """Return the current usage; None if there is no machine."""
        machine = await self._find_machine(server)
        return await read_usage(self._operations, machine) if machine is not None else None

    async def measure_usage(self) -> dict[str, MachineUsage]:
        """Return the usage of each machine since the last call, by its id."""
        machines = [m for m in (await self._list_machines()).values() if m.is_wanted]
        return await self._meter.measure(self._operations, machines)

    async def crashes(self, server: str) -> list[CrashReport]:
        """Return how machines of the Server ended within a day, oldest first."""
        return self._crash_reports.load(server)

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck:
        """Check whether this host has the image, if the policy allows that, or its registry."""
        policy = policy or default_pull_policy(image)
        found = None if policy == "Always" else await self._operations.find_image(image)
        if found is not None:
            return ImageCheck(outcome="found", digest=found.digest, words="on the host")
        if policy == "Never":
            return ImageCheck(outcome="missing", words="the host does not have it")
        return await check_registry(image, pull_configs)

    async def driver(self) -> DriverReport:
        """Report the driver. An engine that does not respond is reported, not raised."""
        engine = self._operations.engine
        try:
            version = await engine.read_version(VERSION_TIMEOUT_S)
        except DriverError as error:
            message = str(error)
            return DriverReport(
                driver="containers", engine=engine.socket, answers=False, words=message
            )
        without_init = 0
        with suppress(DriverError, TimeoutError):
            async with asyncio.timeout(COUNT_TIMEOUT_S):
                without_init = await self._operations.count_without_init()
        return DriverReport(
            driver="containers",
            engine=engine.socket,
            words=f"{version.name} {version.version}".strip(),
            without_init=without_init,
        )

    async def execute(self, server: str, request: ExecRequest) -> ExecSession | None:
        """Start a command in the machine; None if there is no machine."""
        machine = await self._find_machine(server)
        if machine is None:
            return None
        names = machine.container_names
        name = request.container or names[0]
        if name not in names:
            raise NoSuchContainer(f"no container {name}; the containers are: {', '.join(names)}")
        machine.inspected = await self._operations.inspect(machine)
        container = machine.inspected.get(name)
        if container is None or container.state != "running":
            state = machine_state(machine, self._unix_s())
            raise NotRunning(f"container {name} does not run: {state.message or state.phase}")
        return await start_exec(self._operations.engine, container.id, request, self._kill_process)

    async def _find_machine(self, server: str) -> Machine | None:
        """Return the machine of the Server that is not being removed."""
        for machine in (await self._list_machines()).values():
            if machine.server == server and machine.is_wanted:
                return machine
        return None
