"""A controller as a value: what it is for, what wakes it, and its reconcile function.

    CONTROLLER = Controller(
        name="workload",
        role="project",
        reconcile=reconcile,
        edges=(
            for_(WORKLOAD),
            owns(DEPLOYMENT),
            watches(DEPLOYMENT, to_project_key, on="hub"),
            reads(NAMESPACE),
        ),
        finalizers=("example.com/cleanup",),
    )

An edge is a kind that a controller looks at, and how its changes become keys:

- ``for_``: each object is a key.
- ``owns``: a child wakes the object of that kind that controls it, before and after the change.
- ``watches``: a mapping function names the keys: one, none or many. With ``expects_one`` the edge
  has a name; each change is counted as one, none or many, and the latter two are reported.
- ``reads``: nobody is woken; another edge must see to that.

``on`` is the role of the planes that are looked at, the controller's own if it is left out.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.runtime.cache import Index
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Outcome
from datum_compute.runtime.queue import LANE_MAX, plane_of
from datum_compute.runtime.view import View

C = TypeVar("C")
T = TypeVar("T", bound=ApiObject)

Mapping = Callable[[View, Change[Any]], Iterable[Key]]


@dataclass(frozen=True, slots=True)
class Edge:
    """Changes of ``kind`` on planes of the role ``on`` wake the keys that ``to_keys`` names.

    Without ``to_keys`` the owner is woken, which the controller's own kind decides.
    """

    kind: KindInfo[Any]
    to_keys: Mapping | None
    on: str = ""
    expects_one: str = ""
    is_own: bool = False


@dataclass(frozen=True, slots=True)
class Controller(Generic[C]):
    """``reconcile`` is given keys of planes of ``role``, never one twice at once.

    Without ``for_`` nothing but the other edges and ``outside`` wakes it.
    """

    name: str
    role: str
    reconcile: Callable[[C, Key], Awaitable[Outcome]]
    edges: tuple[Edge, ...] = ()
    # Lookups beyond namespace, label and owner.
    indexes: tuple[Index[Any], ...] = ()
    # What this controller holds objects back with; a plane is drained when none of them is left.
    finalizers: tuple[str, ...] = ()
    # Wake-ups that are not API objects (a driver's machines), per plane of the role.
    outside: Callable[[C, View], AsyncIterator[Key]] | None = None
    # How many reconciles of one lane run at once, and how long one may take.
    workers: int = 2
    timeout_s: float = 60.0
    # Keys that suffer from the slowness of the same plane share a lane: by default the plane of
    # the key. A controller that works on other planes than that says which.
    lane: Callable[[Key], str] = plane_of
    lane_max: int = LANE_MAX

    @property
    def kind(self) -> KindInfo[Any] | None:
        """The kind whose objects are the keys."""
        return next((edge.kind for edge in self.edges if edge.is_own), None)

    def sources(self, role: str) -> list[Edge]:
        """What is looked at on planes of a role."""
        return [edge for edge in self.edges if (edge.on or self.role) == role]

    def keys(self, edge: Edge, view: View, change: Change[Any]) -> Iterable[Key]:
        """The keys that a change wakes along an edge."""
        if edge.to_keys is not None:
            return edge.to_keys(view, change)
        owner = self.kind
        assert owner is not None, f"{self.name} owns {edge.kind.plural} but is for no kind"
        return _owners(view, change, owner)


def for_(kind: KindInfo[Any], *, on: str = "") -> Edge:
    """The kind the controller is for: each object is a key."""
    return Edge(kind, own_key, on=on, is_own=True)


def owns(kind: KindInfo[Any], *, on: str = "") -> Edge:
    """Children wake the object of the controller's kind that controls them."""
    return Edge(kind, None, on=on)


def watches(kind: KindInfo[T], to_keys: Mapping, *, on: str = "", expects_one: str = "") -> Edge:
    return Edge(kind, to_keys, on=on, expects_one=expects_one)


def reads(kind: KindInfo[Any], *, on: str = "") -> Edge:
    """The kind is read, but its changes wake nobody: another edge must."""
    return Edge(kind, _nobody, on=on)


def own_key(view: View, change: Change[Any]) -> Iterable[Key]:
    """The changed object itself."""
    return (Key(view.plane, ref_of(change.latest)),)


def _nobody(_view: View, _change: Change[Any]) -> Iterable[Key]:
    return ()


def _owners(view: View, change: Change[Any], owner: KindInfo[Any]) -> Iterable[Key]:
    """Also the owner that a child has just lost."""
    for child in filter(None, (change.new, change.old)):
        for reference in child.metadata.owner_references:
            if reference.controller and reference.kind == owner.kind:
                namespace = child.metadata.namespace if owner.namespaced else ""
                yield Key(view.plane, Ref(namespace, reference.name))
