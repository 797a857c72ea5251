"""What to do next about a machine. Pure and level triggered: it follows from what is seen, whatever
happened before, so a crash of this process between two steps costs nothing.

A machine ends as a whole: when one of its containers ends, the others are stopped, and all are
started again together, because they share the network namespace of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from datum_compute.api.scaletozero import SleepMode
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import MachineSnapshot


@dataclass(frozen=True, slots=True)
class CreateContainers:
    """Make all containers anew; what is there of them is in the way."""


@dataclass(frozen=True, slots=True)
class StartContainers:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecordExit:
    name: str


@dataclass(frozen=True, slots=True)
class StopContainers:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StartSleep:
    """Put on record that it sleeps: what ends from here on was ended by us."""

    mode: SleepMode


@dataclass(frozen=True, slots=True)
class PauseContainers:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WakeContainers:
    """Thaw or start those that do not run; then it is awake."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveContainers:
    """Stop what runs, with its grace period, then remove everything."""


@dataclass(frozen=True, slots=True)
class ForgetMachine:
    """There is no machine (any more)."""


@dataclass(frozen=True, slots=True)
class WaitForChange:
    """Nothing to do until something changes, or until then."""

    until_s: float | None = None
    is_up: bool = field(default=False)


Step = (
    CreateContainers
    | StartContainers
    | RecordExit
    | StopContainers
    | StartSleep
    | PauseContainers
    | WakeContainers
    | RemoveContainers
    | ForgetMachine
    | WaitForChange
)


def next_step(sight: MachineSnapshot) -> Step:
    if not sight.wanted:
        return RemoveContainers() if sight.seen else ForgetMachine()
    if sight.problem is not None and sight.now_s < sight.problem.again_s:
        return WaitForChange(sight.problem.again_s)
    if any(name not in sight.seen for name in sight.containers):
        return CreateContainers() if sight.can_create else ForgetMachine()
    seen = [sight.seen[name] for name in sight.containers]
    if sight.record.asleep or sight.waking:
        return _step_of_sleeper(sight, seen)
    ended = [s.name for s in seen if s.standing == "exited"]
    if ended and not sight.record.is_down:
        return RecordExit(ended[0])
    up = tuple(s.name for s in seen if s.is_up)
    if sight.record.is_down and ended:
        if up:
            return StopContainers(up)
        if sight.now_s < sight.record.start_after_s:
            return WaitForChange(sight.record.start_after_s)
    if len(up) < len(seen):
        return StartContainers(tuple(s.name for s in seen if not s.is_up))
    if sight.falling and not sight.record.is_down:
        return StartSleep(sight.falling)
    return WaitForChange(is_up=True)


def _step_of_sleeper(sight: MachineSnapshot, seen: Sequence[InspectedContainer]) -> Step:
    """An end of one that sleeps is no crash: it sleeps on, and is started when it is woken."""
    up = tuple(s.name for s in seen if s.is_up)
    running = tuple(s.name for s in seen if s.standing == "running")
    if up and len(up) < len(seen):
        return StopContainers(up)  # those that are left share the network of one that is gone
    if sight.waking:
        return WakeContainers(tuple(s.name for s in seen if s.standing != "running"))
    if sight.record.asleep == "stop" and up:
        return StopContainers(up)
    return PauseContainers(running) if running else WaitForChange()
