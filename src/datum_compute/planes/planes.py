"""The planes that are engaged now, by role."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from datum_compute.api.plane import HUB, PlaneName, cell_plane, project_plane
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.event_recorder import EventRequest


def discard_event(_notice: EventRequest) -> None:
    """Nobody records events."""


class Planes:
    """Lookups never fall back to another plane than the one that was named.

    ``record_event`` takes what users of a plane should know; it never waits and never fails.
    ``unmanaged_finalizers`` are finalizers that nobody here would ever take off: they are not put on.
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
