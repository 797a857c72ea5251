"""What operators do to the cells themselves. Values as in ``operations.py``, which lists them;
``membership_people.py`` carries them out, those of one city one after the other. They mean
something in worlds whose cells have joined only."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LeaveCell:
    """A cell leaves, and ``away_s`` after it is gone ``heir`` joins for its city: itself again, or
    a spare. ``forced``: it is not waited for if it does not answer, and then it is switched off,
    so that it comes back empty; or it is ``kept`` as it was, to come back itself."""

    at_s: float
    cell: str
    heir: str
    away_s: float
    forced: bool = False
    kept: bool = False

    @property
    def for_s(self) -> float:
        return self.away_s


@dataclass(frozen=True, slots=True)
class SecondCell:
    """Somebody registers a spare by hand for a city that has a cell. After a while one of the two
    leaves: the spare, or, if it ``stays``, the first."""

    at_s: float
    cell: str
    for_s: float
    stays: bool


@dataclass(frozen=True, slots=True)
class MoveCity:
    """A spare gets the label of a city and its cell loses it; after a while it is the other way
    round again, however far the move has come."""

    at_s: float
    cell: str
    for_s: float


OnCells = LeaveCell | SecondCell | MoveCity
