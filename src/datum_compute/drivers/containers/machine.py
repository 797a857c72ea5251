"""What the driver keeps in memory and on disk about each machine.

- `MachineRecord` is saved in a file, so that restarts and sleep outlive the process. If the file is
  lost, machines keep running and only their restart counts start again at 0.
- `Machine` is the state of one machine in this process.
- `MachineSnapshot` holds the input of the pure functions in `steps.py` and `status.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from datum_compute.api.compute.instance import Probe
from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import ServerSpec
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.drivers.containers.container_spec import MachinePlan
from datum_compute.drivers.containers.images import ImageInfo
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.driver import (
    NO_DATA,
    DriverError,
    MachineData,
    Observation,
    TransientError,
)
from datum_compute.drivers.queries import MachineEvent

BACKOFF_S, BACKOFF_MAX_S = 10.0, 300.0
# A machine that ran for this long has recovered: the backoff starts again at BACKOFF_S.
RECOVERED_AFTER_S = 600.0
EVENTS_MAX = 20
EVENT_CHARACTERS_MAX = 500


class MachineRecord(ApiStruct, frozen=True, kw_only=True):
    """Exits and sleep of a machine. Field names in the file are those of earlier releases.

    ``is_down``: an exit was recorded, and the machine has not been started again.
    """

    restarts: int = 0
    is_down: bool = False
    start_after_s: float = 0.0
    backoff_s: float = msgspec.field(default=0.0, name="waitS")
    container: str = ""
    exit_code: int | None = None
    out_of_memory: bool = False
    # Why the driver stopped the container; empty if it exited by itself.
    stop_reason: str = msgspec.field(default="", name="why")
    ended_s: float = 0.0
    last_lines: list[str] = msgspec.field(default_factory=list, name="lines")
    # Set before the machine is put to sleep, and until it is awake.
    sleep_mode: SleepMode | Literal[""] = msgspec.field(default="", name="asleep")
    # The last start woke the machine; it did not restart it after an exit.
    was_woken: bool = msgspec.field(default=False, name="woken")
    # The containers are stopped, or will be, until the machine is resumed.
    is_suspended: bool = msgspec.field(default=False, name="suspended")


EMPTY_RECORD = MachineRecord()


def record_exit(
    record: MachineRecord, container: InspectedContainer, now_s: float
) -> MachineRecord:
    """Record the exit of a container, which ends the machine. The backoff doubles every time."""
    ran_s = max(0.0, container.finished_s - container.started_s)
    is_first = not record.backoff_s or ran_s >= RECOVERED_AFTER_S
    backoff_s = BACKOFF_S if is_first else min(2 * record.backoff_s, BACKOFF_MAX_S)
    return MachineRecord(
        restarts=record.restarts,
        is_down=True,
        start_after_s=now_s + backoff_s,
        backoff_s=backoff_s,
        container=container.name,
        exit_code=container.exit_code,
        out_of_memory=container.out_of_memory,
        stop_reason=record.stop_reason,
        ended_s=container.finished_s or now_s,
    )


def record_sleep(record: MachineRecord, mode: SleepMode) -> MachineRecord:
    """Record that the machine is put to sleep: from now on an exit is not a crash."""
    return msgspec.structs.replace(record, sleep_mode=mode)


def record_wake(record: MachineRecord) -> MachineRecord:
    return msgspec.structs.replace(record, sleep_mode="", was_woken=True)


def record_failed_wake(record: MachineRecord, retry_at_s: float) -> MachineRecord:
    """Record that the machine cannot be woken. It is then restarted like one that exited."""
    return msgspec.structs.replace(record, sleep_mode="", is_down=True, start_after_s=retry_at_s)


def record_suspension(record: MachineRecord) -> MachineRecord:
    """Record that the machine is stopped: from now on an exit is not a crash."""
    return msgspec.structs.replace(record, is_suspended=True, sleep_mode="")


def record_resumption(record: MachineRecord) -> MachineRecord:
    """Record that the machine was started again. This is not a restart after an exit.

    A machine that had crashed before it was suspended is not proven to run.
    """
    return msgspec.structs.replace(
        record, is_suspended=False, is_down=False, was_woken=not record.is_down
    )


def record_start(record: MachineRecord) -> MachineRecord:
    return msgspec.structs.replace(
        record, is_down=False, restarts=record.restarts + int(record.is_down), stop_reason=""
    )


@dataclass(frozen=True, slots=True)
class SetupProblem:
    """Why the containers cannot be created, and when the driver tries again."""

    reason: str
    message: str
    retry_at_s: float
    backoff_s: float


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """Everything that determines the next step and the reported state of a machine.

    ``inspected`` holds the containers that exist, by name; ``container_names`` those that should.
    """

    container_names: Sequence[str]
    inspected: Mapping[str, InspectedContainer]
    record: MachineRecord = EMPTY_RECORD
    problem: SetupProblem | None = None
    is_wanted: bool = True
    is_wake_requested: bool = False
    requested_sleep: SleepMode | Literal[""] = ""
    is_resume_requested: bool = False
    # Until then a machine that was woken and is not ready yet is reported as Sleeping.
    shown_asleep_until_s: float = 0.0
    can_create: bool = False  # the spec is known
    now_s: float = 0.0


@dataclass(slots=True)
class SleepState:
    """Requests to sleep and to wake, and the last wake.

    Whether the machine sleeps is recorded in `MachineRecord.sleep_mode`.
    """

    is_wake_requested: bool = False
    requested_mode: SleepMode | Literal[""] = ""
    wake_duration_s: float = 0.0  # of the last wake, in the engine
    shown_asleep_until_s: float = 0.0
    was_unpaused: bool = False  # all processes continued where they were
    # The containers were inspected while asleep, and the driver has not changed them since.
    is_inspected_asleep: bool = False
    was_inspection_skipped: bool = False
    step_done: asyncio.Event = field(default_factory=asyncio.Event)

    def try_skip_inspection(self) -> bool:
        """Return True if the next step may wake the machine without inspecting it first.

        An inspection takes as long as the wake.
        """
        self.was_inspection_skipped = self.is_wake_requested and self.is_inspected_asleep
        self.is_inspected_asleep = False
        return self.was_inspection_skipped

    def take_skipped_inspection(self) -> bool:
        """Return True if the failed step skipped its inspection, and reset that.

        The step may have failed because it was based on an old inspection, so the next step is not
        delayed.
        """
        was_skipped, self.was_inspection_skipped = self.was_inspection_skipped, False
        return was_skipped

    def asleep_status_end(self, now_s: float) -> float | None:
        """Return the end of the time in which the machine is reported as Sleeping, if it is now."""
        return self.shown_asleep_until_s if now_s < self.shown_asleep_until_s else None

    def notify_step_done(self) -> None:
        self.step_done.set()
        self.step_done = asyncio.Event()


@dataclass(slots=True)
class Machine:
    """``spec`` and ``data`` are dropped when the containers have been created from them."""

    id: str
    plan: MachinePlan
    spec: ServerSpec | None = None
    data: MachineData = NO_DATA
    is_wanted: bool = True
    is_resume_requested: bool = False
    inspected: dict[str, InspectedContainer] = field(default_factory=dict)
    record: MachineRecord = EMPTY_RECORD
    problem: SetupProblem | None = None
    progress: str = ""  # what is being done, or why the last step failed
    # By container: the verdict of its readiness check, and the last failure of it.
    readiness: dict[str, bool] = field(default_factory=dict)
    readiness_failures: dict[str, str] = field(default_factory=dict)
    # Pulls the images; cancelled by a removal, because it may take long.
    pull_task: asyncio.Task[dict[str, ImageInfo] | DriverError] | None = None
    sleep: SleepState = field(default_factory=SleepState)
    announced: Observation = None  # the last observation that was announced
    # Since when the machine has not been observed, on a monotonic clock; None while it is observed.
    unobserved_since_s: float | None = None
    # An earlier process created the machine, and this process has not observed it completely yet.
    awaits_first_observation: bool = False
    # The last results of each probe, with the time at which each arrived.
    probe_results: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    events: list[MachineEvent] = field(default_factory=list)
    # Folders of this host with the files of the volumes, if this process created them.
    volume_folders: dict[str, str] = field(default_factory=dict)
    has_crash_report: bool = False  # of its last end
    changed: asyncio.Event = field(default_factory=asyncio.Event)  # starts the next step
    # Running probes by container and kind, and the start of the container that each is for.
    probe_tasks: dict[tuple[str, str], tuple[str, asyncio.Task[None]]] = field(default_factory=dict)

    @property
    def server(self) -> str:
        """Namespace and name of the Server."""
        return self.id.rpartition("/")[0]

    @property
    def container_names(self) -> list[str]:
        return [container.name for container in self.plan.containers]

    def is_readiness_known(self, now_s: float) -> bool:
        """Return whether every readiness check that runs has reached its first verdict.

        A check does not run before its initial delay, nor while the machine sleeps or has ended.
        """
        found = [self.inspected.get(name) for name in self.container_names]
        is_halted = self.record.sleep_mode or self.record.is_suspended
        if is_halted or not all(c and c.state == "running" for c in found):
            return True
        return all(
            container.name in self.readiness
            for container in self.plan.containers
            if (check := container.readiness_check) is not None
            and not remaining_delay_s(check, self.inspected[container.name], now_s)
        )

    def snapshot(self, now_s: float) -> MachineSnapshot:
        return MachineSnapshot(
            container_names=self.container_names,
            inspected=self.inspected,
            record=self.record,
            problem=self.problem,
            is_wanted=self.is_wanted,
            is_wake_requested=self.sleep.is_wake_requested,
            requested_sleep=self.sleep.requested_mode,
            is_resume_requested=self.is_resume_requested,
            shown_asleep_until_s=self.sleep.shown_asleep_until_s,
            can_create=self.spec is not None,
            now_s=now_s,
        )

    def record_event(self, now_s: float, text: str) -> None:
        """Add an event, unless it repeats the last one."""
        text = text[:EVENT_CHARACTERS_MAX]
        if self.events and self.events[-1].text == text:
            return
        self.events.append(MachineEvent(at=timestamp(now_s), text=text))
        del self.events[:-EVENTS_MAX]

    # --- sleep

    def is_sleep_settled(self) -> bool:
        """Return whether the machine sleeps, or a requested sleep was dropped."""
        if self.is_wanted and self.sleep.requested_mode:
            return False
        if not self.is_wanted or not self.record.sleep_mode:
            return True
        state = "exited" if self.record.sleep_mode == "stop" else "paused"
        return all(container.state == state for container in self.inspected.values())

    def can_wake(self) -> bool:
        """Return True if the machine sleeps, or another client of the engine has paused it."""
        is_paused = any(container.state == "paused" for container in self.inspected.values())
        is_asleep = bool(self.record.sleep_mode or is_paused)
        return self.is_wanted and is_asleep and not self.record.is_suspended

    async def wait_until(self, condition: Callable[[Machine], bool]) -> None:
        """Wait until the condition holds after a step."""
        while not condition(self):
            await self.sleep.step_done.wait()

    def check_woken(self) -> float:
        """Return how long the engine took to wake it; raise TransientError if it still sleeps."""
        if self.problem is not None:
            raise TransientError(f"the machine cannot be woken: {self.problem.message}")
        if not self.is_wanted or self.record.sleep_mode:
            raise TransientError("the machine was removed before it was woken")
        return self.sleep.wake_duration_s


def remaining_delay_s(probe: Probe, container: InspectedContainer, now_s: float) -> float:
    """Return what is left of the initial delay of a probe, which starts with the container."""
    if not container.started_s:
        return float(probe.initial_delay_seconds)
    return max(0.0, container.started_s + probe.initial_delay_seconds - now_s)
