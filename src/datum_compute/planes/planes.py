"""The planes that are engaged now, by role.

From what lies on the hub back to the project it is from, by the two identity labels.

The part of the hub and of a project that a joined cell looks at, told by labels.

The server lets a cell see nothing else (server/access/slices.py); a hub that is not ours is asked
for no more than that all the same.

Whether a plane holds an object, as whoever serves the plane knows without a request.

At every start each plane is asked for dozens of objects that nearly always are there.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from datum_compute.api import labels
from datum_compute.api.identity import decoded_project, normalized_city
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE
from datum_compute.api.meta import KindInfo, Ref
from datum_compute.api.plane import HUB, PlaneName, cell_plane, project_plane
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient, LabelScope
from datum_compute.runtime.controller import Key
from datum_compute.runtime.event_recorder import EventRequest


def discard_event(_notice: EventRequest) -> None:
    """Nobody records events."""


class Planes:
    """Lookups never fall back to another plane than the one that was named.

    ``record_event`` takes what users of a plane should know; it never waits and never fails.
    ``unmanaged_finalizers`` are not added, because no controller here would remove them.
    """

    def __init__(
        self,
        cached_client: Callable[[PlaneName], CachedClient | None],
        engaged: Callable[[], Sequence[PlaneName]] = tuple,
        record_event: Callable[[EventRequest], None] = discard_event,
        unmanaged_finalizers: frozenset[str] = frozenset(),
    ) -> None:
        self._cached_client = cached_client
        self._engaged = engaged
        self.record_event = record_event
        self.unmanaged_finalizers = unmanaged_finalizers

    def engaged(self) -> Sequence[PlaneName]:
        """Those that there are at this moment, in order."""
        return self._engaged()

    def get(self, plane: PlaneName) -> CachedClient | None:
        assert plane, "the empty name is no plane"
        return self._cached_client(plane)

    def require(self, plane: PlaneName) -> CachedClient:
        """The plane; one that is not engaged is no reason to act, only to look again."""
        view = self.get(plane)
        if view is None:
            raise NotSynced(f"{plane} is not engaged")
        return view

    @property
    def hub(self) -> CachedClient:
        return self.require(HUB)

    def project(self, name: str) -> CachedClient | None:
        return self.get(project_plane(name))

    def cell(self, name: str) -> CachedClient | None:
        return self.get(cell_plane(name))


def upstream_key(identity: Mapping[str, str], name: str) -> Key | None:
    """The object of that name in the project and namespace the labels speak of, if they do."""
    project = decoded_project(identity.get(labels.UPSTREAM_CLUSTER, ""))
    namespace = identity.get(labels.UPSTREAM_NAMESPACE)
    if not project or not namespace:
        return None
    return Key(project_plane(project), Ref(namespace, name))


def hub_label_scope(cell: str, city: str) -> LabelScope:
    return {
        DEPLOYMENT.resource: {labels.TOPOLOGY_CITY: normalized_city(city)},
        INSTANCE.resource: {labels.CELL: cell},
    }


def project_label_scope(cell: str) -> LabelScope:
    return {CLAIM.resource: {labels.SOURCE_CLUSTER: cell}}


ExistenceCheck = Callable[[KindInfo[Any], Ref], bool]


def assume_missing(_kind: KindInfo[Any], _ref: Ref) -> bool:
    """For planes that are served elsewhere: whatever is there already shows when it is made."""
    return False
