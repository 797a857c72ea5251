"""Reads what the platform has on record about prefixes, and who uses them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, IP_ALLOCATION, WORK
from datum_compute.api.meta import ApiObject, KindInfo, Ref
from datum_compute.api.plane import PLATFORM, PlaneName, member_name, project_plane
from datum_compute.controllers.context import Context
from datum_compute.planning.prefixes import Ledger, Pool, pool_label
from datum_compute.planning.prefixuse import user_of
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Edge, Key, MapFunction, reads
from datum_compute.runtime.informer import ObjectChange


def observe_ledger(
    context: Context, plane: PlaneName, holder: ApiObject, pool: Pool | None
) -> Ledger:
    recorded = context.planes.require(PLATFORM).read(IP_ALLOCATION)
    own = recorded.with_label(labels.HOLDER_UID, holder.metadata.uid)
    in_pool = recorded.with_label(labels.POOL, pool_label(pool.cidr)) if pool is not None else []
    of_project = sum(a.spec.project == member_name(plane) for a in in_pool)
    return Ledger(own, frozenset(a.spec.cidr for a in in_pool), of_project)


def observe_user(context: Context, project: CachedClient | None, cidr: str) -> str:
    """Who uses a prefix of the project, or nobody; None for a project that is no more. For
    controllers with the edges below."""
    hub = context.planes.hub
    deployments = project.read(DEPLOYMENT).all() if project is not None else ()
    return user_of(cidr, deployments, hub.read(WORK).all(), hub.read(INSTANCE).all())


USER_EDGES: tuple[Edge, ...] = (
    reads(DEPLOYMENT, on="project"),
    reads(WORK, on="hub"),
    reads(INSTANCE, on="hub"),
)


def to_holder(kind: KindInfo[Any]) -> MapFunction:
    """An allocation wakes its holder of that kind."""

    def to_keys(_view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        spec = change.latest.spec
        if spec.holder.kind == kind.kind:
            yield Key(project_plane(spec.project), Ref(spec.holder.namespace, spec.holder.name))

    return to_keys
