"""The reported state of a machine, computed from a snapshot of it. Pure.

- A setup problem is reported before anything else.
- A machine that exited before and has no readiness probe counts as crashed until it has been up for
  PROVEN_AFTER_S: its port may be open for a moment before it exits again. It is recovering while
  its ports accept connections, so that it receives traffic before it counts as ready.
- A machine that was woken is reported as Sleeping until it is ready, for a limited time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from datum_compute.api.conditions import Reason
from datum_compute.drivers.containers.container_spec import ContainerPlan, MachinePlan
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import Machine, MachineSnapshot
from datum_compute.drivers.driver import MachineState

PROVEN_AFTER_S = 10.0
ASLEEP = "the machine sleeps; a connection to its published port wakes it"
# Exit codes of processes that were ended by a signal.
_SIGNALS = {134: "ABRT", 137: "KILL", 139: "SEGV", 143: "TERM"}


@dataclass(frozen=True, slots=True)
class ReadinessResults:
    """By container: the verdict of its readiness check, and the last failure of it."""

    verdicts: Mapping[str, bool] = field(default_factory=dict)
    failures: Mapping[str, str] = field(default_factory=dict)


def machine_state(machine: Machine, now_s: float) -> MachineState:
    results = ReadinessResults(machine.readiness, machine.readiness_failures)
    state = snapshot_state(machine.plan, machine.snapshot(now_s), results, machine.progress)
    return replace(state, spec_fingerprint=machine.plan.spec_fingerprint)


def can_sleep(machine: Machine, now_s: float) -> bool:
    """Return whether the machine is ready; a problem of any other machine must stay visible."""
    state = machine_state(machine, now_s)
    is_ready = state.phase == "Running" and not state.reason
    return machine.is_wanted and not machine.sleep.is_wake_requested and is_ready


def snapshot_state(
    plan: MachinePlan, snapshot: MachineSnapshot, results: ReadinessResults, progress: str
) -> MachineState:
    record = snapshot.record
    if not snapshot.is_wanted:
        return MachineState("Stopped", Reason.STOPPING, "the containers are being stopped")
    if record.is_suspended:
        return _suspended_state(plan, snapshot)
    if snapshot.problem is not None:
        problem = snapshot.problem
        return MachineState("Failed", problem.reason, problem.message, restarts=record.restarts)
    restarts = record.restarts
    if any(name not in snapshot.inspected for name in snapshot.container_names):
        message = progress or "the containers are being set up"
        return MachineState("Pending", Reason.STARTING, message, restarts=restarts)
    containers = [snapshot.inspected[name] for name in snapshot.container_names]
    reason, message = _unready_reason(plan, results)
    is_up = all(c.is_up for c in containers)
    if record.is_down:
        return crashed_state(plan, snapshot)
    if unproven_until_s(plan, snapshot) is not None:
        is_checked = any(c.readiness_check is not None for c in plan.containers)
        return replace(
            crashed_state(plan, snapshot),
            addresses=_addresses(plan, containers),
            is_recovering=is_up and is_checked and not reason,
        )
    is_waking = snapshot.now_s < snapshot.shown_asleep_until_s and (reason or not is_up)
    is_asleep = record.sleep_mode or all(c.state == "paused" for c in containers)
    if not (is_up or is_asleep or is_waking):
        if _is_restarting(plan, snapshot):
            return crashed_state(plan, snapshot)
        message = progress or "the containers are being started"
        return MachineState("Pending", Reason.STARTING, message, restarts=restarts)
    if is_asleep or is_waking:
        reason, message = "", ASLEEP
    return MachineState(
        "Sleeping" if is_asleep or is_waking else "Running",
        reason=reason,
        message=message,
        restarts=restarts,
        exit_code=record.exit_code,
        started_at=max(c.started_at for c in containers),
        addresses=_addresses(plan, containers),
        images=plan.images,
    )


def _suspended_state(plan: MachinePlan, snapshot: MachineSnapshot) -> MachineState:
    containers = list(snapshot.inspected.values())
    is_stopped = not any(c.is_up for c in containers)
    if is_stopped and snapshot.is_resume_requested:
        return MachineState("Pending", Reason.STARTING, "the containers are being started again")
    return MachineState(
        "Stopped",
        reason=Reason.STOPPED if is_stopped else Reason.STOPPING,
        message="the containers are stopped" if is_stopped else "the containers are being stopped",
        restarts=snapshot.record.restarts,
        exit_code=snapshot.record.exit_code,
        addresses=_addresses(plan, containers) if containers else tuple(plan.addresses),
        images=plan.images,
        is_suspended=True,
    )


def _addresses(plan: MachinePlan, containers: Sequence[InspectedContainer]) -> tuple[str, ...]:
    return tuple(plan.addresses) or containers[0].addresses


def unproven_until_s(plan: MachinePlan, snapshot: MachineSnapshot) -> float | None:
    """Return until when a restarted machine counts as crashed; None if it does not.

    A machine that was woken was proven before it fell asleep.
    """
    if snapshot.record.was_woken or snapshot.record.sleep_mode:
        return None
    if snapshot.record.exit_code is None or any(c.readiness for c in plan.containers):
        return None
    started_s = max((c.started_s for c in snapshot.inspected.values()), default=0.0)
    until_s = started_s + PROVEN_AFTER_S
    return until_s if started_s > snapshot.record.ended_s and snapshot.now_s < until_s else None


def _is_restarting(plan: MachinePlan, snapshot: MachineSnapshot) -> bool:
    """Return whether the machine was restarted after an exit and has not been inspected since.

    It counts as crashed until it is proven, as it will after the inspection.
    """
    record = snapshot.record
    if record.was_woken or record.exit_code is None or any(c.readiness for c in plan.containers):
        return False
    exited = [c for c in snapshot.inspected.values() if c.state == "exited"]
    return bool(exited) and all(c.finished_s <= record.ended_s for c in exited)


def crashed_state(plan: MachinePlan, snapshot: MachineSnapshot) -> MachineState:
    record = snapshot.record
    return MachineState(
        "Failed",
        reason=Reason.INSTANCE_CRASHING,
        message=_exit_message(plan, snapshot),
        restarts=record.restarts,
        exit_code=record.exit_code,
        last_lines=tuple(record.last_lines),
        images=plan.images,
    )


def _exit_message(plan: MachinePlan, snapshot: MachineSnapshot) -> str:
    record = snapshot.record
    name = f"container {record.container}"
    if record.stop_reason:
        return f"{name} was stopped: {record.stop_reason}"
    memory = next((c.memory_mebibytes for c in plan.containers if c.name == record.container), 0)
    limit = f" (its limit is {memory}Mi)" if memory else ""
    if record.out_of_memory:
        return f"{name} ran out of memory{limit} and was killed: OOM, exit code {record.exit_code}"
    signal = _SIGNALS.get(record.exit_code or 0)
    by_signal = f" (signal {signal})" if signal else ""
    return f"{name} exited with code {record.exit_code}{by_signal}"


def _unready_reason(plan: MachinePlan, results: ReadinessResults) -> tuple[str, str]:
    """Return reason and message for the first container that is not ready; empty if all are."""
    for container in plan.containers:
        if container.readiness_check is None or results.verdicts.get(container.name):
            continue
        reason = Reason.NOT_READY if container.name in results.verdicts else Reason.STARTING
        return reason, _unready_message(container, results.failures.get(container.name, ""))
    return "", ""


def _unready_message(container: ContainerPlan, failure: str) -> str:
    if failure and container.readiness is None:
        return failure  # a failed port check names the port
    return f"{readiness_check_title(container)}: {failure or 'no result yet'}"


def readiness_check_title(container: ContainerPlan) -> str:
    """Return the name of the readiness check of a container, for messages."""
    check = "readiness probe" if container.readiness is not None else "port check"
    return f"{check} of {container.name}"
