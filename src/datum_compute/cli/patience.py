"""How long the command line waits for what, in one place, so that tests need not wait at all."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Patience:
    """settle_s gathers events that come together; retry_s lies between failed looks. A rollout that
    comes no further for stall_s is called stalled; a cause that only the user can remove ends the
    wait after verdict_s. first_status_s is for an answer to a request for access; aside_s for
    what is only shown beside the answer, and may come from a cell that is silent; last_word_s for
    what is told of something that has just gone."""

    reread_s: int = 2
    settle_s: float = 0.05
    retry_s: float = 1.0
    failures_max: int = 60
    stall_s: float = 30.0
    verdict_s: float = 15.0
    first_status_s: float = 30.0
    completion_s: float = 1.5
    aside_s: float = 5.0
    last_word_s: float = 3.0
