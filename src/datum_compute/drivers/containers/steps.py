"""Decides the next step for a machine. Pure and level-triggered.

- The step follows from a snapshot alone: a crash of this process between two steps loses nothing.
- A machine ends as a whole. When one of its containers exits, the others are stopped and all of
  them are started again together, because they share the network namespace of the first.
- A sleeping machine sleeps and wakes as a whole too. An exit while it sleeps is not a crash.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import MachineSnapshot


@dataclass(frozen=True, slots=True)
class CreateContainers:
    """Create all containers. Remove existing ones first: they are incomplete."""


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
    """Record that the machine sleeps, so that containers that exit from now on were stopped."""

    mode: SleepMode


@dataclass(frozen=True, slots=True)
class PauseContainers:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class WakeContainers:
    """Unpause or start these containers; the machine is awake then."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RemoveContainers:
    """Stop running containers with their grace period, then remove all of them."""


@dataclass(frozen=True, slots=True)
class ForgetMachine:
    """There is no machine, or it is gone: drop its state."""


@dataclass(frozen=True, slots=True)
class WaitForChange:
    """Do nothing until something changes, or until ``until_s``."""

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
    | RemoveContainers
    | ForgetMachine
    | WaitForChange
)


def next_step(snapshot: MachineSnapshot) -> Step:
    if not snapshot.is_wanted:
        return RemoveContainers() if snapshot.inspected else ForgetMachine()
    if snapshot.problem is not None and snapshot.now_s < snapshot.problem.retry_at_s:
        return WaitForChange(snapshot.problem.retry_at_s)
    if any(name not in snapshot.inspected for name in snapshot.container_names):
        return CreateContainers() if snapshot.can_create else ForgetMachine()
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
