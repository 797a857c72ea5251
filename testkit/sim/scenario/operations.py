"""What people do to the platform, as plain values with a virtual time.

Users work on their workloads; an operator tampers with what controllers own. Every value makes
sense whatever the others did: a change to a workload that is not there is passed over, and what
an operator picks is an index into what there is at that moment. So each can be left out alone.

To add one: a value here, a line in ``Operation``, a case in ``users.py``.

What operators do to much at once. Values as in ``operations.py``, which lists them;
``users.py`` carries them out.

What operators do to the cells themselves. Values as in ``operations.py``, which lists them;
``operators.py`` carries them out, those of one city one after the other. They mean
something in worlds whose cells have joined only.

What operators, providers and users do to projects and their access to compute.

Values as in ``operations.py``, which lists them; ``operators.py`` carries them out, those of
one project one after the other.

What has to do with sleep: users who ask for it, and visitors who disturb it.

Values as in ``operations.py``, which lists them; ``users.py`` and ``visitors.py`` carry them out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from datum_compute.api.scaletozero import SleepMode


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


@dataclass(frozen=True, slots=True)
class CreateProject:
    """A project that was not there at first; its plane comes while the world runs."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class GateCompute:
    """From now on the provider is asked, or is not; the project only says whose turn it is."""

    at_s: float
    project: str
    gated: bool


@dataclass(frozen=True, slots=True)
class RequestAccess:
    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class Decide:
    """What the provider says of the project's request, if there is one."""

    at_s: float
    project: str
    decision: Literal["Approved", "Denied", "Suspended", "Resumed", "Removed"]


@dataclass(frozen=True, slots=True)
class RenewAccess:
    """The request is deleted and made anew."""

    at_s: float
    project: str


@dataclass(frozen=True, slots=True)
class DeployIn:
    """A workload, if the project has access; asked for a while, because access may be coming."""

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
    """From now on the instances sleep when nobody is connected; with a new image, as any change."""

    at_s: float
    project: str
    name: str
    image: str
    idle_ms: int
    mode: SleepMode


@dataclass(frozen=True, slots=True)
class Visit:
    """Connections to one of the ports that a cell has published, one after the other or all at
    once; only of worlds whose layout publishes any."""

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
