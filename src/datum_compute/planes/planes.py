"""The engaged planes by role, and what controllers derive from the identity of a plane.

- ``upstream_key`` maps the identity labels of an object on the hub to the object of its project.
- A label scope selects the part of the hub or of a project that a joined cell reads. The embedded
  server enforces it (server/access/cell_authorizer.py). Other API servers do not, so the cell
  itself requests only this part.
- An ``ExistenceCheck`` saves requests at startup: a process that serves a plane can look up whether
  an object exists.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import CLAIM, DEPLOYMENT, INSTANCE
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.planes import (
    HUB,
    PlaneName,
    cell_plane,
    decode_project_label,
    normalize_city,
    project_plane,
)
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient, LabelScope
from datum_compute.runtime.controller import Key
from datum_compute.runtime.event_recorder import EventRequest

ExistenceCheck = Callable[[KindInfo[Any], Ref], bool]


def assume_missing(_kind: KindInfo[Any], _ref: Ref) -> bool:
    """Return False: the check for planes of other servers, where a create detects the conflict."""
    return False


def discard_event(_request: EventRequest) -> None:
    """Drop the event: the default if there is no recorder."""


class Planes:
    """Access to the engaged planes. Lookups never fall back to another plane.

    ``record_event`` records an event for users; it never waits and never fails.
    ``unmanaged_finalizers`` are not added, because no controller here would remove them.
    """

    def __init__(
        self,
        cached_client: Callable[[PlaneName], CachedClient | None],
        engaged_planes: Callable[[], Sequence[PlaneName]] = tuple,
        record_event: Callable[[EventRequest], None] = discard_event,
        unmanaged_finalizers: frozenset[str] = frozenset(),
    ) -> None:
        self._cached_client = cached_client
        self._engaged_planes = engaged_planes
        self.record_event = record_event
        self.unmanaged_finalizers = unmanaged_finalizers

    def engaged_planes(self) -> Sequence[PlaneName]:
        """Return the names of the engaged planes in sorted order."""
        return self._engaged_planes()

    def get(self, plane: PlaneName) -> CachedClient | None:
        assert plane, "the name of the plane is empty"
        return self._cached_client(plane)

    def require(self, plane: PlaneName) -> CachedClient:
        """Return the client of the plane. Raise NotSynced if the plane is not engaged."""
        client = self.get(plane)
        if client is None:
            raise NotSynced(f"{plane} is not engaged")
        return client

    @property
    def hub(self) -> CachedClient:
        return self.require(HUB)

    def project(self, name: str) -> CachedClient | None:
        return self.get(project_plane(name))

    def cell(self, name: str) -> CachedClient | None:
        return self.get(cell_plane(name))


def upstream_key(identity: Mapping[str, str], name: str) -> Key | None:
    """Return the key of the object ``name`` in the project and namespace of the identity labels.

    Return None if a label is missing or invalid.
    """
    project = decode_project_label(identity.get(labels.UPSTREAM_CLUSTER, ""))
    namespace = identity.get(labels.UPSTREAM_NAMESPACE)
    if not project or not namespace:
        return None
    return Key(project_plane(project), Ref(namespace, name))


def hub_label_scope(cell: str, city: str) -> LabelScope:
    """Return the scope of a joined cell on the hub: deployments of its city, its own instances."""
    return {
        DEPLOYMENT.resource: {labels.TOPOLOGY_CITY: normalize_city(city)},
        INSTANCE.resource: {labels.CELL: cell},
    }


def project_label_scope(cell: str) -> LabelScope:
    """Return the scope of a joined cell on a project: the quota claims of the cell."""
    return {CLAIM.resource: {labels.SOURCE_CLUSTER: cell}}
