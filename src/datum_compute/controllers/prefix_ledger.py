"""Read which prefixes are allocated, and which objects use them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, IP_ALLOCATION, WORK
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref
from datum_compute.api.planes import PLATFORM, PlaneName, member_name, project_plane
from datum_compute.controllers.context import Context
from datum_compute.planning.network.prefixes import (
    Ledger,
    Pool,
    addressed_prefixes,
    attached_prefixes,
    find_prefix_user,
    is_indexed,
    pool_label,
    prefixes_in_work,
)
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Edge, Key, MapFunction, reads
from datum_compute.runtime.informer import ObjectChange


def observe_ledger(
    context: Context, plane: PlaneName, holder: ApiObject, pool: Pool | None
) -> Ledger:
    recorded = context.planes.require(PLATFORM).read(IP_ALLOCATION)
    own = recorded.list_with_label(labels.HOLDER_UID, holder.metadata.uid)
    in_pool = (
        recorded.list_with_label(labels.POOL, pool_label(pool.cidr)) if pool is not None else []
    )
    of_project = sum(a.spec.project == member_name(plane) for a in in_pool)
    return Ledger(own, frozenset(a.spec.cidr for a in in_pool), of_project)


def observe_prefix_user(context: Context, project: CachedClient | None, cidr: str) -> str:
    """Return the first object that uses a prefix; the empty string if none does.

    ``project`` is None if the project no longer exists. A controller that calls this function needs
    ``USER_EDGES`` and ``USER_INDEXES``.
    """
    hub = context.planes.hub
    deployments = (
        project.read(DEPLOYMENT).list_by_index(ATTACHED.name, cidr) if project is not None else ()
    )
    instances = hub.read(INSTANCE)
    return find_prefix_user(
        cidr,
        deployments,
        hub.read(WORK).list_by_index(CARRIED.name, cidr),
        # Prefixes of other lengths were allocated by earlier releases and are not indexed.
        instances.list_by_index(ADDRESSED.name, cidr) if is_indexed(cidr) else instances.all(),
    )


ATTACHED = Index(DEPLOYMENT, "attached-prefix", attached_prefixes, on="project")
CARRIED = Index(WORK, "carried-prefix", prefixes_in_work, on="hub")
ADDRESSED = Index(INSTANCE, "addressed-prefix", addressed_prefixes, on="hub")
USER_INDEXES: tuple[Index[Any], ...] = (ATTACHED, CARRIED, ADDRESSED)

USER_EDGES: tuple[Edge, ...] = (
    reads(DEPLOYMENT, on="project"),
    reads(WORK, on="hub"),
    reads(INSTANCE, on="hub"),
)


def map_to_holder(kind: KindInfo[Any]) -> MapFunction:
    """Return a function that maps an allocation to its holder, if the holder is of this kind."""

    def to_keys(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
        spec = change.latest.spec
        if spec.holder.kind == kind.kind:
            yield Key(project_plane(spec.project), Ref(spec.holder.namespace, spec.holder.name))

    return to_keys
