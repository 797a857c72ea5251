"""One machine as this process knows it."""
# MERGED-DOC """What is remembered of a machine beside its containers: how often it ended, and how the last time.
#
# A table that outlives the process, like that of simulated machines. Without it (the file was lost)
# machines run on and only the count begins anew.
# """

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from datum_compute.api.codec import ApiStruct
from datum_compute.api.containeroptions import Probe
from datum_compute.api.scaletozero import SleepMode
from datum_compute.api.server import ServerSpec
from datum_compute.drivers.containers.container_spec import MachinePlan
from datum_compute.drivers.containers.images import ImageInfo
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.driver import (
    NO_DATA,
    DriverError,
    MachineData,
    Observation,
)
from datum_compute.drivers.queries import MachineEvent

BACKOFF_S, BACKOFF_MAX_S = 10.0, 300.0
# Who ran for so long has recovered: the next end is a first one again.
RECOVERED_S = 600.0


class MachineRecord(ApiStruct, frozen=True, kw_only=True):
    """``is_down``: an end has been noted, and the start after it has not happened yet."""

    restarts: int = 0
    is_down: bool = False
    start_after_s: float = 0.0
    wait_s: float = 0.0
    container: str = ""
    exit_code: int | None = None
    out_of_memory: bool = False
    why: str = ""  # if it was ended by us
    ended_s: float = 0.0
    lines: list[str] = []
    asleep: SleepMode | Literal[""] = ""  # how it sleeps, or is being put to sleep
    woken: bool = False  # its last start was no start after an end


EMPTY_RECORD = MachineRecord()


def record_exit(record: MachineRecord, seen: InspectedContainer, now_s: float) -> MachineRecord:
    """The end of one container is the end of the machine; the wait doubles with each."""
    ran_s = max(0.0, seen.finished_s - seen.started_s)
    first = not record.wait_s or ran_s >= RECOVERED_S
    wait_s = BACKOFF_S if first else min(2 * record.wait_s, BACKOFF_MAX_S)
    return MachineRecord(
        restarts=record.restarts,
        is_down=True,
        start_after_s=now_s + wait_s,
        wait_s=wait_s,
        container=seen.name,
        exit_code=seen.exit_code,
        out_of_memory=seen.out_of_memory,
        why=record.why,
        ended_s=seen.finished_s or now_s,
    )


def record_sleep(record: MachineRecord, mode: SleepMode) -> MachineRecord:
    """On record before anything is done, so that its end is known for what it is."""
    return msgspec.structs.replace(record, asleep=mode)


def record_wake(record: MachineRecord) -> MachineRecord:
    return msgspec.structs.replace(record, asleep="", woken=True)


def record_failed_wake(record: MachineRecord, again_s: float) -> MachineRecord:
    """From now on it is one that ended, and is started again until that works."""
    return msgspec.structs.replace(record, asleep="", is_down=True, start_after_s=again_s)


def record_start(record: MachineRecord) -> MachineRecord:
    return msgspec.structs.replace(
        record, is_down=False, restarts=record.restarts + int(record.is_down), why=""
    )


@dataclass(frozen=True, slots=True)
class SetupProblem:
    """Why it cannot be set up, and when that is tried again."""

    reason: str
    message: str
    again_s: float
    wait_s: float


@dataclass(frozen=True, slots=True)
class MachineSnapshot:
    """Everything the next step follows from."""

    containers: Sequence[str]
    seen: Mapping[str, InspectedContainer]
    record: MachineRecord = EMPTY_RECORD
    problem: SetupProblem | None = None
    wanted: bool = True
    waking: bool = False  # somebody asked for it
    falling: SleepMode | Literal[""] = ""  # somebody asked for that
    drowsy_until_s: float = 0.0  # until then one that was woken may not be ready yet
    can_create: bool = False  # whether we know what to make it from
    now_s: float = 0.0


def delay_left_s(probe: Probe, seen: InspectedContainer, now_s: float) -> float:
    """Return how much of the initial delay of a probe is left, from the start of the container."""
    if not seen.started_s:
        return float(probe.initial_delay_seconds)
    return max(0.0, seen.started_s + probe.initial_delay_seconds - now_s)


@dataclass(slots=True)
class SleepState:
    """What this process knows of a machine's sleep; that it sleeps is on its record."""

    waking: bool = False  # somebody waits for it to execute again
    falling: SleepMode | Literal[""] = ""  # somebody waits for it to sleep
    engine_s: float = 0.0  # what the engine took for that the last time
    drowsy_until_s: float = 0.0
    thawed: bool = False  # its processes went on where they were
    is_known: bool = False  # it was seen asleep, and nobody has touched it since
    is_trusted: bool = False  # its next step goes by that, instead of another look
    turned: asyncio.Event = field(default_factory=asyncio.Event)  # after the next step

    def trust(self) -> bool:
        """Whether to wake it without a look, which would take as long as the wake itself."""
        self.is_trusted, self.is_known = self.waking and self.is_known, False
        return self.is_trusted

    def is_mistaken(self) -> bool:
        """Whether trust was the reason why a step failed; then a look mends it."""
        mistaken, self.is_trusted = self.is_trusted, False
        return mistaken

    def drowsy_after(self, now_s: float) -> float | None:
        """Until when, if it is."""
        return self.drowsy_until_s if now_s < self.drowsy_until_s else None

    def turn(self) -> None:
        self.turned.set()
        self.turned = asyncio.Event()


@dataclass(slots=True)
class Machine:
    """``spec`` and ``data`` are there only until the containers are made from them."""

    id: str
    plan: MachinePlan
    spec: ServerSpec | None = None
    data: MachineData = NO_DATA
    wanted: bool = True
    seen: dict[str, InspectedContainer] = field(default_factory=dict)
    record: MachineRecord = EMPTY_RECORD
    problem: SetupProblem | None = None
    stage: str = ""
    ready: dict[str, bool] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    # Takes long at times; a removal ends it.
    pulling: asyncio.Task[dict[str, ImageInfo] | DriverError] | None = None
    sleep: SleepState = field(default_factory=SleepState)
    announced: Observation = None  # the last observation that was announced
    # Since when the machine has not been observed, on a monotonic clock; None while it is observed.
    unobserved_since_s: float | None = None
    # An earlier process created the machine, and this process has not observed it completely yet.
    awaits_first_observation: bool = False
    # The last answers to each probe, with the time when each came.
    answered: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    moments: list[MachineEvent] = field(default_factory=list)
    # Folders of this host with the files of its volumes, while this process has created it.
    folders: dict[str, str] = field(default_factory=dict)
    has_card: bool = False  # its last end has been kept
    woken: asyncio.Event = field(default_factory=asyncio.Event)
    # The probes that run, by container and kind, and the start of the container they are about.
    probing: dict[tuple[str, str], tuple[str, asyncio.Task[None]]] = field(default_factory=dict)

    @property
    def containers(self) -> list[str]:
        return [container.name for container in self.plan.containers]

    def is_readiness_known(self, now_s: float) -> bool:
        """Whether every readiness check that runs has reached its first verdict.

        A check does not run before its initial delay, nor while the machine sleeps or has ended.
        """
        seen = [self.seen.get(name) for name in self.containers]
        if self.record.asleep or not all(s and s.standing == "running" for s in seen):
            return True
        return all(
            container.name in self.ready
            for container in self.plan.containers
            if (check := container.readiness_check) is not None
            and not delay_left_s(check, self.seen[container.name], now_s)
        )

    def sight(self, now_s: float) -> MachineSnapshot:
        return MachineSnapshot(
            containers=self.containers,
            seen=self.seen,
            record=self.record,
            problem=self.problem,
            wanted=self.wanted,
            waking=self.sleep.waking,
            falling=self.sleep.falling,
            drowsy_until_s=self.sleep.drowsy_until_s,
            can_create=self.spec is not None,
            now_s=now_s,
        )
