"""Hub namespaces of projects: their labels, their policies, and their deletion.

The rules are in planning/federation/hub_namespaces.py. One controller restores the labels, and
deletes a hub namespace whose source is gone, after the copies of deployments in it. Before it
deletes, it confirms its caches by live reads: it lists the namespaces of the project and the
contents of the hub namespace. The other controller writes the policies that propagate the contents
to their cities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.core import Namespace
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.kinds import (
    BINDING,
    CLUSTER_POLICY,
    DEPLOYMENT,
    INSTANCE,
    NAMESPACE,
    POLICY,
    WORK,
)
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.planes import HUB, PlaneName, federation_namespace, plane_role, source_uid
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.federation.hub_namespaces import (
    HubNamespace,
    namespaces_of_contents,
    plan_hub_namespace,
    plan_orphan_deletions,
    plan_policies,
    plan_removal,
)
from datum_compute.planning.plan import Plan
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import spec_or_metadata_changed

_CONTENT_KINDS: tuple[KindInfo[Any], ...] = (DEPLOYMENT, INSTANCE, BINDING)

WORKS_BY_CONTENT_NAMESPACE = Index(WORK, "content-namespace", namespaces_of_contents)


async def reconcile(context: Context, key: Key) -> Outcome:
    hub, name = context.planes.hub, key.ref.name
    uid = source_uid(name)
    if not uid:
        return Done()
    observed = HubNamespace(hub.read(NAMESPACE).get(key.ref), hub.read(CLUSTER_POLICY).get(key.ref))
    project = context.planes.project(observed.project) if observed.project else None
    # Caches of other processes may still contain the namespaces of a project that was removed.
    source = None if observed.is_project_removed else _find_source(context, project, observed, uid)
    plan = plan_hub_namespace(observed, source, is_project_readable=project is not None)
    if plan is None:
        plan = await _plan_without_source(hub, project, observed, name)
    return await apply_plan(context.planes, plan)


def _find_source(
    context: Context, project: CachedClient | None, observed: HubNamespace, uid: str
) -> tuple[PlaneName, Namespace] | None:
    """Find the project namespace of a hub namespace.

    If the labels of the hub namespace are intact, this costs one lookup. Otherwise all projects are
    searched for the uid.
    """
    if project is not None:
        labeled = Ref("", observed.identity.get(labels.UPSTREAM_NAMESPACE, ""))
        source = project.read(NAMESPACE).get(labeled)
        if source is not None and source.metadata.uid == uid:
            return project.plane, source
    return next(
        (
            (plane, namespace)
            for plane in context.planes.engaged_planes()
            if plane_role(plane) == "project"
            for namespace in context.planes.require(plane).read(NAMESPACE).all()
            if namespace.metadata.uid == uid
        ),
        None,
    )


async def _plan_without_source(
    hub: CachedClient, project: CachedClient | None, observed: HubNamespace, name: str
) -> Plan:
    """Plan the removal of a hub namespace whose source no cache contains.

    Caches are read first, because a positive result needs no confirmation. Nothing is deleted
    before live reads confirm that the source is gone and, for the namespace, that it is empty.
    """
    orphans = plan_orphan_deletions(hub.read(DEPLOYMENT).list_in_namespace(name))
    if not orphans.actions and _has_cached_contents(hub, name):
        return plan_removal(observed, f"{name} is not empty")
    uid, removed = source_uid(name), observed.is_project_removed
    if project is not None and await _has_source(project, uid, removed=removed):
        return plan_removal(observed, f"the source of {name} exists")
    if orphans.actions:
        return orphans
    return plan_removal(observed, f"{name} is not empty" if await _has_contents(hub, name) else "")


def _has_cached_contents(hub: CachedClient, name: str) -> bool:
    if any(hub.read(kind).list_in_namespace(name) for kind in _CONTENT_KINDS):
        return True
    return bool(hub.read(WORK).refs_by_index(WORKS_BY_CONTENT_NAMESPACE.name, name))


async def _has_source(project: CachedClient, uid: str, *, removed: bool) -> bool:
    try:
        listed = await project.uncached.list(NAMESPACE)
    except (NotFound, Forbidden):
        if not removed:
            raise
        return False  # The plane of a removed project does not exist, or denies access.
    return any(namespace.metadata.uid == uid for namespace in listed.items)


async def _has_contents(hub: CachedClient, name: str) -> bool:
    for kind in _CONTENT_KINDS:
        if (await hub.uncached.list(kind, namespace=name)).items:
            return True
    # An unreadable Work is in no index. This read raises if there is one.
    return any(name in namespaces_of_contents(work) for work in hub.read(WORK).all())


def map_source(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map the creation and the deletion of a project namespace to its hub namespace."""
    if change.new is None or change.old is None:
        yield Key(HUB, Ref("", federation_namespace(change.latest.metadata.uid)))


def map_deployment_to_namespace(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        yield Key(client.plane, Ref("", change.latest.metadata.namespace))


def map_work(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    if change.new is None:
        for name in namespaces_of_contents(change.latest):
            yield Key(client.plane, Ref("", name))


def map_policy(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    yield Key(client.plane, Ref("", change.latest.metadata.name))


NAMESPACE_CONTROLLER = Controller(
    name="home",
    role="hub",
    reconcile=reconcile,
    edges=(
        for_(NAMESPACE),
        watches(CLUSTER_POLICY, map_policy),
        watches(DEPLOYMENT, map_deployment_to_namespace),
        watches(WORK, map_work),
        reads(INSTANCE),
        reads(BINDING),
        watches(NAMESPACE, map_source, on="project"),
    ),
    indexes=(WORKS_BY_CONTENT_NAMESPACE,),
)


async def reconcile_policy(context: Context, key: Key) -> Outcome:
    hub = context.planes.require(key.plane)
    namespace = hub.read(NAMESPACE).get(key.ref)
    if namespace is None or labels.UPSTREAM_CLUSTER not in namespace.metadata.labels:
        return Done()
    name = namespace.metadata.name
    plan = plan_policies(
        namespace,
        hub.read(DEPLOYMENT).list_in_namespace(name),
        hub.read(POLICY).list_in_namespace(name),
        hub.read(CLUSTER_POLICY).get(Ref("", name)),
    )
    return await apply_plan(context.planes, plan)


def map_to_namespace(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deployment or a policy to its hub namespace."""
    yield Key(client.plane, Ref("", change.latest.metadata.namespace))


def map_cluster_policy_to_namespace(
    client: CachedClient, change: ObjectChange[Any]
) -> Iterable[Key]:
    yield Key(client.plane, Ref("", change.latest.metadata.name))


POLICY_CONTROLLER = Controller(
    name="policy",
    role="hub",
    reconcile=reconcile_policy,
    edges=(
        for_(NAMESPACE),
        watches(DEPLOYMENT, map_to_namespace, update_filter=spec_or_metadata_changed),
        watches(POLICY, map_to_namespace),
        watches(CLUSTER_POLICY, map_cluster_policy_to_namespace),
    ),
    modes=(FEDERATED,),
)
