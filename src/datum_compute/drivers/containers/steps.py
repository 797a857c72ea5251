"""Decides the next step for a machine. Pure and level-triggered.

- The step is a function of a snapshot alone, so a crash of this process between two steps loses
  no state.
- When one container of a machine exits, the driver stops the others and restarts all of them,
  because they share the network namespace of the first.
- All containers of a machine sleep and wake together. An exit while they sleep is not a crash.
- The containers of a suspended machine are stopped and kept. An exit is not a crash, and only a
  resumption starts them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import MachineSnapshot


@dataclass(frozen=True, slots=True)
class CreateContainers:
    """Create all containers. First remove the existing ones, which are an incomplete set."""


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
class RecordSleep:
    """Record that the machine sleeps. Exits of its containers after this are not crashes."""

    mode: SleepMode


@dataclass(frozen=True, slots=True)
class PauseContainers:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WakeContainers:
    """Unpause or start these containers. This wakes the machine."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ResumeContainers:
    """Start these containers, none of which runs. This ends the suspension of the machine."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveContainers:
    """Stop running containers with their grace period, then remove all of them."""


@dataclass(frozen=True, slots=True)
class DropMachineState:
    """Drop the state of a machine that was never created or has been removed."""


@dataclass(frozen=True, slots=True)
class WaitForChange:
    """Take no step until an observation changes, or until ``until_s``."""

    until_s: float | None = None
    is_up: bool = field(default=False)


Step = (
    CreateContainers
    | StartContainers
    | RecordExit
    | StopContainers
    | RecordSleep
    | PauseContainers
    | WakeContainers
    | ResumeContainers
    | RemoveContainers
    | DropMachineState
    | WaitForChange
)


def next_step(snapshot: MachineSnapshot) -> Step:
    if not snapshot.is_wanted:
        return RemoveContainers() if snapshot.inspected else DropMachineState()
    if snapshot.record.is_suspended:
        return _next_suspended_step(snapshot)
    if snapshot.problem is not None and snapshot.now_s < snapshot.problem.retry_at_s:
        return WaitForChange(snapshot.problem.retry_at_s)
    if any(name not in snapshot.inspected for name in snapshot.container_names):
        return CreateContainers() if snapshot.can_create else DropMachineState()
    containers = [snapshot.inspected[name] for name in snapshot.container_names]
    if snapshot.record.sleep_mode or snapshot.is_wake_requested:
        return _next_sleep_step(snapshot, containers)
    exited = [c.name for c in containers if c.state == "exited"]
    if exited and not snapshot.record.is_down:
        return RecordExit(exited[0])
    up = tuple(c.name for c in containers if c.is_up)
    if snapshot.record.is_down and exited:
        if up:
            return StopContainers(up)
        if snapshot.now_s < snapshot.record.start_after_s:
            return WaitForChange(snapshot.record.start_after_s)
    if len(up) < len(containers):
        return StartContainers(tuple(c.name for c in containers if not c.is_up))
    if snapshot.requested_sleep and not snapshot.record.is_down:
        return RecordSleep(snapshot.requested_sleep)
    return WaitForChange(is_up=True)


def _next_suspended_step(snapshot: MachineSnapshot) -> Step:
    """Stop what runs. A machine that is resumed is started, even if its setup failed before."""
    up = tuple(c.name for c in snapshot.inspected.values() if c.is_up)
    if up:
        return StopContainers(up)
    if not snapshot.is_resume_requested:
        return WaitForChange()
    is_complete = all(name in snapshot.inspected for name in snapshot.container_names)
    return ResumeContainers(tuple(snapshot.container_names) if is_complete else ())


def _next_sleep_step(snapshot: MachineSnapshot, containers: Sequence[InspectedContainer]) -> Step:
    up = tuple(c.name for c in containers if c.is_up)
    running = tuple(c.name for c in containers if c.state == "running")
    if up and len(up) < len(containers):
        # The others share the network namespace of a container that has exited.
        return StopContainers(up)
    if snapshot.is_wake_requested:
        return WakeContainers(tuple(c.name for c in containers if c.state != "running"))
    if snapshot.record.sleep_mode == "stop" and up:
        return StopContainers(up)
    return PauseContainers(running) if running else WaitForChange()
