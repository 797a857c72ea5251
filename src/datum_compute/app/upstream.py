"""The projects that a cell works for: each that a namespace of the cell says it is from.

The controllers of the cell keep the quota claims of its instances there. A project is left when the
last of its namespaces has gone from the cell.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Protocol

from datum_compute.api.identity import decoded_project
from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.labels import UPSTREAM_CLUSTER
from datum_compute.api.planes import PlaneName, project_plane
from datum_compute.app.followed import Followed
from datum_compute.client.client import Client
from datum_compute.client.watch import Watched
from datum_compute.planes.planes import project_label_scope
from datum_compute.runtime.cached_client import LabelScope


class Host(Protocol):
    def engage(self, plane: PlaneName, client: Client, part: LabelScope | None = None) -> None: ...

    def disengage(self, plane: PlaneName) -> None: ...


class UpstreamProjects:
    def __init__(
        self,
        cell: str,
        own_plane: Client,
        host: Host,
        client_of: Callable[[PlaneName], Client],
        random: Random,
    ) -> None:
        self._cell = cell
        self._host = host
        self._client_of = client_of
        self._changed = asyncio.Event()
        self._namespaces = Followed(own_plane, Watched(NAMESPACE), random, self._changed)
        self._engaged: dict[PlaneName, None] = {}

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._namespaces.run())
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._settle()

    def _settle(self) -> None:
        wanted = dict.fromkeys(self._projects())
        for plane in [plane for plane in self._engaged if plane not in wanted]:
            del self._engaged[plane]
            self._host.disengage(plane)
        for plane in wanted:
            if plane not in self._engaged:
                self._engaged[plane] = None
                self._host.engage(plane, self._client_of(plane), project_label_scope(self._cell))

    def _projects(self) -> list[PlaneName]:
        found = []
        for _, namespace in sorted(self._namespaces.objects.items()):
            project = decoded_project(namespace.metadata.labels.get(UPSTREAM_CLUSTER, ""))
            try:
                found += [project_plane(project)] if project else []
            except ValueError:
                continue  # a label that somebody edited
        return found
