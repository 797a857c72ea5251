"""Controllers of membership: they select the projects on which this process works.

A process with the platform plane watches projects and their consumers. A project that loses access
is suspended, whether access was denied, withdrawn or suspended: its objects stay, its controllers
run, and its instances are stopped. The finalizer of a deleted consumer is removed when no instance
runs. A project without access and without workloads is no longer entitled.

A cell without the platform plane works on the projects that have a namespace on the hub, because it
needs a project only for the quota claims of its instances. A cell that has joined may not read the
namespaces of the hub. It works on the projects that have a namespace on the cell.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import is_true
from datum_compute.api.kinds import CONSUMER, DEPLOYMENT, ENTITLEMENT, NAMESPACE, PROJECT, WORKLOAD
from datum_compute.api.meta.names import dns_label_problem
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.planes import (
    PLATFORM,
    PlaneName,
    decode_project_label,
    encode_cluster_label,
    member_name,
    project_plane,
)
from datum_compute.api.quota import SERVICE, SERVICE_NAME
from datum_compute.api.services import (
    ACTIVE,
    READY,
    ServiceConsumer,
    can_use_service,
    consumer_name,
)
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planes.membership import ProjectMembership
from datum_compute.planning.plan import Plan, add_finalizer, drop_finalizer
from datum_compute.planning.rollout.suspension import deployments_still_running
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import never

# Interval of checks while the instances of a project are being stopped. The deletion of its last
# workload triggers a reconcile immediately.
RECHECK_S = 0.5
_WORKLOAD_KINDS: tuple[KindInfo[Any], ...] = (WORKLOAD, DEPLOYMENT)


async def reconcile(context: Context, key: Key) -> Outcome:
    membership, platform = context.membership, context.planes.require(PLATFORM)
    assert membership is not None, "only a platform with many planes has membership"
    plane = project_plane(key.ref.name)
    consumer = platform.read(CONSUMER).get(Ref("", consumer_name(SERVICE_NAME, key.ref.name)))
    project = platform.read(PROJECT).get(key.ref)
    if project is None:
        membership.disengage(plane)
        return await _release_consumer(context, consumer)
    has_plane = project.is_terminating or is_true(project.status.conditions, READY)
    if not membership.is_engaged(plane) and not has_plane:
        return Done()
    if not membership.uses_entitlement:
        await membership.engage(plane, entitled=False)
        return Done()
    if consumer is not None and can_use_service(consumer):
        return await _engage_entitled(context, membership, plane, consumer)
    return await _suspend_project(context, membership, plane, consumer)


async def _engage_entitled(
    context: Context, membership: ProjectMembership, plane: PlaneName, consumer: ServiceConsumer
) -> Outcome:
    """Engage the project. A finalizer keeps its consumer until no instance of the project runs."""
    missing = add_finalizer(PLATFORM, CONSUMER, consumer, labels.CONSUMER_FINALIZER)
    await apply_plan(context.planes, Plan(tuple(missing)))
    membership.set_suspended(plane, suspended=False)
    await membership.engage(plane, entitled=True)
    return Done()


async def _suspend_project(
    context: Context,
    membership: ProjectMembership,
    plane: PlaneName,
    consumer: ServiceConsumer | None,
) -> Outcome:
    """Suspend a project without access. Release its consumer when no instance runs.

    While workloads remain, the project counts as entitled, so that its controllers stop them.
    """
    if not await _is_consumer_current(context.planes.require(PLATFORM), plane, consumer):
        return Requeue(RECHECK_S)
    membership.set_suspended(plane, suspended=True)
    if not membership.is_engaged(plane):
        await membership.engage(plane, entitled=False)
    project = context.planes.require(plane)
    if not _has_workloads(project):
        if not await _confirm_without_workloads(project):
            return Requeue(RECHECK_S)
        await membership.engage(plane, entitled=False)
        return await _release_consumer(context, consumer)
    await membership.engage(plane, entitled=True)
    if consumer is None or not consumer.is_terminating:
        return Done()
    deployments = (await context.planes.require(plane).uncached.list(DEPLOYMENT)).items
    if deployments_still_running(deployments):
        return Requeue(RECHECK_S)
    return await _release_consumer(context, consumer)


async def _is_consumer_current(
    platform: CachedClient, plane: PlaneName, cached: ServiceConsumer | None
) -> bool:
    """Return True if a live read of the consumer confirms the cached version or its absence.

    The watch of consumers may be behind that of projects. The cache then has no consumer of a
    recreated project, or that of the earlier project. In that case later reads wait until the cache
    is current.
    """
    live = await platform.get_uncached(
        CONSUMER, Ref("", consumer_name(SERVICE_NAME, member_name(plane)))
    )
    if _version_of(live) == _version_of(cached):
        return True
    platform.mark_stale(CONSUMER)
    return False


def _version_of(consumer: ServiceConsumer | None) -> int:
    return consumer.version if consumer is not None else 0


async def _release_consumer(context: Context, consumer: ServiceConsumer | None) -> Outcome:
    if consumer is None or not consumer.is_terminating:
        return Done()
    released = drop_finalizer(PLATFORM, CONSUMER, consumer, labels.CONSUMER_FINALIZER)
    return await apply_plan(context.planes, Plan(tuple(released)))


def _has_workloads(project: CachedClient) -> bool:
    return any(project.read(kind).refs() for kind in _WORKLOAD_KINDS)


async def _confirm_without_workloads(project: CachedClient) -> bool:
    """Return True if live reads find no workloads in the project.

    Return False while its entitlement is active, because workloads can be created at any time.
    """
    entitlement = await project.get_uncached(ENTITLEMENT, Ref("", SERVICE))
    is_requested = entitlement is not None and not entitlement.is_terminating
    if entitlement is not None and is_requested and entitlement.status.phase == ACTIVE:
        return False
    return not any([(await project.uncached.list(kind)).items for kind in _WORKLOAD_KINDS])


def map_consumer(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(PLATFORM, Ref("", change.latest.spec.consumer_project_ref.name))


def map_project(client: CachedClient, _change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(PLATFORM, Ref("", member_name(client.plane)))


PROJECT_CONTROLLER = Controller(
    name="membership",
    role="platform",
    reconcile=reconcile,
    edges=(
        for_(PROJECT),
        watches(CONSUMER, map_consumer),
        watches(WORKLOAD, map_project, on="project", update_filter=never),
        watches(DEPLOYMENT, map_project, on="project", update_filter=never),
        reads(ENTITLEMENT, on="project"),
    ),
    finalizers=(labels.CONSUMER_FINALIZER,),
    workers=4,
)


# --- cells without the platform plane


async def reconcile_namespaces(context: Context, key: Key) -> Outcome:
    """Work on the project that the key names while it has a namespace on the plane of the key."""
    membership = context.membership
    assert membership is not None, "only a platform with many planes has membership"
    plane = project_plane(key.ref.name)
    cluster = encode_cluster_label(key.ref.name)
    namespaces = context.planes.require(key.plane).read(NAMESPACE)
    if namespaces.list_with_label(labels.UPSTREAM_CLUSTER, cluster):
        await membership.engage(plane, entitled=True)
    else:
        membership.disengage(plane)
    return Done()


def map_to_project(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a namespace to the project in its labels, and to the one in its previous labels."""
    for namespace in filter(None, (change.new, change.old)):
        name = decode_project_label(namespace.metadata.labels.get(labels.UPSTREAM_CLUSTER, ""))
        if name and not dns_label_problem(name):  # else the label was edited by hand
            yield Key(client.plane, Ref("", name))


HUB_NAMESPACE_CONTROLLER = Controller(
    name="membership",
    role="hub",
    reconcile=reconcile_namespaces,
    edges=(watches(NAMESPACE, map_to_project),),
    workers=1,
)

CELL_NAMESPACE_CONTROLLER = Controller(
    name="membership",
    role="cell",
    reconcile=reconcile_namespaces,
    edges=(watches(NAMESPACE, map_to_project),),
    workers=1,
)
