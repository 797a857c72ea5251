"""Planes of projects in the store of this process: created, drained and deleted at run time.

A plane is created in several writes. If one fails, the next attempt starts with the first write
again and keeps what exists.
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
from datum_compute.planes.lifecycle import (
    FinalizedKinds,
    HeldObject,
    delete_held_objects,
    mark_revoked,
)
from datum_compute.planes.planes import ExistenceCheck
from datum_compute.planes.roles import RBAC
from datum_compute.runtime.cached_client import noop
from datum_compute.store.journal import ObjectKey
from datum_compute.store.store import Store

OWNER_BINDING = "project-owner"
# A project waits this long for objects that only cells can release.
RELEASE_TIMEOUT_S = 60.0
# A project waits for these however long it takes; workloads are deleted without unreachable cells.
AWAITED_KINDS: tuple[KindInfo[Any], ...] = (WORKLOAD, DEPLOYMENT, ENTITLEMENT)
_OWNER_ROLE = "project-admin"

_log = logging.getLogger(__name__)


def existence_check(store: Store, plane: PlaneName) -> ExistenceCheck:
    """Return a check for objects on a plane of this process."""

    def exists(kind: KindInfo[Any], ref: Ref) -> bool:
        return store.get(plane, ObjectKey(kind.storage, ref.namespace, ref.name)) is not None

    return exists


class ProjectPlanes:
    """Creates, drains and deletes planes of projects (``PlaneLifecycle``).

    ``client`` has full access to every plane; its user, ``bootstrap_user``, owns no project.
    ``finalized_kinds`` are the kinds with finalizers on planes of projects. ``on_changed`` is
    called after a plane was created or deleted.
    """

    def __init__(
        self,
        store: Store,
        client: Callable[[PlaneName], Client],
        finalized_kinds: FinalizedKinds,
        *,
        bootstrap_user: str,
        on_changed: Callable[[], None] = noop,
    ) -> None:
        self._store = store
        self._client = client
        self._finalized_kinds = finalized_kinds
        self._bootstrap_user = bootstrap_user
        self._on_changed = on_changed
        self._complete: dict[PlaneName, None] = {}
        # Time since which a plane has only objects that cells must release.
        self._releasing_since_s: dict[PlaneName, float] = {}

    def list_stored(self) -> list[PlaneName]:
        found = (PlaneName(name) for name in self._store.planes())
        return [plane for plane in found if plane_role(plane) == "project"]

    async def create(self, plane: PlaneName, owner: str) -> None:
        if plane in self._complete:
            return
        await self._store.create_plane(plane)
        client, exists = self._client(plane), existence_check(self._store, plane)
        await ensure_plane(client, plane, exists)
        await ensure_network(client, exists)
        if owner and owner != self._bootstrap_user:
            await _bind_owner(client, owner)
        self._complete[plane] = None
        self._on_changed()

    async def drain(self, plane: PlaneName) -> Sequence[str]:
        """Delete the objects with finalizers, then the consumers of the project."""
        if plane in self._store.planes():
            client = self._client(plane)
            await mark_revoked(client, revoked=True)
            held = await delete_held_objects(client, self._finalized_kinds)
            if held and not self._is_given_up(plane, held):
                return [str(obj) for obj in held]
        return await self._end_access(member_name(plane))

    async def delete(self, plane: PlaneName) -> None:
        self._complete.pop(plane, None)
        self._releasing_since_s.pop(plane, None)
        if plane in self._store.planes():
            _log.info("deleting %s", plane)
            await self._store.delete_plane(plane)
        await release_project(self._client(PLATFORM), self._client(HUB), plane)
        self._on_changed()

    def _is_given_up(self, plane: PlaneName, held: Sequence[HeldObject]) -> bool:
        """Return True if the plane may be deleted although objects with finalizers are left.

        Claims, subnets and networks wait until cells have released their resources. A cell that is
        unreachable for a long time must not block the deletion forever. Deleting these objects is
        safe: no new object uses the quota of the project, and its prefixes stay recorded until they
        are unused.
        """
        now_s = asyncio.get_running_loop().time()
        if any(obj.kind in AWAITED_KINDS for obj in held):
            self._releasing_since_s.pop(plane, None)
            return False
        if now_s - self._releasing_since_s.setdefault(plane, now_s) < RELEASE_TIMEOUT_S:
            return False
        _log.warning("deleting %s with %d objects left, such as %s", plane, len(held), held[0])
        return True

    async def _end_access(self, project: str) -> list[str]:
        """Delete the consumers of the project. Return descriptions of those that exist."""
        platform, found = self._client(PLATFORM), []
        for consumer in (await platform.list(CONSUMER)).items:
            if consumer.spec.consumer_project_ref.name == project:
                found.append(f"{CONSUMER.kind} {ref_of(consumer)}")
                if not consumer.is_terminating:
                    await platform.delete(CONSUMER, ref_of(consumer), uid=consumer.metadata.uid)
        return found


async def _bind_owner(client: Client, owner: str) -> None:
    """Make the creator of the project its administrator."""
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
