"""What to do next about a machine. Pure and level triggered: it follows from what is seen, whatever
happened before, so a crash of this process between two steps costs nothing.

A machine ends as a whole: when one of its containers ends, the others are stopped, and all are
started again together, because they share the network namespace of the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from datum_compute.api.scaletozero import SleepMode
from datum_compute.drivers.containers.inspection import Seen
from datum_compute.drivers.containers.machine import Sight


@dataclass(frozen=True, slots=True)
class Create:
    """Make all containers anew; what is there of them is in the way."""


@dataclass(frozen=True, slots=True)
class Start:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NoteEnd:
    name: str


@dataclass(frozen=True, slots=True)
class Stop:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class FallAsleep:
    """Put on record that it sleeps: what ends from here on was ended by us."""

    mode: SleepMode


@dataclass(frozen=True, slots=True)
class Pause:
    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Wake:
    """Thaw or start those that do not run; then it is awake."""

    names: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Remove:
    """Stop what runs, with its grace period, then remove everything."""


@dataclass(frozen=True, slots=True)
class Forget:
    """There is no machine (any more)."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until something changes, or until then."""

    until_s: float | None = None
    is_up: bool = field(default=False)


Step = Create | Start | NoteEnd | Stop | FallAsleep | Pause | Wake | Remove | Forget | Rest


def next_step(sight: Sight) -> Step:
    if not sight.wanted:
        return Remove() if sight.seen else Forget()
    if sight.problem is not None and sight.now_s < sight.problem.again_s:
        return Rest(sight.problem.again_s)
    if any(name not in sight.seen for name in sight.containers):
        return Create() if sight.can_create else Forget()
    seen = [sight.seen[name] for name in sight.containers]
    if sight.record.asleep or sight.waking:
        return _step_of_sleeper(sight, seen)
    ended = [s.name for s in seen if s.standing == "exited"]
    if ended and not sight.record.is_down:
        return NoteEnd(ended[0])
    up = tuple(s.name for s in seen if s.is_up)
    if sight.record.is_down and ended:
        if up:
            return Stop(up)
        if sight.now_s < sight.record.start_after_s:
            return Rest(sight.record.start_after_s)
    if len(up) < len(seen):
        return Start(tuple(s.name for s in seen if not s.is_up))
    if sight.falling and not sight.record.is_down:
        return FallAsleep(sight.falling)
    return Rest(is_up=True)


def _step_of_sleeper(sight: Sight, seen: Sequence[Seen]) -> Step:
    """An end of one that sleeps is no crash: it sleeps on, and is started when it is woken."""
    up = tuple(s.name for s in seen if s.is_up)
    running = tuple(s.name for s in seen if s.standing == "running")
    if up and len(up) < len(seen):
        return Stop(up)  # those that are left share the network of one that is gone
    if sight.waking:
        return Wake(tuple(s.name for s in seen if s.standing != "running"))
    if sight.record.asleep == "stop" and up:
        return Stop(up)
    return Pause(running) if running else Rest()
