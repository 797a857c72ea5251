"""Faults as plain values with a virtual time. The F numbers are those of
docs/internals/simulator.md.

A fault ends after ``for_s``, and at the latest when the calm begins. One with FOR_EVER never ends:
what it affects is not expected to recover. Hosts and links are named as in ``scenario.hosts_of``. A
fault that draws has its own salt. Faults that need two things to fail at once come first
(``ComposedFault``).

To add one: a value here with its number, a line in ``Fault``, a case in ``fault_injector.py``, and
a draw in ``draw.py`` or ``fault_templates.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class LoseHistory:
    """F5, F6: watches end, cannot be opened for a while, and then the history is compacted. An
    object that was created, deleted and created again meanwhile appears once in a list."""

    at_s: float
    for_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class AnswerFromCache:
    """F3: ``source`` restarts while the store behind ``target`` fails. Lists come from an older
    cache; other requests are refused with 503."""

    at_s: float
    for_s: float
    source: str
    target: str
    age_s: float


@dataclass(frozen=True, slots=True)
class ExpireToken:
    """F29: every new request is refused with 401; open watches continue and hide it."""

    at_s: float
    for_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class RestorePlane:
    """F23: a backup of a plane is made at ``at_s``. After ``for_s`` its host crashes and comes back
    with the backup. As the documentation requires, its versions are ahead of the old ones. Machines
    are not part of a backup."""

    at_s: float
    for_s: float
    plane: str


@dataclass(frozen=True, slots=True)
class TouchEverything:
    """F30: a migration writes every object of a plane again."""

    at_s: float
    plane: str


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """F26: every commit of the host takes many times as long; its links are as fast as before."""

    at_s: float
    for_s: float
    host: str
    factor: float


@dataclass(frozen=True, slots=True)
class DeleteNewNamespace:
    """F32: the next namespace that the host stores for the federation is deleted at once, while its
    first object is being created."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class DieWithCopy:
    """F21: a cell is lost right after it stored a copy of a deployment. Its disk hangs before the
    loss, so the hub observes a copy without a status."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class BurnMachines:
    """F33: all machines of a cell fail, and for a while no new machine runs."""

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
    """F1: the host crashes at its n-th commit from now, before it is durable or right after."""

    at_s: float
    host: str
    commits: int
    durable: bool


@dataclass(frozen=True, slots=True)
class CrashBetweenPlanes:
    """F2: the host crashes after it wrote a Work to the hub and before it wrote the copy to a
    cell."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class StopHost:
    """F28, F21: the process is stopped for a while. After its start all clients list at once."""

    at_s: float
    for_s: float
    host: str


@dataclass(frozen=True, slots=True)
class EmptyHost:
    """F22: the host comes back with its name and without rows and machines."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class PauseHost:
    """F16: the process is paused, and then continues with its old state."""

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
    """F24: every commit is refused; reads succeed."""

    at_s: float
    for_s: float
    host: str


@dataclass(frozen=True, slots=True)
class BreakSync:
    """F25: one commit ends in an error that does not state whether it was kept."""

    at_s: float
    host: str
    kept: bool


@dataclass(frozen=True, slots=True)
class SlowHost:
    """F26: every commit and response of the host takes many times as long."""

    at_s: float
    for_s: float
    host: str
    factor: float


# --- links: ``source`` sends requests to ``target``


@dataclass(frozen=True, slots=True)
class CutLink:
    """F7, F18: no request or response passes from source to target; the other way is open."""

    at_s: float
    for_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class IsolateHost:
    """F19, F21: the host receives and sends no message."""

    at_s: float
    for_s: float
    host: str


@dataclass(frozen=True, slots=True)
class FlapLink:
    """F20: the link is cut and restored alternately, each for ``period_s``."""

    at_s: float
    for_s: float
    source: str
    target: str
    period_s: float


@dataclass(frozen=True, slots=True)
class SwizzleClog:
    """F20: all links are cut one by one and restored in another order."""

    at_s: float
    for_s: float
    salt: int


@dataclass(frozen=True, slots=True)
class LoseRequests:
    """F13: some requests get no response; if ``applied``, they took effect."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    applied: bool
    salt: int


@dataclass(frozen=True, slots=True)
class DelayWrites:
    """F14: some writes time out at the sender, and are applied later, after newer ones."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    delay_s: float
    salt: int


@dataclass(frozen=True, slots=True)
class RepeatWrites:
    """F14: some writes are applied twice, the second time later."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    delay_s: float
    salt: int


@dataclass(frozen=True, slots=True)
class Throttle:
    """F15: some requests are refused with 429."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    salt: int


@dataclass(frozen=True, slots=True)
class ConflictStorm:
    """F15: another writer changes the same objects at intervals."""

    at_s: float
    for_s: float
    plane: str
    resource: str
    every_s: float


# --- lists and watches


@dataclass(frozen=True, slots=True)
class StaleLists:
    """F3, F4: lists are returned as of an older version, as by a stale cache."""

    at_s: float
    for_s: float
    source: str
    target: str
    age_s: float


@dataclass(frozen=True, slots=True)
class BreakPages:
    """F11: lists come in small pages, and those after the first are never returned."""

    at_s: float
    for_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class CloseWatches:
    """F9: every open watch of the link ends; the client resumes it."""

    at_s: float
    source: str
    target: str


@dataclass(frozen=True, slots=True)
class ForgetHistory:
    """F6, F5: the history is compacted and watches end. Resuming returns 410, and an object that
    was created and deleted in between is not in the list."""

    at_s: float
    host: str


@dataclass(frozen=True, slots=True)
class HalfOpenWatches:
    """F7: open watches send nothing more and do not end."""

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
    """F9: a watch repeats some events that are older than the last one."""

    at_s: float
    for_s: float
    source: str
    target: str
    percent: int
    salt: int


@dataclass(frozen=True, slots=True)
class LagWatches:
    """F9, F4: events are late, those of one link later than those of another. Each event of a watch
    takes this long, one after the other: the backlog of a burst outlasts the fault."""

    at_s: float
    for_s: float
    source: str
    target: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class LoseDeletes:
    """F10: deletions are not sent. Finally the stream ends with 410, and a list shows them."""

    at_s: float
    for_s: float
    source: str
    target: str


# --- providers


@dataclass(frozen=True, slots=True)
class LyingProvider:
    """F33: machines that are accepted and never run, are deleted and still run, or run twice."""

    at_s: float
    for_s: float
    cell: str
    lie: Literal["never-there", "still-alive", "there-twice"]


@dataclass(frozen=True, slots=True)
class ProviderAway:
    """F33: the engine of a cell does not respond; its machines keep running."""

    at_s: float
    for_s: float
    cell: str


@dataclass(frozen=True, slots=True)
class LoseMachine:
    """F33: a machine fails, and the provider does not report it."""

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
