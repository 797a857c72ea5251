"""What people ask of the machines of a cell: what they say and use, how they ended, and to run
something in them. ``server`` is always a Server's name, ``namespace/name``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from datum_compute.api.remotecommand import ExecWish
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
from datum_compute.drivers.logs import LogArchive, LogPage, LogQuery
from datum_compute.drivers.queries import (
    CrashReport,
    DriverReport,
    ExecSession,
    ImageCheck,
    NoSuchContainer,
    NotRunning,
    Usage,
)

ENGINE_ANSWER_S = 5.0  # somebody waits for it


class MachineQueries:
    """``known`` are the machines by id; it raises while nobody knows them."""

    def __init__(
        self,
        operations: ContainerOperations,
        known: Callable[[], Awaitable[dict[str, Machine]]],
        archive: LogArchive,
        crash_reports: CrashReportArchive,
        unix_s: Callable[[], float],
        kill_process: KillProcess,
    ) -> None:
        self._operations = operations
        self._known = known
        self._archive = archive
        self._crash_reports = crash_reports
        self._unix_s = unix_s
        self._kill_process = kill_process
        self._meter = UsageMeter()

    async def log_page(self, server: str, wish: LogQuery) -> LogPage:
        """What the machines of that name say, and said."""
        tended = [m for m in (await self._known()).values() if m.id.rpartition("/")[0] == server]
        return await read_page(self._operations, self._archive, server, tended, wish)

    async def usage(self, server: str) -> Usage | None:
        """What the machine uses now; None if there is none."""
        machine = await self._wanted(server)
        return await read_usage(self._operations, machine) if machine is not None else None

    async def measure_usage(self) -> dict[str, MachineUsage]:
        """What every machine uses, by its id; for whoever asks again and again."""
        machines = [machine for machine in (await self._known()).values() if machine.is_wanted]
        return await self._meter.read(self._operations, machines)

    async def crashes(self, server: str) -> list[CrashReport]:
        """How machines of that name ended within a day, the last one last."""
        return self._crash_reports.load(server)

    async def check_image(
        self, image: str, policy: str, pull_configs: Sequence[bytes]
    ) -> ImageCheck:
        """Whether the image can be had: from this host if it may be, else from its registry."""
        policy = policy or default_pull_policy(image)
        found = None if policy == "Always" else await self._operations.find_image(image)
        if found is not None:
            return ImageCheck(outcome="found", digest=found.digest, words="on the host")
        if policy == "Never":
            return ImageCheck(outcome="missing", words="the host does not have it")
        return await check_registry(image, pull_configs)

    async def driver(self) -> DriverReport:
        """That the engine does not answer is an answer, too."""
        engine = self._operations.engine
        try:
            facts = await engine.read_version(ENGINE_ANSWER_S)
            without_init = await self._operations.count_without_init()
        except DriverError as error:
            words = str(error)
            return DriverReport(
                driver="containers", engine=engine.socket, answers=False, words=words
            )
        return DriverReport(
            driver="containers",
            engine=engine.socket,
            words=f"{facts.name} {facts.version}".strip(),
            without_init=without_init,
        )

    async def execute(self, server: str, wish: ExecWish) -> ExecSession | None:
        """Run a command in the machine; None if there is none."""
        machine = await self._wanted(server)
        if machine is None:
            return None
        name = wish.container or machine.container_names[0]
        if name not in machine.container_names:
            there = ", ".join(machine.container_names)
            raise NoSuchContainer(f"it has no container {name}; there are: {there}")
        machine.inspected = await self._operations.inspect(machine)
        found = machine.inspected.get(name)
        if found is None or found.state != "running":
            state = machine_state(machine, self._unix_s())
            raise NotRunning(f"container {name} does not run: {state.message or state.phase}")
        return await start_exec(self._operations.engine, found.id, wish, self._kill_process)

    async def _wanted(self, server: str) -> Machine | None:
        """The machine of that name that is to be there."""
        for machine in (await self._known()).values():
            if machine.id.rpartition("/")[0] == server and machine.is_wanted:
                return machine
        return None
