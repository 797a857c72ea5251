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

The functions that make edges:

- ``for_``: each object of the kind is a key. This kind is the controller's primary kind.
- ``owns``: a changed object maps to the object of the primary kind that controls it, or did before
  the change.
- ``watches``: a function maps a change to any number of keys. ``must_map_to_one`` names an edge on
  which exactly one key is correct; the other outcomes are counted and reported.
- ``reads``: the controller reads the kind, and changes of it wake no key. Another edge must.

``on`` is the role of the planes that an edge watches. The default is the role of the controller.

Filters skip events that cannot change the outcome. ``update_filter`` compares two states of an
object, ``create_filter`` looks at a new one. Deletions are never filtered, and neither are the
objects found after a restart unless ``create_filter`` is given. A filter must accept every change
that the controller itself did not cause. ``spec_or_metadata_changed`` is the filter for controllers
that do not read the status.

A reconcile returns Done, Requeue or Terminal. If it raises, the key is retried with backoff.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.informer import ObjectChange

LANE_MAX = 50_000


class Key(NamedTuple):
    """``resource`` says of which kind, for controllers of more than one.

    The empty name is no plane, and nothing stands in for it: no queue takes such a key.
    """

    plane: PlaneName
    ref: Ref
    resource: str = ""

    def __str__(self) -> str:
        return f"{self.plane}:{self.resource and self.resource + '/'}{self.ref}"


def plane_of(key: Key) -> str:
    return key.plane


def namespace_of(key: Key) -> str:
    """Return the flow of a key. All objects without a namespace are one flow."""
    return key.ref.namespace


class Debounce(msgspec.Struct, frozen=True):
    """For a reconcile that looks at many objects: what wakes its key again soon is gathered.

    The key comes up when nothing has woken it for ``idle_s`` and nobody works on its plane, and at
    the latest ``max_s`` after the pass that asked for the pause. Nothing is lost, and a key that
    nobody wakes waits for nothing.
    """

    idle_s: float
    max_s: float

    def __post_init__(self) -> None:
        _check_finite(self.idle_s)
        _check_finite(self.max_s)


class Done(msgspec.Struct, frozen=True):
    """Settled until something changes."""

    debounce: Debounce | None = None


class Requeue(msgspec.Struct, frozen=True):
    """Look again after this many seconds (and up to a tenth more), or sooner if something
    changes. What should have been looked at in the past is looked at soon."""

    after_s: float
    debounce: Debounce | None = None

    def __post_init__(self) -> None:
        _check_finite(self.after_s)


class Terminal(msgspec.Struct, frozen=True):
    """Hopeless until the object itself changes.

    The reason is recorded and there is no retry. Neither a resync nor a change of any other
    object brings the key up again, only another version of the object it names, or its end.
    """

    message: str


Outcome = Done | Requeue | Terminal


def _check_finite(seconds: float) -> None:
    """Said where it is asked for: no timer takes a time that never comes."""
    if not math.isfinite(seconds):
        raise ValueError(f"{seconds} is no time to wait for; to wait for a change is Done()")


# For controllers of many small objects, each of which waits for a write or two: together their
# writes go to disk at once.
MANY_WORKERS = 32

C = TypeVar("C")
T = TypeVar("T", bound=ApiObject)

MapFunction = Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]
UpdateFilter = Callable[[Any, Any], bool]
CreateFilter = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class Edge:
    """Changes of ``kind`` on planes of the role ``on`` wake the keys that ``to_keys`` names.

    Without ``to_keys`` the owner is woken, which the controller's own kind decides.
    """

    kind: KindInfo[Any]
    to_keys: MapFunction | None
    on: str = ""
    must_map_to_one: str = ""
    is_primary: bool = False
    update_filter: UpdateFilter | None = None
    create_filter: CreateFilter | None = None

    @property
    def wakes(self) -> bool:
        """False for what is only read."""
        return self.to_keys is not _no_keys

    def matches(self, change: ObjectChange[Any]) -> bool:
        """Whether the change is one that matters along this edge."""
        old, new = change.old, change.new
        if new is None:
            return True
        if old is None:
            return self.create_filter is None or self.create_filter(new)
        return self.update_filter is None or self.update_filter(old, new)


@dataclass(frozen=True, slots=True)
class Controller(Generic[C]):
    """``reconcile`` is given keys of planes of ``role``, never one twice at once.

    Without ``for_`` nothing but the other edges and ``external_sources`` wakes it.
    """

    name: str
    role: str
    reconcile: Callable[[C, Key], Awaitable[Outcome]]
    edges: tuple[Edge, ...] = ()
    # Lookups beyond namespace, label and owner.
    indexes: tuple[Index[Any], ...] = ()
    # What this controller holds objects back with; a plane is removed when none of them is left.
    finalizers: tuple[str, ...] = ()
    # Wake-ups that are not API objects (a driver's machines), per plane of the role.
    external_sources: tuple[Callable[[C, CachedClient], AsyncIterator[Key]], ...] = ()
    # How many reconciles of one lane run at once, and how long one may take.
    workers: int = 2
    timeout_s: float = 60.0
    # Keys that suffer from the slowness of the same plane share a lane: by default the plane of
    # the key. A controller that works on other planes than that says which.
    lane: Callable[[Key], str] = plane_of
    lane_max: int = LANE_MAX
    # Flows take turns in a lane. By default the flow is the namespace of the key. If that does not
    # identify the project, this names one of ``indexes`` that does.
    flow_index: str = ""
    # Works only on those planes of its role that are engaged as entitled to what it does.
    entitled_only: bool = False
    # The deployment modes in which the controller runs; empty: all of them.
    modes: tuple[str, ...] = ()

    @property
    def kind(self) -> KindInfo[Any] | None:
        """The kind whose objects are the keys."""
        return next((edge.kind for edge in self.edges if edge.is_primary), None)

    def edges_on(self, role: str) -> list[Edge]:
        """What is looked at on planes of a role."""
        return [edge for edge in self.edges if (edge.on or self.role) == role]

    def keys(self, edge: Edge, view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        """The keys that a change wakes along an edge."""
        if edge.to_keys is not None:
            return edge.to_keys(view, change)
        owner = self.kind
        assert owner is not None, f"{self.name} owns {edge.kind.plural} but is for no kind"
        return _owner_keys(view, change, owner)


def for_(
    kind: KindInfo[Any],
    *,
    on: str = "",
    update_filter: UpdateFilter | None = None,
    create_filter: CreateFilter | None = None,
) -> Edge:
    """The kind the controller is for: each object is a key."""
    return Edge(
        kind,
        own_key,
        on=on,
        is_primary=True,
        update_filter=update_filter,
        create_filter=create_filter,
    )


def owns(kind: KindInfo[Any], *, on: str = "", update_filter: UpdateFilter | None = None) -> Edge:
    """Children wake the object of the controller's kind that controls them."""
    return Edge(kind, None, on=on, update_filter=update_filter)


def watches(
    kind: KindInfo[T],
    to_keys: MapFunction,
    *,
    on: str = "",
    must_map_to_one: str = "",
    update_filter: UpdateFilter | None = None,
    create_filter: CreateFilter | None = None,
) -> Edge:
    return Edge(
        kind,
        to_keys,
        on=on,
        must_map_to_one=must_map_to_one,
        update_filter=update_filter,
        create_filter=create_filter,
    )


def spec_or_metadata_changed(old: ApiObject, new: ApiObject) -> bool:
    """Whether more than the status differs."""
    before, after = old.metadata, new.metadata
    return (
        before.generation != after.generation
        or before.deletion_timestamp != after.deletion_timestamp
        or before.finalizers != after.finalizers
        or before.labels != after.labels
        or before.annotations != after.annotations
        or before.owner_references != after.owner_references
    )


def reads(kind: KindInfo[Any], *, on: str = "") -> Edge:
    """The kind is read, but its changes wake nobody: another edge must."""
    return Edge(kind, _no_keys, on=on)


def own_key(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """The changed object itself."""
    return (Key(view.plane, ref_of(change.latest)),)


def _no_keys(_view: CachedClient, _change: ObjectChange[Any]) -> Iterable[Key]:
    return ()


def _owner_keys(
    view: CachedClient, change: ObjectChange[Any], owner: KindInfo[Any]
) -> Iterable[Key]:
    """Also the owner that a child has just lost."""
    metadata = change.latest.metadata
    references = metadata.owner_references
    if change.old is not None and change.old.metadata.owner_references != references:
        references = [*references, *change.old.metadata.owner_references]
    namespace = metadata.namespace if owner.namespaced else ""
    return [
        Key(view.plane, Ref(namespace, reference.name))
        for reference in references
        if reference.controller and reference.kind == owner.kind
    ]
