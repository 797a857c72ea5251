"""What goes wrong, as plain values with a virtual time. F-numbers are those of the fault list.

A fault that lasts heals after ``for_s``, and at the latest when the calm begins; FOR_EVER never
heals: such a fault freezes what lies outside the healthy core. Hosts and links are named as in
``scenario.hosts_of``. A fault that draws carries its own salt.

``composed_faults.py`` holds those that need two things to go wrong at once.

To add one: a value here with its number, a line in ``Fault``, a case in ``fault_injector.py``, and
a draw in ``draw.py``.

Faults that need two things to go wrong at once, and so hardly ever come about by chance.

Values as those of ``faults.py``, which lists them; what they do is in ``fault_injector.py``, and
``fault_templates.py`` draws them together with what people do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LoseHistory:
    """F5, F6: watches end, none can be opened for a while, and then the history is gone. What was
    created, deleted and created again meanwhile folds into one list."""

    at_s: float
    for_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class AnswerFromCache:
    """F3: ``source`` starts anew while the store behind ``target`` does not answer: lists come
    from an older cache, everything else is refused with 503."""

    at_s: float
    for_s: float
    source: str
    target: str
    age_s: float


@dataclass(frozen=True, slots=True)
class ExpireToken:
    """F29: every new request is answered with 401; watches that are open go on and hide it."""

    at_s: float
    for_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class RestorePlane:
    """F23: a backup of a plane is made at ``at_s``; after ``for_s`` its host dies and comes back
    with it. As the documentation asks for, its versions are ahead of the old ones. Machines are not
    in a backup."""

    at_s: float
    for_s: float
    plane: str


@dataclass(frozen=True, slots=True)
class TouchEverything:
    """F30: a migration writes every object of a plane anew."""

    at_s: float
    plane: str


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """F26: every commit of the host takes many times as long; its links are as quick as ever."""

    at_s: float
    for_s: float
    host: str
    factor: float


@dataclass(frozen=True, slots=True)
class DeleteNewNamespace:
    """F32: the next namespace that the host stores for the federation is deleted in the moment in
    which it is there, before anything is in it and while its first content is on the way."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class DieWithCopy:
    """F21: the next copy of a deployment is the last thing a cell stores: its disk hangs, so that
    the hub sees a copy of which nobody says anything, and a moment later it is lost for ever."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class BurnMachines:
    """F33: all machines of a cell die, and for a while none that is started comes up."""

    at_s: float
    for_s: float
    cell: str


ComposedFault = (
    LoseHistory
    | AnswerFromCache
    | ExpireToken
    | RestorePlane
    | TouchEverything
    | SlowDisk
    | DeleteNewNamespace
    | DieWithCopy
    | BurnMachines
)


FOR_EVER = float("inf")

# --- processes


@dataclass(frozen=True, slots=True)
class CrashAtCommit:
    """F1: the host dies at its n-th commit from now, before it is durable or right after."""

    at_s: float
    host: str
    commits: int
    durable: bool


@dataclass(frozen=True, slots=True)
class CrashBetweenPlanes:
    """F2: the host dies when it has written a Work to the hub and not yet the copy to a cell."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class StopHost:
    """F28, F21: the process is gone for a while; its return makes everybody list at once."""

    at_s: float
    for_s: float
    host: str


@dataclass(frozen=True, slots=True)
class EmptyHost:
    """F22: the host comes back under its name with nothing: no rows, no machines."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class PauseHost:
    """F16: the process stands still (a long pause) and then goes on with what it believed."""

    at_s: float
    for_s: float
    host: str


@dataclass(frozen=True, slots=True)
class SkewClock:
    """F17: from now on the host's clock is off by this much."""

    at_s: float
    host: str
    skew_s: float


# --- disks


@dataclass(frozen=True, slots=True)
class FillDisk:
    """F24: every commit is refused; reads go on."""

    at_s: float
    for_s: float
    host: str


@dataclass(frozen=True, slots=True)
class BreakSync:
    """F25: one commit ends in an error that leaves open whether it was kept."""

    at_s: float
    host: str
    kept: bool


@dataclass(frozen=True, slots=True)
class SlowHost:
    """F26: everything the host stores or answers takes many times as long."""

    at_s: float
    for_s: float
    host: str
    factor: float


# --- links: ``source`` asks, ``target`` answers


@dataclass(frozen=True, slots=True)
class CutLink:
    """F18, one way: nothing gets from source to target, be it a question or an answer."""

    at_s: float
    for_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class IsolateHost:
    """F19, F21: nothing gets to the host or away from it."""

    at_s: float
    for_s: float
    host: str


@dataclass(frozen=True, slots=True)
class FlapLink:
    """F20: up and down in turn, each for ``period_s``."""

    at_s: float
    for_s: float
    source: str
    target: str
    period_s: float


@dataclass(frozen=True, slots=True)
class SwizzleClog:
    """All links stop one by one and come back in another order."""

    at_s: float
    for_s: float
    salt: int


@dataclass(frozen=True, slots=True)
class LoseRequests:
    """F13: some requests get no answer; ``applied`` tells whether they had their effect."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    applied: bool
    salt: int


@dataclass(frozen=True, slots=True)
class DelayWrites:
    """F14: some writes are given up by the sender, and land later, after newer ones."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    delay_s: float
    salt: int


@dataclass(frozen=True, slots=True)
class RepeatWrites:
    """F14: some writes arrive twice, the second time later."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    delay_s: float
    salt: int


@dataclass(frozen=True, slots=True)
class Throttle:
    """F15: some requests are answered with 429 and nothing done."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    salt: int


@dataclass(frozen=True, slots=True)
class ConflictStorm:
    """F15: somebody else writes the same objects again and again."""

    at_s: float
    for_s: float
    plane: str
    resource: str
    every_s: float


# --- lists and watches


@dataclass(frozen=True, slots=True)
class StaleLists:
    """F3, F4: lists are answered from an older version, as a cache that lags would."""

    at_s: float
    for_s: float
    source: str
    target: str
    age_s: float


@dataclass(frozen=True, slots=True)
class BreakPages:
    """F11: lists come in small pages, and those after the first are never answered."""

    at_s: float
    for_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class CloseWatches:
    """Every open watch of the link ends; the client resumes it."""

    at_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class ForgetHistory:
    """F6, F5: the history is compacted and watches end: resuming is answered with 410, and what
    was created and deleted in between folds into one list."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class HalfOpenWatches:
    """F7: open watches bring nothing more and do not end."""

    at_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class SlowWatches:
    """F8: opening a watch takes this long."""

    at_s: float
    for_s: float
    source: str
    target: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class RepeatEvents:
    """F9: a watch tells some events again, older than what it has told before."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    salt: int


@dataclass(frozen=True, slots=True)
class LagWatches:
    """F9, F4: events come late, those of one link later than those of another. Each event of a
    watch takes this long, one after the other: a burst is a backlog that outlasts the fault."""

    at_s: float
    for_s: float
    source: str
    target: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class LoseDeletes:
    """F10: deletions are not told; when it heals the stream ends with 410 and a list tells."""

    at_s: float
    for_s: float
    source: str
    target: str


# --- providers


@dataclass(frozen=True, slots=True)
class LyingProvider:
    """F33: machines that are accepted and never there, deleted yet alive, or there twice."""

    at_s: float
    for_s: float
    cell: str
    lie: Literal["never-there", "still-alive", "there-twice"]


@dataclass(frozen=True, slots=True)
class ProviderAway:
    """F33: the engine behind a cell answers nothing; its machines go on."""

    at_s: float
    for_s: float
    cell: str


@dataclass(frozen=True, slots=True)
class LoseMachine:
    """A machine dies behind everybody's back."""

    at_s: float
    cell: str
    pick: int


Fault = (
    CrashAtCommit
    | CrashBetweenPlanes
    | StopHost
    | EmptyHost
    | PauseHost
    | SkewClock
    | FillDisk
    | BreakSync
    | SlowHost
    | CutLink
    | IsolateHost
    | FlapLink
    | SwizzleClog
    | LoseRequests
    | DelayWrites
    | RepeatWrites
    | Throttle
    | ConflictStorm
    | StaleLists
    | BreakPages
    | CloseWatches
    | ForgetHistory
    | HalfOpenWatches
    | SlowWatches
    | RepeatEvents
    | LagWatches
    | LoseDeletes
    | LyingProvider
    | ProviderAway
    | LoseMachine
    | ComposedFault
)
