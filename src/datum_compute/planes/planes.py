"""The planes that are engaged now, by role."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from datum_compute.api.plane import HUB, PlaneName, cell_plane, project_plane
from datum_compute.runtime.event_recorder import EventRequest
from datum_compute.runtime.outcome import NotSynced
from datum_compute.runtime.cached_client import CachedClient


def untold(_notice: EventRequest) -> None:
    """Nobody records events."""


class Planes:
    """Lookups never fall back to another plane than the one that was named.

    ``tell`` takes what users of a plane should know; it never waits and never fails.
    ``unreleased`` are finalizers that nobody here would ever take off: they are not put on.
    """

    def __init__(
        self,
        engaged_view: Callable[[PlaneName], CachedClient | None],
        engaged: Callable[[], Sequence[PlaneName]] = tuple,
        tell: Callable[[EventRequest], None] = untold,
        unreleased: frozenset[str] = frozenset(),
    ) -> None:
        self._engaged_view = engaged_view
        self._engaged = engaged
        self.tell = tell
        self.unreleased = unreleased

    def engaged(self) -> Sequence[PlaneName]:
        """Those that there are at this moment, in order."""
        return self._engaged()

    def find(self, plane: PlaneName) -> CachedClient | None:
        assert plane, "the empty name is no plane"
        return self._engaged_view(plane)

    def need(self, plane: PlaneName) -> CachedClient:
        """The plane; one that is not engaged is no reason to act, only to look again."""
        view = self.find(plane)
        if view is None:
            raise NotSynced(f"{plane} is not engaged")
        return view

    @property
    def hub(self) -> CachedClient:
        return self.need(HUB)

    def project(self, name: str) -> CachedClient | None:
        return self.find(project_plane(name))

    def cell(self, name: str) -> CachedClient | None:
        return self.find(cell_plane(name))
