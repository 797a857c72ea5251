"""What a plane holds from its first moment. Idempotent: run at every start.

The client must be allowed everything: there are no roles yet that could let anybody in.

Join tokens that nobody can use any more leave the hub a day after they have expired.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from datum_compute.api import labels
from datum_compute.api.cluster import Cluster, ClusterSpec
from datum_compute.api.errors import AlreadyExists, Conflict, NotFound
from datum_compute.api.identity import execution_namespace, normalized_city
from datum_compute.api.instancetype import (
    BUILT_IN_SIZES,
    InstanceType,
    InstanceTypeResources,
    InstanceTypeSpec,
)
from datum_compute.api.kinds import CLUSTER, INSTANCE_TYPE, JOIN_TOKEN, NAMESPACE
from datum_compute.api.meta import ApiObject, KindInfo, ObjectMeta, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import PlaneName, member_name, path_prefix, plane_role
from datum_compute.api.timestamps import parse_timestamp
from datum_compute.client.client import Client
from datum_compute.planes.planes import ExistenceCheck, assume_missing
from datum_compute.planes.role_objects import ensure_roles

T = TypeVar("T", bound=ApiObject)

_NAMESPACES = ("default", "kube-system", "kube-public", "kube-node-lease")
_OF_ROLE = {"project": ("milo-system",), "hub": ("karmada-system", "karmada-cluster")}


async def ensure_plane(
    client: Client, plane: PlaneName, holds: ExistenceCheck = assume_missing
) -> None:
    """The roles, and the namespaces and sizes that clients and controllers expect to find."""
    await ensure_roles(client, plane, holds)
    role = plane_role(plane)
    for name in (*_NAMESPACES, *_OF_ROLE.get(role, ())):
        marked = role == "project" and name == "default"
        marks = {labels.PROJECT_DEFAULT: "true"} if marked else {}
        namespace = Namespace(metadata=ObjectMeta(name=name, labels=marks))
        await _ensure(client, NAMESPACE, namespace, holds)
    for kind, size in built_in_sizes():
        await _ensure(client, kind, size, holds)


def built_in_sizes() -> list[tuple[KindInfo[InstanceType], InstanceType]]:
    sizes = BUILT_IN_SIZES.items()
    return [(INSTANCE_TYPE, _size(name, cpu, memory)) for name, (cpu, memory) in sizes]


def _size(name: str, cpu: str, memory: str) -> InstanceType:
    """A size that operators may deprecate or remove the use of, but that is there at first."""
    return InstanceType(
        metadata=ObjectMeta(name=name),
        spec=InstanceTypeSpec(
            display_name=f"{cpu} CPU, {memory}",
            resources=InstanceTypeResources(cpu=cpu, memory=memory),
        ),
    )


async def ensure_cells(
    hub: Client, cells: Iterable[PlaneName], holds: ExistenceCheck = assume_missing
) -> None:
    """Register the cells of this process with the hub, each for the city of its name."""
    for cell in cells:
        name = member_name(cell)
        namespace = Namespace(metadata=ObjectMeta(name=execution_namespace(name)))
        await _ensure(hub, NAMESPACE, namespace, holds)
        await _ensure(hub, CLUSTER, _cluster(name, path_prefix(cell)), holds)


def _cluster(name: str, endpoint: str) -> Cluster:
    return Cluster(
        metadata=ObjectMeta(name=name, labels={labels.TOPOLOGY_CITY: normalized_city(name)}),
        spec=ClusterSpec(api_endpoint=endpoint),
    )


async def _ensure(client: Client, kind: KindInfo[T], obj: T, holds: ExistenceCheck) -> None:
    if holds(kind, ref_of(obj)):
        return
    try:
        await client.create(kind, obj)
    except AlreadyExists:
        return


KEPT_S = 24 * 3600.0


async def expire_join_tokens(hub: Client, now_s: float) -> None:
    for token in (await hub.list(JOIN_TOKEN)).items:
        if parse_timestamp(token.spec.expires_at) + KEPT_S < now_s:
            try:
                await hub.delete(JOIN_TOKEN, ref_of(token), uid=token.metadata.uid)
            except (NotFound, Conflict):
                continue
