"""One machine as this process knows it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import Literal

from datum_compute.api.containeroptions import Probe
from datum_compute.api.scaletozero import SleepMode
from datum_compute.api.server import ServerSpec
from datum_compute.drivers.containers.images import ImageFacts
from datum_compute.drivers.containers.moments import Moment
from datum_compute.drivers.containers.plan import MachinePlan
from datum_compute.drivers.containers.records import NOTHING, Record
from datum_compute.drivers.containers.seen import Seen
from datum_compute.drivers.containers.state import Answers, state_of
from datum_compute.drivers.containers.steps import Problem, Sight
from datum_compute.drivers.driver import DriverError, MachineState, Observation
from datum_compute.drivers.machinedata import NO_DATA, MachineData


def delay_left_s(probe: Probe, seen: Seen, now_s: float) -> float:
    """Return how much of the initial delay of a probe is left, from the start of the container."""
    if not seen.started_s:
        return float(probe.initial_delay_seconds)
    return max(0.0, seen.started_s + probe.initial_delay_seconds - now_s)


@dataclass(slots=True)
class Sleep:
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
    seen: dict[str, Seen] = field(default_factory=dict)
    record: Record = NOTHING
    problem: Problem | None = None
    stage: str = ""
    ready: dict[str, bool] = field(default_factory=dict)
    words: dict[str, str] = field(default_factory=dict)
    # Takes long at times; a removal ends it.
    pulling: asyncio.Task[dict[str, ImageFacts] | DriverError] | None = None
    sleep: Sleep = field(default_factory=Sleep)
    announced: Observation = None  # the last observation that was announced
    # Since when the machine has not been observed, on a monotonic clock; None while it is observed.
    unobserved_since_s: float | None = None
    # An earlier process created the machine, and this process has not observed it completely yet.
    awaits_first_observation: bool = False
    # The last answers to each probe, with the time when each came.
    answered: dict[str, list[tuple[float, str]]] = field(default_factory=dict)
    moments: list[Moment] = field(default_factory=list)
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

    def sight(self, now_s: float) -> Sight:
        return Sight(
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

    def state(self, now_s: float) -> MachineState:
        answers = Answers(self.ready, self.words)
        state = state_of(self.plan, self.sight(now_s), answers, self.stage)
        return replace(state, spec_fingerprint=self.plan.spec_fingerprint)
