"""How a machine falls asleep and wakes. That it sleeps is on its record, so that it sleeps on when
we start anew: paused containers say so themselves, stopped ones look like any that have ended.

Probes stop while it sleeps. From a pause it goes on where it was, so the first question is asked at
once; from a stop it starts as it always does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from datum_compute.api.timestamps import timestamp
from datum_compute.drivers.containers.effects import Hands
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.records import Record, after_wake
from datum_compute.drivers.driver import TransientError

# So long one that was woken is called asleep still, until it is ready; then it is said what it is.
DROWSY_S = 10.0
LET_PASS_S = 0.02


def may_sleep(machine: Machine, now_s: float) -> bool:
    """Only one that serves: what is wrong with any other must show."""
    state = machine.state(now_s)
    serves = state.phase == "Running" and not state.reason
    return machine.wanted and not machine.sleep.waking and serves


def is_asleep(machine: Machine) -> bool:
    """Or something else has become of it, and there is nothing to wait for."""
    if machine.wanted and machine.sleep.falling:
        return False
    if not machine.wanted or not machine.record.asleep:
        return True
    wanted = "exited" if machine.record.asleep == "stop" else "paused"
    return all(seen.standing == wanted for seen in machine.seen.values())


def can_wake(machine: Machine) -> bool:
    """Also one that somebody else has paused."""
    paused = any(seen.standing == "paused" for seen in machine.seen.values())
    return machine.wanted and bool(machine.record.asleep or paused)


async def until(machine: Machine, holds: Callable[[Machine], bool]) -> None:
    while not holds(machine):
        await machine.sleep.turned.wait()


async def wake(
    hands: Hands, machine: Machine, names: Sequence[str], now_s: Callable[[], float]
) -> Record:
    """What is on record of it when it executes."""
    began_s, seen = now_s(), machine.seen
    frozen = [name for name in names if seen[name].standing == "paused"]
    await hands.unpause(machine, frozen)
    await hands.start(machine, [name for name in names if name not in frozen])
    sleep, ended_s = machine.sleep, now_s()
    for name in names:  # known before anybody looks again
        seen[name] = replace(seen[name], standing="running", exit_code=None)
        if name not in frozen:
            seen[name] = replace(seen[name], started_at=timestamp(ended_s), started_s=ended_s)
    sleep.engine_s = max(0.0, ended_s - began_s)
    sleep.drowsy_until_s = ended_s + DROWSY_S
    sleep.thawed = len(frozen) == len(machine.containers)
    sleep.waking = False
    machine.problem = None
    return after_wake(machine.record)


def woken_in_s(machine: Machine) -> float:
    """What the engine took, if it did wake it."""
    if machine.problem is not None:
        raise TransientError(f"it cannot be woken: {machine.problem.message}")
    if not machine.wanted or machine.record.asleep:
        raise TransientError("it went away instead of being woken")
    return machine.sleep.engine_s
