"""What operators do to much at once. Values as in ``operations.py``, which lists them;
``composed_people.py`` carries them out."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DeleteAll:
    """F12, F34: everything of a kind whose name begins so is deleted: a selector that matches too
    much, and a set that is suddenly empty."""

    at_s: float
    plane: str
    resource: str
    prefix: str


@dataclass(frozen=True, slots=True)
class DropField:
    """F31: an old writer puts an object back without a field of the spec that it does not know."""

    at_s: float
    plane: str
    resource: str
    pick: int


@dataclass(frozen=True, slots=True)
class RevokeProject:
    """The plane of a project is removed with all that runs of it. Only of those that are
    ``revocable`` in the layout."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class DrainCell:
    """A cell gets nothing new for a while; what is placed there stays."""

    at_s: float
    cell: str
    for_s: float


ComposedOperation = DeleteAll | DropField | RevokeProject | DrainCell
