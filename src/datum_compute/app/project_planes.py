"""Planes of projects in the store of this process: made, emptied and removed while it runs.

What a plane is made of is written step by step; one of which a step is missing is made anew from
the first step on, and what is done stays.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

from datum_compute.api.errors import AlreadyExists
from datum_compute.api.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONSUMER,
    DEPLOYMENT,
    ENTITLEMENT,
    WORKLOAD,
)
from datum_compute.api.meta.objects import KindInfo, Ref, ref_of
from datum_compute.api.planes import HUB, PLATFORM, PlaneName, member_name, plane_role
from datum_compute.client.client import Client
from datum_compute.planes.bootstrap import ensure_plane
from datum_compute.planes.catalogue import ensure_network, release_project
from datum_compute.planes.lifecycle import FinalizedKinds, delete_held_objects, mark_revoked
from datum_compute.planes.planes import ExistenceCheck
from datum_compute.planes.roles import RBAC
from datum_compute.store.journal import ObjectKey
from datum_compute.store.store import Store

OWNER_BINDING = "project-owner"
# How long a project waits for what only cells can give back.
REST_S = 60.0
# What it waits for, however long that takes: workloads go without cells that do not answer.
AWAITED: tuple[KindInfo[Any], ...] = (WORKLOAD, DEPLOYMENT, ENTITLEMENT)
_AWAITED = tuple(f"{kind.kind} " for kind in AWAITED)
_OWNER_ROLE = "project-admin"

_log = logging.getLogger(__name__)


def holds_of(store: Store, plane: PlaneName) -> ExistenceCheck:
    """What a plane of this process holds."""

    def holds(kind: KindInfo[Any], ref: Ref) -> bool:
        return store.get(plane, ObjectKey(kind.storage, ref.namespace, ref.name)) is not None

    return holds


def untold() -> None:
    """Nobody wants to know which projects there are."""


class ProjectPlanes:
    """``client`` may do everything on every plane; its user, ``nobody``, owns no project.
    ``held_back`` is what controllers hold back on planes of projects; ``changed`` is called when a
    plane has come or gone."""

    def __init__(
        self,
        store: Store,
        client: Callable[[PlaneName], Client],
        held_back: FinalizedKinds,
        *,
        nobody: str,
        changed: Callable[[], None] = untold,
    ) -> None:
        self._store = store
        self._client = client
        self._held_back = held_back
        self._nobody = nobody
        self._changed = changed
        self._whole: dict[PlaneName, None] = {}
        # Since when nothing is left in planes but what a cell has to give back.
        self._rest_since_s: dict[PlaneName, float] = {}

    def stored(self) -> list[PlaneName]:
        found = (PlaneName(name) for name in self._store.planes())
        return [plane for plane in found if plane_role(plane) == "project"]

    async def create(self, plane: PlaneName, owner: str) -> None:
        if plane in self._whole:
            return
        await self._store.create_plane(plane)
        client, holds = self._client(plane), holds_of(self._store, plane)
        await ensure_plane(client, plane, holds)
        await ensure_network(client, holds)
        if owner and owner != self._nobody:
            await _bind_owner(client, owner)
        self._whole[plane] = None
        self._changed()

    async def drain(self, plane: PlaneName) -> Sequence[str]:
        """First all that stands for something elsewhere, then what the platform knows of it."""
        if plane in self._store.planes():
            client = self._client(plane)
            await mark_revoked(client, revoked=True)
            held = await delete_held_objects(client, self._held_back)
            if held and not self._is_given_up(plane, held):
                return held
        return await self._end_access(member_name(plane))

    async def delete(self, plane: PlaneName) -> None:
        self._whole.pop(plane, None)
        self._rest_since_s.pop(plane, None)
        if plane in self._store.planes():
            _log.info("%s is removed", plane)
            await self._store.delete_plane(plane)
        await release_project(self._client(PLATFORM), self._client(HUB), plane)
        self._changed()

    def _is_given_up(self, plane: PlaneName, held: Sequence[str]) -> bool:
        """Claims, subnets and networks wait for cells to give back what they stand for; one that is
        away for long would hold the project for ever. They may go with it: nobody asks for its
        quota any more, and its prefixes stay on record until nothing uses them."""
        now_s = asyncio.get_running_loop().time()
        if any(name.startswith(_AWAITED) for name in held):
            self._rest_since_s.pop(plane, None)
            return False
        if now_s - self._rest_since_s.setdefault(plane, now_s) < REST_S:
            return False
        _log.warning("%s goes with %d objects, such as %s", plane, len(held), held[0])
        return True

    async def _end_access(self, project: str) -> list[str]:
        """What a provider has said of the project ends with it."""
        platform, found = self._client(PLATFORM), []
        for consumer in (await platform.list(CONSUMER)).items:
            if consumer.spec.consumer_project_ref.name == project:
                found.append(f"{CONSUMER.kind} {ref_of(consumer)}")
                if not consumer.is_terminating:
                    await platform.delete(CONSUMER, ref_of(consumer), uid=consumer.metadata.uid)
        return found


async def _bind_owner(client: Client, owner: str) -> None:
    """Whoever made the project administers it, and can let others in."""
    binding = {
        "apiVersion": CLUSTER_ROLE_BINDING.api_version,
        "kind": CLUSTER_ROLE_BINDING.kind,
        "metadata": {"name": OWNER_BINDING},
        "roleRef": {"apiGroup": RBAC, "kind": CLUSTER_ROLE.kind, "name": _OWNER_ROLE},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": owner}],
    }
    try:
        await client.create_plain(CLUSTER_ROLE_BINDING, binding)
    except AlreadyExists:
        return
