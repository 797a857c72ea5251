"""Operations of users and operators, as plain values with a virtual time.

Users change their workloads; an operator changes objects that controllers own. Each operation is
valid without the others: a change to a workload that does not exist is skipped, and what an
operator picks is an index into the objects that exist then. So each can be left out alone.

Groups: operations on many objects at once, on cells (only in worlds whose cells join; those of one
city are performed in order), on projects and their access (in order for each project), and sleep
with visits.

To add one: a value here, a line in ``Operation``, and a case in ``users.py``, ``operators.py`` or
``visitors.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from datum_compute.api.scaletozero import SleepMode


@dataclass(frozen=True, slots=True)
class DeleteAll:
    """F12, F34: delete all objects of a kind whose names have a prefix: a selector that matches too
    much, and a set that is suddenly empty."""

    at_s: float
    plane: str
    resource: str
    prefix: str


@dataclass(frozen=True, slots=True)
class DropField:
    """F31: an old client writes an object back without a field that it does not know."""

    at_s: float
    plane: str
    resource: str
    pick: int


@dataclass(frozen=True, slots=True)
class RevokeProject:
    """Remove the plane of a project with its workloads. Only for projects that are ``revocable`` in
    the layout."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class DrainCell:
    """Place nothing new on a cell for a while; what is placed there stays."""

    at_s: float
    cell: str
    for_s: float


ComposedOperation = DeleteAll | DropField | RevokeProject | DrainCell


@dataclass(frozen=True, slots=True)
class LeaveCell:
    """A cell leaves, and ``away_s`` later ``heir`` joins for its city: the same cell, or a spare.
    ``forced``: the hub does not wait for an unreachable cell, which is then stopped and comes back
    empty, or, if ``kept``, as it was."""

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
    """An operator registers a spare for a city that has a cell. After a while one of them leaves:
    the spare, or the first, if the spare ``stays``."""

    at_s: float
    cell: str
    for_s: float
    stays: bool


@dataclass(frozen=True, slots=True)
class MoveCity:
    """A spare gets the city label of a cell, which loses it; after a while the labels are swapped
    back, whatever the state of the move."""

    at_s: float
    cell: str
    for_s: float


OnCells = LeaveCell | SecondCell | MoveCity


@dataclass(frozen=True, slots=True)
class CreateProject:
    """A project that did not exist at first; its plane is created while the world runs."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class GateCompute:
    """From now on access needs the decision of the provider, or does not."""

    at_s: float
    project: str
    gated: bool


@dataclass(frozen=True, slots=True)
class RequestAccess:
    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class Decide:
    """The provider decides the project's request, if there is one."""

    at_s: float
    project: str
    decision: Literal["Approved", "Denied", "Suspended", "Resumed", "Removed"]


@dataclass(frozen=True, slots=True)
class RenewAccess:
    """The request is deleted and created again."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class DeployIn:
    """Create a workload if the project has access; retried for a while, because access may be
    pending."""

    at_s: float
    project: str
    name: str
    replicas: int
    cities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class DeleteProject:
    at_s: float
    project: str


OnProjects = (
    CreateProject | GateCompute | RequestAccess | Decide | RenewAccess | DeployIn | DeleteProject
)


@dataclass(frozen=True, slots=True)
class LetSleep:
    """From now on the instances sleep without connections; with a new image, as any change."""

    at_s: float
    project: str
    name: str
    image: str
    idle_ms: int
    mode: SleepMode


@dataclass(frozen=True, slots=True)
class Visit:
    """Connections to one of the ports that a cell publishes, one after the other or all at once;
    only in worlds with published ports."""

    at_s: float
    cell: str
    pick: int
    count: int
    apart_s: float
    stays_s: float

    @property
    def for_s(self) -> float:
        return self.count * self.apart_s + self.stays_s


@dataclass(frozen=True, slots=True)
class CreateWorkload:
    """Also under a name that is being deleted (F32): retried until it is accepted."""

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
    """From now on a replacement must serve for a while before the next instance is replaced."""

    at_s: float
    project: str
    name: str
    min_ready_s: int
    max_unavailable: int


@dataclass(frozen=True, slots=True)
class Move:
    """Other cities; instances elsewhere must be deleted."""

    at_s: float
    project: str
    name: str
    cities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllowFallback:
    """If one of its cities fails, others may replace it after ``after_s``."""

    at_s: float
    project: str
    name: str
    cities: tuple[str, ...]
    after_s: int


@dataclass(frozen=True, slots=True)
class MoveBack:
    """Replicas that moved to a fallback city return to their own city."""

    at_s: float
    project: str
    name: str


@dataclass(frozen=True, slots=True)
class ReferToData:
    """From now on the workload references data, which is created some time later."""

    at_s: float
    project: str
    name: str
    image: str
    late_s: float
    number: int


@dataclass(frozen=True, slots=True)
class ReplaceData:
    """The project's data is deleted, and created again with other content some time later."""

    at_s: float
    project: str
    name: str
    away_s: float
    number: int


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """``orphan``: with ``--cascade=orphan``, which must leave nothing, too."""

    at_s: float
    project: str
    name: str
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """An operator deletes an object that a controller owns; ``orphan``: its dependents stay without
    an owner."""

    at_s: float
    plane: str
    resource: str
    pick: int
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class EditObject:
    """An operator changes one label, one annotation, the owners or the spec of such an object."""

    at_s: float
    plane: str
    resource: str
    part: Literal["label", "annotation", "owner", "spec"]
    pick: int


@dataclass(frozen=True, slots=True)
class DeleteNamespace:
    """An operator deletes a namespace that the federation created, with its content."""

    at_s: float
    plane: str
    pick: int


@dataclass(frozen=True, slots=True)
class CreatePoison:
    """F27: an object that no controller expects, which every watcher of its kind receives."""

    at_s: float
    plane: str
    resource: str


@dataclass(frozen=True, slots=True)
class FleetingNamespace:
    """A user creates a namespace with a workload in it, and deletes the namespace after a while."""

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
