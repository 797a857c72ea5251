"""Faults that need two things to go wrong at once, and so hardly ever come about by chance.

Values as those of ``faults.py``, which lists them; what they do is in ``composed_chaos.py``, and
``stories.py`` draws them together with what people do.
"""

from __future__ import annotations

from dataclasses import dataclass


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
