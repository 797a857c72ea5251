"""Controller: a reconcile function, the edges that enqueue its keys, and its outcomes.

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

An edge names a kind that the controller reads and maps its changes to keys. A key names an object
and the plane that holds it.

The functions that make edges:

- ``for_``: each object of the kind is a key. This kind is the controller's primary kind.
- ``owns``: a changed object maps to the object of the primary kind that controls it, or did before
  the change.
- ``watches``: a function maps a change to any number of keys. ``must_map_to_one`` names an edge on
  which exactly one key is correct; the other outcomes are counted and reported.
- ``reads``: the controller reads the kind, and its changes enqueue no key. Use it for kinds whose
  changes need no reconcile, or reach the controller through another edge.

``on`` is the role of the planes that an edge watches. The default is the role of the controller.
``namespace`` restricts an edge to one namespace. If no controller reads others, the process lists
and watches only that namespace.

Filters skip events that need no reconcile. ``update_filter`` compares two states of an object,
``create_filter`` checks a new one; all objects found at the start of the process count as new.
Deletions are never skipped. A wrong filter delays a controller; it cannot cause a wrong decision,
because each reconcile reads the current state. ``predicates.py`` contains the standard filters.

A reconcile returns Done, Requeue or Terminal. If it raises, the key is retried with backoff.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import CreateFilter, UpdateFilter

C = TypeVar("C")
T = TypeVar("T", bound=ApiObject)

# A lane with this many keys rejects new ones (see ``queue.py``).
LANE_MAX = 50_000
# Concurrent reconciles for controllers of many small objects, which mostly wait for their writes.
# The store then commits many of these writes together.
MANY_WORKERS = 32


class Key(NamedTuple):
    """An object on a plane. ``resource`` is set by controllers with several primary kinds.

    The name of the plane must not be empty; there is no default plane.
    """

    plane: PlaneName
    ref: Ref
    resource: str = ""

    def __str__(self) -> str:
        return f"{self.plane}:{self.resource and self.resource + '/'}{self.ref}"


def plane_of(key: Key) -> str:
    """Return the default lane of a key."""
    return key.plane


def namespace_of(key: Key) -> str:
    """Return the default flow of a key. All objects without a namespace are one flow."""
    return key.ref.namespace


class Debounce(msgspec.Struct, frozen=True):
    """Coalesce the next events of the key into one reconcile (see ``debounce.py``).

    For reconciles that aggregate many objects. If an event arrives within ``max_s``, the key is
    reconciled once it has received no event for ``idle_s``, and after ``max_s`` at the latest.
    """

    idle_s: float
    max_s: float

    def __post_init__(self) -> None:
        _check_finite(self.idle_s)
        _check_finite(self.max_s)


class Done(msgspec.Struct, frozen=True):
    """Reconcile again after the next event."""

    debounce: Debounce | None = None


class Requeue(msgspec.Struct, frozen=True):
    """Reconcile again after ``after_s`` plus up to 10 % jitter, or after the next event.

    A delay that is zero or negative becomes 10 ms.
    """

    after_s: float
    debounce: Debounce | None = None

    def __post_init__(self) -> None:
        _check_finite(self.after_s)


class Terminal(msgspec.Struct, frozen=True):
    """Reconcile again only after the object named by the key has changed or been deleted.

    The message is logged. Events of other objects and resyncs are ignored.
    """

    message: str


Outcome = Done | Requeue | Terminal


def _check_finite(seconds: float) -> None:
    if not math.isfinite(seconds):
        raise ValueError(f"delay must be finite, not {seconds}; use Done() to wait for an event")


MapFunction = Callable[[CachedClient, ObjectChange[Any]], Iterable[Key]]


@dataclass(frozen=True, slots=True)
class Edge:
    """Maps changes of ``kind`` on planes of the role ``on`` to keys.

    If ``to_keys`` is None, a change maps to the owners of the primary kind.
    """

    kind: KindInfo[Any]
    to_keys: MapFunction | None
    on: str = ""
    must_map_to_one: str = ""
    is_primary: bool = False
    update_filter: UpdateFilter | None = None
    create_filter: CreateFilter | None = None
    namespace: str = ""

    @property
    def enqueues(self) -> bool:
        """False for ``reads``."""
        return self.to_keys is not _no_keys

    def matches(self, change: ObjectChange[Any]) -> bool:
        """Return False if a filter skips the change."""
        old, new = change.old, change.new
        if new is None:
            return True
        if old is None:
            return self.create_filter is None or self.create_filter(new)
        return self.update_filter is None or self.update_filter(old, new)


@dataclass(frozen=True, slots=True)
class Controller(Generic[C]):
    """``reconcile`` receives keys on planes of ``role``. A key is never reconciled concurrently."""

    name: str
    role: str
    reconcile: Callable[[C, Key], Awaitable[Outcome]]
    edges: tuple[Edge, ...] = ()
    # Indexes besides namespace, label and owner.
    indexes: tuple[Index[Any], ...] = ()
    # Finalizers that this controller adds. Objects with one of them are deleted before their plane.
    finalizers: tuple[str, ...] = ()
    # Functions that are called for each plane of the role and yield keys from a source other than
    # API objects, such as the machines of a driver.
    external_sources: tuple[Callable[[C, CachedClient], AsyncIterator[Key]], ...] = ()
    # Concurrent reconciles in each lane, and the time limit of a reconcile.
    workers: int = 2
    timeout_s: float = 60.0
    # Returns the lane of a key, by default its plane. Keys that depend on the same plane share a
    # lane, so that a slow plane delays no other keys. A controller that works on other planes than
    # those of its keys returns the name of that plane.
    lane: Callable[[Key], str] = plane_of
    lane_max: int = LANE_MAX
    # The keys of a lane are grouped into flows, which take turns. By default the flow is the
    # namespace of the key. If the namespace does not identify the project, this names one of
    # ``indexes`` whose value does.
    flow_index: str = ""
    # Run only on planes that are engaged as entitled.
    entitled_only: bool = False
    # The deployment modes in which the controller runs; empty: all of them.
    modes: tuple[str, ...] = ()

    @property
    def kind(self) -> KindInfo[Any] | None:
        """The primary kind: its objects are the keys."""
        return next((edge.kind for edge in self.edges if edge.is_primary), None)

    def edges_on(self, role: str) -> list[Edge]:
        """Return the edges that watch planes of a role."""
        return [edge for edge in self.edges if (edge.on or self.role) == role]

    def keys(self, edge: Edge, client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        if edge.namespace and edge.namespace != change.latest.metadata.namespace:
            return ()
        if edge.to_keys is not None:
            return edge.to_keys(client, change)
        owner = self.kind
        assert owner is not None, f"{self.name} owns {edge.kind.plural} but has no primary kind"
        return _owner_keys(client, change, owner)


def for_(
    kind: KindInfo[Any],
    *,
    on: str = "",
    update_filter: UpdateFilter | None = None,
    create_filter: CreateFilter | None = None,
) -> Edge:
    """Return the edge of the primary kind: each object is a key."""
    return Edge(
        kind,
        own_key,
        on=on,
        is_primary=True,
        update_filter=update_filter,
        create_filter=create_filter,
    )


def owns(kind: KindInfo[Any], *, on: str = "", update_filter: UpdateFilter | None = None) -> Edge:
    """Return an edge from a kind to the object of the primary kind that controls it."""
    return Edge(kind, None, on=on, update_filter=update_filter)


def watches(
    kind: KindInfo[T],
    to_keys: MapFunction,
    *,
    on: str = "",
    must_map_to_one: str = "",
    update_filter: UpdateFilter | None = None,
    create_filter: CreateFilter | None = None,
    namespace: str = "",
) -> Edge:
    return Edge(
        kind,
        to_keys,
        on=on,
        must_map_to_one=must_map_to_one,
        update_filter=update_filter,
        create_filter=create_filter,
        namespace=namespace,
    )


def reads(kind: KindInfo[Any], *, on: str = "") -> Edge:
    """Declare a kind that is read. Its changes enqueue no key."""
    return Edge(kind, _no_keys, on=on)


def own_key(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a change to the changed object."""
    return (Key(client.plane, ref_of(change.latest)),)


def _no_keys(_client: CachedClient, _change: ObjectChange[Any]) -> Iterable[Key]:
    return ()


def _owner_keys(
    client: CachedClient, change: ObjectChange[Any], owner: KindInfo[Any]
) -> Iterable[Key]:
    """Return the controlling owners before and after the change."""
    metadata = change.latest.metadata
    references = metadata.owner_references
    if change.old is not None and change.old.metadata.owner_references != references:
        references = [*references, *change.old.metadata.owner_references]
    namespace = metadata.namespace if owner.namespaced else ""
    return [
        Key(client.plane, Ref(namespace, reference.name))
        for reference in references
        if reference.controller and reference.kind == owner.kind
    ]
