"""Membership: the planes of projects on which the controllers of this process run.

A project is engaged while it exists, so that its namespaces, networks and entitlements are
reconciled. Controllers with ``entitled_only`` run on it only while it is entitled. A change of
entitlement disengages and engages the plane, so that all its caches are filled again.

A project that loses access is suspended. While it has workloads it counts as entitled, so that its
controllers can stop the instances.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from datum_compute.api.planes import PlaneName
from datum_compute.client.client import Client
from datum_compute.runtime.cached_client import LabelScope
from datum_compute.runtime.manager import Manager

Reach = Callable[[PlaneName], Awaitable[Client]]


class ProjectMembership:
    """The engaged, entitled and suspended planes of projects.

    ``reach`` returns the client with which controllers access a plane. With ``scope`` they read
    only the objects of a project that have its labels. ``follows_platform`` is True if the projects
    of the process are those that the platform plane contains, and not a list in its configuration.
    """

    def __init__(
        self,
        manager: Manager[Any],
        reach: Reach,
        scope: LabelScope | None = None,
        *,
        follows_platform: bool = False,
    ) -> None:
        self.follows_platform = follows_platform
        self._manager = manager
        self._reach = reach
        self._scope = scope
        self._suspended: set[PlaneName] = set()
        self._suspension_changed: dict[PlaneName, asyncio.Event] = {}

    @property
    def uses_entitlement(self) -> bool:
        """True if a controller of this process runs only on entitled planes."""
        return self._manager.uses_entitlement

    def is_engaged(self, plane: PlaneName) -> bool:
        return self._manager.cached_client(plane) is not None

    def is_entitled(self, plane: PlaneName) -> bool:
        return self._manager.is_entitled(plane)

    def is_suspended(self, plane: PlaneName) -> bool:
        return plane in self._suspended

    def set_suspended(self, plane: PlaneName, *, suspended: bool) -> None:
        """Record whether the project is suspended. Call it before its plane is engaged."""
        if suspended == self.is_suspended(plane):
            return
        if suspended:
            self._suspended.add(plane)
        else:
            self._suspended.remove(plane)
        if plane in self._suspension_changed:
            self._suspension_changed.pop(plane).set()

    async def suspension_changes(self, plane: PlaneName) -> AsyncIterator[bool]:
        """Yield the new value whenever the project is suspended or resumed."""
        known = self.is_suspended(plane)
        while True:
            while self.is_suspended(plane) == known:
                changed = self._suspension_changed.setdefault(plane, asyncio.Event())
                await changed.wait()
            known = self.is_suspended(plane)
            yield known

    async def engage(self, plane: PlaneName, *, entitled: bool) -> None:
        """Engage the plane, entitled or not. No-op if it is engaged in this way already."""
        if self._is_engaged_as(plane, entitled=entitled):
            return
        client = await self._reach(plane)
        if self._is_engaged_as(plane, entitled=entitled):
            return  # a concurrent call was faster
        self._manager.disengage(plane)
        self._manager.engage(plane, client, self._scope, entitled=entitled)

    def disengage(self, plane: PlaneName) -> None:
        self._manager.disengage(plane)

    def _is_engaged_as(self, plane: PlaneName, *, entitled: bool) -> bool:
        if not self.is_engaged(plane):
            return False
        return not self.uses_entitlement or self.is_entitled(plane) == entitled
