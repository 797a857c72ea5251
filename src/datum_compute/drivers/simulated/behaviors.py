"""What simulated machines do, chosen by the registry in the name of their image.

An image of any other registry boots and runs. To add a behavior, add a line to ``BEHAVIORS``. The
state of a machine is a function of its times and the current time alone, so that it survives
restarts and works with any clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.conditions import Reason
from datum_compute.api.meta.codec import ApiStruct
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.drivers.driver import MachineState

BACKOFF_S, BACKOFF_MAX_S = 10.0, 300.0
ADDRESSES_MAX = 250 * 250
_ALWAYS = 10**9  # a number of crashes that no machine reaches


class SimulatedMachine(ApiStruct, frozen=True, kw_only=True):
    """One machine in the table of the driver. Times are Unix seconds at which a state begins."""

    number: int
    image: str
    runs_from_s: float
    addresses: list[str] = []  # as assigned; if empty, one is derived from the number
    data: list[str] = []  # versions of the sources of its data, never their contents
    gone_from_s: float | None = None
    asleep_from_s: float | None = None
    sleep_mode: SleepMode = "pause"
    suspended_from_s: float | None = None  # its processes have ended
    spec_fingerprint: str = ""  # see MachineState


@dataclass(frozen=True, slots=True)
class Behavior:
    """How a machine differs from one that boots and runs."""

    boot_s: float | None = None
    start_failure: str = ""  # if set, it never starts, for this reason
    crashes: int = 0  # how many of its first starts crash
    crash_after_s: float = 0.0  # how long it runs before each crash
    is_killed_by_probe: bool = False  # it crashes because its liveness probe fails
    exit_code: int = 1
    is_never_ready: bool = False  # it runs, and its readiness probe fails
    ready_period_s: float = 0.0  # if not 0, it alternates: ready for this time, then not ready
    stop_s: float | None = None
    exits: bool = False  # it exits right after its start, and is not restarted
    is_stuck: bool = False  # it stays Pending
    sleeps_after_s: float | None = None
    nap_period_s: float = 0.0  # if not 0, it alternates: awake for this time, then asleep


DEFAULT_BEHAVIOR = Behavior()
BEHAVIORS: Mapping[str, Behavior] = {
    "fail.example": Behavior(start_failure=Reason.IMAGE_UNAVAILABLE),
    "config.example": Behavior(start_failure=Reason.CONFIGURATION_ERROR),
    "crash.example": Behavior(crashes=_ALWAYS),
    "flaky.example": Behavior(crashes=2),
    "exit.example": Behavior(exits=True, exit_code=0),
    "slow.example": Behavior(boot_s=30.0),
    "stuck.example": Behavior(is_stuck=True),
    "sleepy.example": Behavior(sleeps_after_s=5.0),
    "dozing.example": Behavior(nap_period_s=5.0),
    "late.example": Behavior(crashes=_ALWAYS, crash_after_s=6.0),
    "unhealthy.example": Behavior(
        crashes=2, crash_after_s=6.0, is_killed_by_probe=True, exit_code=137
    ),
    "unready.example": Behavior(is_never_ready=True),
    "flapping.example": Behavior(ready_period_s=8.0),
    "stubborn.example": Behavior(stop_s=10.0),
}

_FAILURE_MESSAGES = {
    Reason.IMAGE_UNAVAILABLE: "the registry has no image {image}",
    Reason.CONFIGURATION_ERROR: "the container of {image} cannot be created as specified",
}


def behavior_of(image: str) -> Behavior:
    return BEHAVIORS.get(image.partition("/")[0], DEFAULT_BEHAVIOR)


def machine_state(machine: SimulatedMachine, now_s: float) -> MachineState:
    behavior = behavior_of(machine.image)
    if machine.suspended_from_s is not None:
        return _suspended_state(machine, machine.suspended_from_s, now_s)
    if behavior.start_failure:
        message = _FAILURE_MESSAGES[Reason(behavior.start_failure)].format(image=machine.image)
        return MachineState("Failed", reason=behavior.start_failure, message=message)
    if behavior.is_stuck:
        return MachineState("Pending", reason=Reason.PROVISIONING, message="no host has capacity")
    if machine.runs_from_s > now_s:
        return MachineState("Pending", reason=Reason.STARTING, message="the machine is starting")
    starts = _count_starts(machine, behavior, now_s)
    if starts.count <= behavior.crashes and now_s >= starts.last_s + behavior.crash_after_s:
        return _crashed_state(machine, behavior, starts.count - 1)
    if behavior.exits:
        return MachineState(
            "Stopped",
            reason=Reason.STOPPED,
            message=f"the process exited with code {behavior.exit_code}",
            exit_code=behavior.exit_code,
        )
    is_asleep = machine.asleep_from_s is not None and machine.asleep_from_s <= now_s
    is_asleep = is_asleep or _periods(machine, behavior.nap_period_s, now_s) % 2 == 1
    is_unready = _periods(machine, behavior.ready_period_s, now_s) % 2 == 1
    is_unready = not is_asleep and (is_unready or behavior.is_never_ready)
    return MachineState(
        "Sleeping" if is_asleep else "Running",
        reason=Reason.NOT_READY if is_unready else "",
        message="readiness probe of app: HTTP status 503" if is_unready else "",
        restarts=starts.count - 1,
        exit_code=behavior.exit_code if starts.count > 1 else None,
        started_at=timestamp(starts.last_s),
        addresses=machine_addresses(machine),
    )


def _suspended_state(
    machine: SimulatedMachine, suspended_from_s: float, now_s: float
) -> MachineState:
    is_stopped = suspended_from_s <= now_s
    return MachineState(
        "Stopped",
        reason=Reason.STOPPED if is_stopped else Reason.STOPPING,
        message="the machine is stopped" if is_stopped else "the machine is being stopped",
        addresses=machine_addresses(machine),
        is_suspended=True,
    )


def next_change_s(machine: SimulatedMachine, now_s: float) -> float | None:
    """Return when the state of the machine changes without a request; None if it does not."""
    behavior = behavior_of(machine.image)
    if machine.suspended_from_s is not None:
        ends_s = (machine.gone_from_s, machine.suspended_from_s)
        return min((at_s for at_s in ends_s if at_s is not None and at_s > now_s), default=None)
    times = [machine.gone_from_s, machine.asleep_from_s, machine.runs_from_s]
    if machine.runs_from_s <= now_s and behavior.crashes:
        starts = _count_starts(machine, behavior, now_s)
        times.append(starts.next_s)
        if starts.count <= behavior.crashes:
            times.append(starts.last_s + behavior.crash_after_s)
    for period_s in (behavior.nap_period_s, behavior.ready_period_s):
        if machine.runs_from_s <= now_s and period_s:
            periods = _periods(machine, period_s, now_s) + 1
            times.append(machine.runs_from_s + periods * period_s)
    return min((time for time in times if time is not None and time > now_s), default=None)


def wake_machine(machine: SimulatedMachine, now_s: float) -> SimulatedMachine:
    """Return the machine awake. Its behavior may put it to sleep again."""
    sleeps_after_s = behavior_of(machine.image).sleeps_after_s
    asleep_from_s = None if sleeps_after_s is None else now_s + sleeps_after_s
    return msgspec.structs.replace(machine, asleep_from_s=asleep_from_s)


def _periods(machine: SimulatedMachine, period_s: float, now_s: float) -> int:
    """Return how often the machine has changed its state since it started to run."""
    if not period_s:
        return 0
    return int((now_s - machine.runs_from_s) // period_s)


@dataclass(frozen=True, slots=True)
class Starts:
    count: int
    last_s: float
    next_s: float | None


def _count_starts(machine: SimulatedMachine, behavior: Behavior, now_s: float) -> Starts:
    count, at_s, backoff_s = 1, machine.runs_from_s, BACKOFF_S
    while count <= behavior.crashes:
        cycle_s = behavior.crash_after_s + backoff_s
        if backoff_s >= BACKOFF_MAX_S:
            # From here on every backoff is the same, so the starts need not be counted one by one.
            more = int((now_s - at_s) // cycle_s)
            at_s += more * cycle_s
            return Starts(count + more, at_s, at_s + cycle_s)
        if at_s + cycle_s > now_s:
            return Starts(count, at_s, at_s + cycle_s)
        count, at_s = count + 1, at_s + cycle_s
        backoff_s = min(2 * backoff_s, BACKOFF_MAX_S)
    return Starts(count, at_s, None)


def _crashed_state(machine: SimulatedMachine, behavior: Behavior, restarts: int) -> MachineState:
    message = f"the process of {machine.image} exited with code {behavior.exit_code}"
    if behavior.is_killed_by_probe:
        message = f"the process of {machine.image} was stopped: its liveness probe failed"
    return MachineState(
        "Failed",
        reason=Reason.INSTANCE_CRASHING,
        message=message,
        restarts=restarts,
        exit_code=behavior.exit_code,
        last_lines=(f"starting {machine.image}", "panic: this image always crashes"),
    )


def machine_addresses(machine: SimulatedMachine) -> tuple[str, ...]:
    return tuple(machine.addresses) or (_default_address(machine.number),)


def _default_address(number: int) -> str:
    return f"10.64.{number // 250}.{number % 250 + 1}"
