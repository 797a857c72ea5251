"""How simulated machines behave, told by the registry that their image comes from.

Any other image boots and runs. To add a behaviour: a line in ``BEHAVIORS``. A state follows from
the machine's times and the present time alone, so that it survives restarts and any clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from datum_compute.api.codec import ApiStruct
from datum_compute.api.reasons import Reason
from datum_compute.api.scaletozero import SleepMode
from datum_compute.api.timestamps import timestamp
from datum_compute.drivers.driver import MachineState

BACKOFF_S, BACKOFF_MAX_S = 10.0, 300.0
ADDRESSES = 250 * 250
_FOREVER = 10**9


class SimulatedMachine(ApiStruct, frozen=True, kw_only=True):
    """One line of the table; the times are unix seconds at which the machine gets there."""

    number: int
    image: str
    runs_from_s: float
    addresses: list[str] = []  # those that it was given; else it has one of its own
    data: list[str] = []  # which versions of which sources it was given; never their content
    gone_from_s: float | None = None
    asleep_from_s: float | None = None
    sleep_mode: SleepMode = "pause"
    spec_fingerprint: str = ""  # of the Server's spec, see MachineState


@dataclass(frozen=True, slots=True)
class Behavior:
    """What differs from a machine that boots and runs."""

    boot_s: float | None = None
    fails: str = ""  # the reason why it never starts
    crashes: int = 0  # how often it ends right after its start
    exit_code: int = 1
    ends: bool = False  # once started it ends in order
    stuck: bool = False
    sleeps_after_s: float | None = None
    dozes_s: float = 0.0  # awake and asleep in turn, for so long each


DEFAULT_BEHAVIOR = Behavior()
BEHAVIORS: Mapping[str, Behavior] = {
    "fail.example": Behavior(fails=Reason.IMAGE_UNAVAILABLE),
    "config.example": Behavior(fails=Reason.CONFIGURATION_ERROR),
    "crash.example": Behavior(crashes=_FOREVER),
    "flaky.example": Behavior(crashes=2),
    "exit.example": Behavior(ends=True, exit_code=0),
    "slow.example": Behavior(boot_s=30.0),
    "stuck.example": Behavior(stuck=True),
    "sleepy.example": Behavior(sleeps_after_s=5.0),
    "dozing.example": Behavior(dozes_s=5.0),
}

_FAILURES = {
    Reason.IMAGE_UNAVAILABLE: "the registry has no image {image}",
    Reason.CONFIGURATION_ERROR: "the container of {image} cannot be set up as it was asked for",
}


def behavior_of(image: str) -> Behavior:
    return BEHAVIORS.get(image.partition("/")[0], DEFAULT_BEHAVIOR)


def machine_state(machine: SimulatedMachine, now_s: float) -> MachineState:
    behavior = behavior_of(machine.image)
    if behavior.fails:
        message = _FAILURES[Reason(behavior.fails)].format(image=machine.image)
        return MachineState("Failed", reason=behavior.fails, message=message)
    if behavior.stuck:
        return MachineState("Pending", reason=Reason.PROVISIONING, message="no host has room yet")
    if machine.runs_from_s > now_s:
        return MachineState("Pending", reason=Reason.STARTING, message="the machine is starting")
    starts, up_since_s, _ = _starts(machine, behavior, now_s)
    if starts <= behavior.crashes:
        return _crashed(machine, behavior, starts - 1)
    if behavior.ends:
        return MachineState(
            "Stopped",
            reason=Reason.STOPPED,
            message="the process ended by itself",
            exit_code=behavior.exit_code,
        )
    asleep = machine.asleep_from_s is not None and machine.asleep_from_s <= now_s
    asleep = asleep or _turns(machine, behavior, now_s) % 2 == 1
    return MachineState(
        "Sleeping" if asleep else "Running",
        restarts=starts - 1,
        exit_code=behavior.exit_code if starts > 1 else None,
        started_at=timestamp(up_since_s),
        addresses=tuple(machine.addresses) or (_address(machine.number),),
    )


def next_change_s(machine: SimulatedMachine, now_s: float) -> float | None:
    """When the machine will be in another state by itself, if ever."""
    behavior = behavior_of(machine.image)
    times = [machine.gone_from_s, machine.asleep_from_s, machine.runs_from_s]
    if machine.runs_from_s <= now_s and behavior.crashes:
        times.append(_starts(machine, behavior, now_s)[2])
    if machine.runs_from_s <= now_s and behavior.dozes_s:
        turns = _turns(machine, behavior, now_s) + 1
        times.append(machine.runs_from_s + turns * behavior.dozes_s)
    return min((time for time in times if time is not None and time > now_s), default=None)


def woken(machine: SimulatedMachine, now_s: float) -> SimulatedMachine:
    """Awake; one that sleeps by itself will do so again."""
    again = behavior_of(machine.image).sleeps_after_s
    asleep_from_s = None if again is None else now_s + again
    return msgspec.structs.replace(machine, asleep_from_s=asleep_from_s)


def _turns(machine: SimulatedMachine, behavior: Behavior, now_s: float) -> int:
    """How often it has fallen asleep and woken by itself."""
    if not behavior.dozes_s:
        return 0
    return int((now_s - machine.runs_from_s) // behavior.dozes_s)


def _starts(
    machine: SimulatedMachine, behavior: Behavior, now_s: float
) -> tuple[int, float, float | None]:
    """How often it has started by now, when it did last, and when it will again."""
    starts, at_s, wait_s = 1, machine.runs_from_s, BACKOFF_S
    while starts <= behavior.crashes:
        if wait_s >= BACKOFF_MAX_S:  # from here on every wait is the same: no need to count them
            more = int((now_s - at_s) // BACKOFF_MAX_S)
            at_s += more * BACKOFF_MAX_S
            return starts + more, at_s, at_s + BACKOFF_MAX_S
        if at_s + wait_s > now_s:
            return starts, at_s, at_s + wait_s
        starts, at_s, wait_s = starts + 1, at_s + wait_s, min(2 * wait_s, BACKOFF_MAX_S)
    return starts, at_s, None


def _crashed(machine: SimulatedMachine, behavior: Behavior, restarts: int) -> MachineState:
    return MachineState(
        "Failed",
        reason=Reason.INSTANCE_CRASHING,
        message=f"the process of {machine.image} ended with code {behavior.exit_code}",
        restarts=restarts,
        exit_code=behavior.exit_code,
        last_lines=(f"starting {machine.image}", "panic: this image always crashes"),
    )


def _address(number: int) -> str:
    return f"10.64.{number // 250}.{number % 250 + 1}"
