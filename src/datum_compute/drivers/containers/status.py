"""A machine's state, as the cell reports it, from what is seen. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from datum_compute.api.reasons import Reason
from datum_compute.drivers.containers.container_spec import ContainerPlan, MachinePlan
from datum_compute.drivers.containers.machine import Machine, MachineSnapshot
from datum_compute.drivers.driver import MachineState

# A machine that ended before and has no readiness probe counts as crashed until it has been up
# for this long: its port may be open before it ends again.
PROVEN_S = 10.0
ASLEEP = "it is asleep; a connection to its published port wakes it"
# What an end by a signal looks like in an exit code.
_SIGNALS = {134: "ABRT", 137: "KILL", 139: "SEGV", 143: "TERM"}


@dataclass(frozen=True, slots=True)
class ReadinessResults:
    """The verdicts of readiness checks by container, and the last bad answers to them."""

    ready: Mapping[str, bool] = field(default_factory=dict)
    words: Mapping[str, str] = field(default_factory=dict)


def machine_state(machine: Machine, now_s: float) -> MachineState:
    answers = ReadinessResults(machine.ready, machine.words)
    state = snapshot_state(machine.plan, machine.sight(now_s), answers, machine.stage)
    return replace(state, spec_fingerprint=machine.plan.spec_fingerprint)


def snapshot_state(
    plan: MachinePlan, sight: MachineSnapshot, answers: ReadinessResults, stage: str
) -> MachineState:
    record = sight.record
    if not sight.wanted:
        return MachineState("Stopped", Reason.STOPPING, "the containers are being stopped")
    if sight.problem is not None:
        problem = sight.problem
        return MachineState("Failed", problem.reason, problem.message, restarts=record.restarts)
    restarts = record.restarts
    if any(name not in sight.seen for name in sight.containers):
        message = stage or "the containers are being set up"
        return MachineState("Pending", Reason.STARTING, message, restarts=restarts)
    seen = [sight.seen[name] for name in sight.containers]
    if record.is_down or unproven_until_s(plan, sight) is not None:
        return crashed_state(plan, sight)
    reason, message = _unready(plan, answers)
    is_up = all(s.is_up for s in seen)
    drowsy = sight.now_s < sight.drowsy_until_s and (reason or not is_up)
    asleep = record.asleep or all(s.standing == "paused" for s in seen)
    if not (is_up or asleep or drowsy):
        if _is_restarting(plan, sight):
            return crashed_state(plan, sight)
        message = stage or "the containers are being started"
        return MachineState("Pending", Reason.STARTING, message, restarts=restarts)
    if asleep or drowsy:
        reason, message = "", ASLEEP
    return MachineState(
        "Sleeping" if asleep or drowsy else "Running",
        reason=reason,
        message=message,
        restarts=restarts,
        exit_code=record.exit_code,
        started_at=max(s.started_at for s in seen),
        addresses=tuple(plan.addresses) or seen[0].addresses,
        images=plan.images,
    )


def unproven_until_s(plan: MachinePlan, sight: MachineSnapshot) -> float | None:
    """Until when a machine that ended before is not believed to run; None if it is. Only one that
    was believed falls asleep."""
    if sight.record.woken or sight.record.asleep:
        return None
    if sight.record.exit_code is None or any(c.readiness for c in plan.containers):
        return None
    started_s = max((s.started_s for s in sight.seen.values()), default=0.0)
    until_s = started_s + PROVEN_S
    return until_s if started_s > sight.record.ended_s and sight.now_s < until_s else None


def _is_restarting(plan: MachinePlan, sight: MachineSnapshot) -> bool:
    """Whether the machine was started again after it ended and was not inspected since.

    It counts as crashed until it has proven itself, as after the inspection.
    """
    record = sight.record
    if record.woken or record.exit_code is None or any(c.readiness for c in plan.containers):
        return False
    ended = [s for s in sight.seen.values() if s.standing == "exited"]
    return bool(ended) and all(s.finished_s <= record.ended_s for s in ended)


def crashed_state(plan: MachinePlan, sight: MachineSnapshot) -> MachineState:
    record = sight.record
    return MachineState(
        "Failed",
        reason=Reason.INSTANCE_CRASHING,
        message=_ending(plan, sight),
        restarts=record.restarts,
        exit_code=record.exit_code,
        last_lines=tuple(record.lines),
        images=plan.images,
    )


def _ending(plan: MachinePlan, sight: MachineSnapshot) -> str:
    record = sight.record
    name = f"container {record.container}"
    if record.why:
        return f"{name} was stopped: {record.why}"
    memory = next((c.memory_mebibytes for c in plan.containers if c.name == record.container), 0)
    limit = f" (its limit is {memory}Mi)" if memory else ""
    if record.out_of_memory:
        return f"{name} ran out of memory{limit} and was killed: OOM, exit code {record.exit_code}"
    signal = _SIGNALS.get(record.exit_code or 0)
    by = f" (signal {signal})" if signal else ""
    return f"{name} ended with code {record.exit_code}{by}"


def _unready(plan: MachinePlan, answers: ReadinessResults) -> tuple[str, str]:
    for container in plan.containers:
        if container.readiness_check is None or answers.ready.get(container.name):
            continue
        reason = Reason.NOT_READY if container.name in answers.ready else Reason.STARTING
        return reason, _unready_message(container, answers.words.get(container.name, ""))
    return "", ""


def _unready_message(container: ContainerPlan, words: str) -> str:
    if words and container.readiness is None:
        return words  # a failed port check names the port
    return f"{readiness_check_title(container)}: {words or 'no answer yet'}"


def readiness_check_title(container: ContainerPlan) -> str:
    """Return the name of the readiness check of a container, for messages."""
    probed = container.readiness is not None
    return f"{'readiness probe' if probed else 'port check'} of {container.name}"
