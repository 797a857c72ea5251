"""What people do to the platform, as plain values with a virtual time.

Users work on their workloads; an operator tampers with what controllers own. Every value makes
sense whatever the others did: a change to a workload that is not there is passed over, and what
an operator picks is an index into what there is at that moment. So each can be left out alone.

To add one: a value here, a line in ``Operation``, a case in ``people.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from testkit.sim.scenario.composed_operations import ComposedOperation
from testkit.sim.scenario.membership_operations import OnCells
from testkit.sim.scenario.project_operations import OnProjects
from testkit.sim.scenario.sleep_operations import LetSleep, Visit


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Also under a name that is just being deleted (F32): asked again until it is accepted."""

    at_s: float
    project: str
    name: str
    image: str
    replicas: int
    cities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ChangeImage:
    at_s: float
    project: str
    name: str
    image: str


@dataclass(frozen=True, slots=True)
class Scale:
    at_s: float
    project: str
    name: str
    replicas: int


@dataclass(frozen=True, slots=True)
class RollCarefully:
    """From now on a replacement has to serve for a while before the next one is taken."""

    at_s: float
    project: str
    name: str
    min_ready_s: int
    max_unavailable: int


@dataclass(frozen=True, slots=True)
class Move:
    """Other cities; what runs elsewhere must go."""

    at_s: float
    project: str
    name: str
    cities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllowFallback:
    """If one of its cities fails, others may take its share, after ``after_s``."""

    at_s: float
    project: str
    name: str
    cities: tuple[str, ...]
    after_s: int


@dataclass(frozen=True, slots=True)
class MoveBack:
    """What has moved goes back to its own city."""

    at_s: float
    project: str
    name: str


@dataclass(frozen=True, slots=True)
class ReferToData:
    """From now on the workload takes data; what it takes is there only some time later."""

    at_s: float
    project: str
    name: str
    image: str
    late_s: float
    number: int


@dataclass(frozen=True, slots=True)
class ReplaceData:
    """The project's data is removed, and there again with other content some time later."""

    at_s: float
    project: str
    name: str
    away_s: float
    number: int


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """``orphan``: with ``--cascade=orphan``, which leaves nothing all the same."""

    at_s: float
    project: str
    name: str
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Somebody deletes an object that a controller owns; ``orphan``: what hangs under it stays,
    and belongs to nobody."""

    at_s: float
    plane: str
    resource: str
    pick: int
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class EditObject:
    """Somebody changes one label, one annotation, the owners or the spec of such an object."""

    at_s: float
    plane: str
    resource: str
    part: Literal["label", "annotation", "owner", "spec"]
    pick: int


@dataclass(frozen=True, slots=True)
class DeleteNamespace:
    """Somebody deletes a namespace that the federation made, with all that is in it."""

    at_s: float
    plane: str
    pick: int


@dataclass(frozen=True, slots=True)
class CreatePoison:
    """F27: an object that no controller expects, where every consumer of its kind sees it."""

    at_s: float
    plane: str
    resource: str


@dataclass(frozen=True, slots=True)
class FleetingNamespace:
    """A user makes a namespace with a workload in it, and deletes the namespace after a while."""

    at_s: float
    project: str
    name: str
    cities: tuple[str, ...]
    for_s: float


_Changes = (
    ChangeImage | Scale | RollCarefully | Move | AllowFallback | MoveBack | ReferToData | LetSleep
)
ByUser = CreateWorkload | _Changes | ReplaceData | DeleteWorkload
ByOperator = DeleteObject | EditObject | DeleteNamespace | CreatePoison | ComposedOperation
Operation = ByUser | ByOperator | FleetingNamespace | OnProjects | OnCells | Visit
