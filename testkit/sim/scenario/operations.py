"""Operations of users and operators, as plain values with a virtual time.

Users change their workloads; an operator changes objects that controllers own. Each operation is
valid without the others: a change to a workload that does not exist is skipped, and an operator
selects an object by an index (``pick``) into the objects that exist at that time. So each operation
can be left out.

Groups: operations on many objects at once, on cells (only in worlds whose cells join; those of one
city are performed in order), on projects and their access (in order for each project), and sleep
with visits.

To add one: a value here, a line in ``Operation``, and a case in ``users.py``, ``operators.py`` or
``visitors.py``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from datum_compute.api.compute.scale_to_zero import SleepMode


@dataclass(frozen=True, slots=True)
class DeleteAll:
    """F12, F34: delete all objects of a kind whose names have a prefix. Stands for a selector that
    matches too much, and a set that is suddenly empty."""

    at_s: float
    plane: str
    resource: str
    prefix: str


@dataclass(frozen=True, slots=True)
class DropField:
    """F31: an old client writes an object back without a field that it does not support."""

    at_s: float
    plane: str
    resource: str
    pick: int


@dataclass(frozen=True, slots=True)
class RevokeProject:
    """F32: remove the plane of a project with its workloads. Only for projects that are
    ``revocable`` in the layout."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class DrainCell:
    """Place nothing new on a cell for a while; existing placements stay."""

    at_s: float
    cell: str
    for_s: float


ComposedOperation = DeleteAll | DropField | RevokeProject | DrainCell


@dataclass(frozen=True, slots=True)
class LeaveCell:
    """A cell leaves, and ``away_s`` later ``heir`` joins for its city: the same cell or a spare.
    With ``forced`` the hub does not wait for an unreachable cell. The cell is then stopped and
    comes back empty or, with ``kept``, unchanged."""

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
    """Register a spare for a city that has a cell. After a while one of them leaves: the spare, or
    the first cell if the spare ``stays``."""

    at_s: float
    cell: str
    for_s: float
    stays: bool


@dataclass(frozen=True, slots=True)
class MoveCity:
    """Move the city label of a cell to a spare. After a while the labels are swapped back, whatever
    the state of the move."""

    at_s: float
    cell: str
    for_s: float


OnCells = LeaveCell | SecondCell | MoveCity


@dataclass(frozen=True, slots=True)
class CreateProject:
    """Create a project that did not exist at first; its plane is created while the world runs."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class GateCompute:
    """From now on access needs the decision of the provider, or no longer needs it."""

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
    """Delete the request for access and create it again."""

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


@dataclass(frozen=True, slots=True)
class SuspendProject:
    """The provider suspends a project that exists from the beginning, for a while or for ever."""

    at_s: float
    project: str
    for_s: float


OnProjects = (
    CreateProject
    | GateCompute
    | RequestAccess
    | Decide
    | RenewAccess
    | DeployIn
    | DeleteProject
    | SuspendProject
)


@dataclass(frozen=True, slots=True)
class LetSleep:
    """From now on the instances sleep while they have no connections. The change also sets a new
    image."""

    at_s: float
    project: str
    name: str
    image: str
    idle_ms: int
    mode: SleepMode


@dataclass(frozen=True, slots=True)
class Visit:
    """Connect to one of the ports that a cell publishes, ``count`` times, one after the other or
    all at once. Only in worlds with published ports."""

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
    """Create a workload, also with a name that is being deleted (F32): retried until it is
    accepted."""

    at_s: float
    project: str
    name: str
    image: str
    replicas: int
    cities: tuple[str, ...]
    placement: str = "default"


@dataclass(frozen=True, slots=True)
class ChangeImage:
    at_s: float
    project: str
    name: str
    image: str


@dataclass(frozen=True, slots=True)
class ScaleWorkload:
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
class AllowSurge:
    """From now on rollouts use these limits, as numbers or percentages, and this policy. None is
    the default."""

    at_s: float
    project: str
    name: str
    max_surge: int | str | None
    max_unavailable: int | str | None
    policy: Literal["OrderedReady", "Parallel"]


@dataclass(frozen=True, slots=True)
class OrderCities:
    """From now on cities get a new template in this order."""

    at_s: float
    project: str
    name: str
    order: Literal["Parallel", "Sequential", "CanaryCity"]
    on_failure: Literal["Stop", "Rollback"]
    deadline_s: int
    paused: bool = False


@dataclass(frozen=True, slots=True)
class RestartCity:
    """Replace the instances in one city, as ``rollout restart --city`` does. Without effect if the
    workload does not list the city."""

    at_s: float
    project: str
    name: str
    city: str


@dataclass(frozen=True, slots=True)
class StopWorkload:
    """Stop the instances, which keep their identity."""

    at_s: float
    project: str
    name: str


@dataclass(frozen=True, slots=True)
class StartWorkload:
    at_s: float
    project: str
    name: str


@dataclass(frozen=True, slots=True)
class RestartWorkload:
    """Replace each instance of the workload, as ``rollout restart`` does."""

    at_s: float
    project: str
    name: str


@dataclass(frozen=True, slots=True)
class UndoRollout:
    """Restore the template before the last change, as ``rollout undo`` does."""

    at_s: float
    project: str
    name: str


@dataclass(frozen=True, slots=True)
class MoveWorkload:
    """Change the cities; instances in other cities must be deleted."""

    at_s: float
    project: str
    name: str
    cities: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AllowFallback:
    """If one of its cities fails, the given cities may replace it after ``after_s``."""

    at_s: float
    project: str
    name: str
    cities: tuple[str, ...]
    after_s: int


@dataclass(frozen=True, slots=True)
class MoveBack:
    """Move replicas from a fallback city back to their own city."""

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
    """Delete the project's data, and create it again with other content some time later."""

    at_s: float
    project: str
    name: str
    away_s: float
    number: int


@dataclass(frozen=True, slots=True)
class DeleteWorkload:
    """Delete a workload. ``orphan``: with ``--cascade=orphan``, which must leave nothing, too."""

    at_s: float
    project: str
    name: str
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class DeleteObject:
    """Delete an object that a controller owns, as an operator. ``orphan``: its dependents stay
    without an owner."""

    at_s: float
    plane: str
    resource: str
    pick: int
    orphan: bool = False


@dataclass(frozen=True, slots=True)
class EditObject:
    """Change one label, one annotation, the owners or the spec of such an object, as an
    operator."""

    at_s: float
    plane: str
    resource: str
    part: Literal["label", "annotation", "owner", "spec"]
    pick: int


@dataclass(frozen=True, slots=True)
class DeleteNamespace:
    """Delete a namespace that the federation created, with its content, as an operator."""

    at_s: float
    plane: str
    pick: int


@dataclass(frozen=True, slots=True)
class CreatePoison:
    """F27: create an object that no controller expects; every watcher of its kind receives it."""

    at_s: float
    plane: str
    resource: str


@dataclass(frozen=True, slots=True)
class FleetingNamespace:
    """Create a namespace with a workload in it, and delete the namespace after a while, as a
    user."""

    at_s: float
    project: str
    name: str
    cities: tuple[str, ...]
    for_s: float


_Changes = (
    ChangeImage
    | ScaleWorkload
    | RollCarefully
    | AllowSurge
    | OrderCities
    | RestartCity
    | StopWorkload
    | StartWorkload
    | RestartWorkload
    | MoveWorkload
    | AllowFallback
    | MoveBack
    | ReferToData
    | LetSleep
)
ByUser = CreateWorkload | _Changes | UndoRollout | ReplaceData | DeleteWorkload
ByOperator = DeleteObject | EditObject | DeleteNamespace | CreatePoison | ComposedOperation
Operation = ByUser | ByOperator | FleetingNamespace | OnProjects | OnCells | Visit
