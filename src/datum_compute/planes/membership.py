"""Which planes of projects the controllers of this process work on.

A project is engaged while there is one, so that its namespaces, networks and entitlements are kept;
controllers that are for entitled projects only see it while it is entitled. To change between the
two is to disengage and to engage: whatever the controllers knew is read anew.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from datum_compute.api.plane import PlaneName
from datum_compute.client.client import Client
from datum_compute.runtime.manager import Manager

Reach = Callable[[PlaneName], Awaitable[Client]]


class ProjectMembership:
    """``reach`` gives the client with which controllers work on a plane."""

    def __init__(self, manager: Manager[Any], reach: Reach) -> None:
        self._manager = manager
        self._reach = reach

    @property
    def uses_entitlement(self) -> bool:
        """Whether controllers of this process care who is entitled."""
        return self._manager.uses_entitlement

    def is_engaged(self, plane: PlaneName) -> bool:
        return self._manager.cached_client(plane) is not None

    def is_entitled(self, plane: PlaneName) -> bool:
        return self._manager.is_entitled(plane)

    async def engage(self, plane: PlaneName, *, entitled: bool) -> None:
        """From now on, in this way; nothing changes if it is so already."""
        if self._is_so(plane, entitled=entitled):
            return
        client = await self._reach(plane)
        if self._is_so(plane, entitled=entitled):
            return  # somebody else was quicker
        self._manager.disengage(plane)
        self._manager.engage(plane, client, entitled=entitled)

    def disengage(self, plane: PlaneName) -> None:
        self._manager.disengage(plane)

    def _is_so(self, plane: PlaneName, *, entitled: bool) -> bool:
        if not self.is_engaged(plane):
            return False
        return not self.uses_entitlement or self.is_entitled(plane) == entitled
