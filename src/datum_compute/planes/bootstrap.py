"""Bootstrap: creates the initial objects of a plane. Idempotent, run at every start.

The client needs full access, because the roles do not exist yet. ``expire_join_tokens`` removes
expired join tokens from the hub.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import TypeVar

from datum_compute.api import labels
from datum_compute.api.compute.instance_type import (
    BUILT_IN_SIZES,
    InstanceType,
    InstanceTypeResources,
    InstanceTypeSpec,
)
from datum_compute.api.core import Namespace
from datum_compute.api.errors import AlreadyExists, Conflict, NotFound
from datum_compute.api.karmada import Cluster, ClusterSpec
from datum_compute.api.kinds import CLUSTER, INSTANCE_TYPE, JOIN_TOKEN, NAMESPACE
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, ref_of
from datum_compute.api.meta.timestamps import parse_timestamp
from datum_compute.api.planes import (
    PlaneName,
    execution_namespace,
    member_name,
    normalize_city,
    path_prefix,
    plane_role,
)
from datum_compute.client.client import Client
from datum_compute.planes.planes import ExistenceCheck, assume_missing
from datum_compute.planes.role_objects import ensure_roles

T = TypeVar("T", bound=ApiObject)

JOIN_TOKEN_KEPT_S = 24 * 3600.0

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_NAMESPACES_BY_ROLE = {"project": ("milo-system",), "hub": ("karmada-system", "karmada-cluster")}


async def ensure_plane(
    client: Client, plane: PlaneName, exists: ExistenceCheck = assume_missing
) -> None:
    """Create roles, and the namespaces and instance types that clients and controllers expect."""
    await ensure_roles(client, plane, exists)
    role = plane_role(plane)
    for name in (*_NAMESPACES, *_NAMESPACES_BY_ROLE.get(role, ())):
        is_default = role == "project" and name == "default"
        namespace_labels = {labels.PROJECT_DEFAULT: "true"} if is_default else {}
        namespace = Namespace(metadata=ObjectMeta(name=name, labels=namespace_labels))
        await _ensure_object(client, NAMESPACE, namespace, exists)
    for kind, size in built_in_sizes():
        await _ensure_object(client, kind, size, exists)


def built_in_sizes() -> list[tuple[KindInfo[InstanceType], InstanceType]]:
    """Return the instance types of every plane. Operators may deprecate or disable them."""
    sizes = BUILT_IN_SIZES.items()
    return [(INSTANCE_TYPE, _instance_type(name, cpu, memory)) for name, (cpu, memory) in sizes]


def _instance_type(name: str, cpu: str, memory: str) -> InstanceType:
    return InstanceType(
        metadata=ObjectMeta(name=name),
        spec=InstanceTypeSpec(
            display_name=f"{cpu} CPU, {memory}",
            resources=InstanceTypeResources(cpu=cpu, memory=memory),
        ),
    )


async def ensure_cells(
    hub: Client, cells: Iterable[PlaneName], exists: ExistenceCheck = assume_missing
) -> None:
    """Register the cells of this process with the hub. The name of a cell is its city."""
    for cell in cells:
        name = member_name(cell)
        namespace = Namespace(metadata=ObjectMeta(name=execution_namespace(name)))
        await _ensure_object(hub, NAMESPACE, namespace, exists)
        await _ensure_object(hub, CLUSTER, _build_cluster(name, path_prefix(cell)), exists)


def _build_cluster(name: str, endpoint: str) -> Cluster:
    return Cluster(
        metadata=ObjectMeta(name=name, labels={labels.TOPOLOGY_CITY: normalize_city(name)}),
        spec=ClusterSpec(api_endpoint=endpoint),
    )


async def _ensure_object(client: Client, kind: KindInfo[T], obj: T, exists: ExistenceCheck) -> None:
    if exists(kind, ref_of(obj)):
        return
    with suppress(AlreadyExists):
        await client.create(kind, obj)


async def expire_join_tokens(hub: Client, now_s: float) -> None:
    """Delete the join tokens that expired more than JOIN_TOKEN_KEPT_S ago."""
    for token in (await hub.list(JOIN_TOKEN)).items:
        if parse_timestamp(token.spec.expires_at) + JOIN_TOKEN_KEPT_S < now_s:
            with suppress(NotFound, Conflict):
                await hub.delete(JOIN_TOKEN, ref_of(token), uid=token.metadata.uid)
