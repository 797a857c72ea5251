"""Copies deployments of projects to the hub, and the hub's status to the projects.

The rules are in planning/federation/deployment.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import is_true
from datum_compute.api.karmada import Cluster, ResourceBinding
from datum_compute.api.kinds import BINDING, CLUSTER, DEPLOYMENT, NAMESPACE, WORK
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import execution_namespace, federation_namespace, work_names
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planes.planes import upstream_key
from datum_compute.planning.federation.cells import unschedulable_reason
from datum_compute.planning.federation.deployment import (
    HubState,
    hub_namespace_of,
    placement_and_report_state,
    plan_federation,
    plan_orphan_deletion,
)
from datum_compute.planning.federation.unreachable import (
    UnreachableCell,
    find_unreachable,
    same_reachability,
)
from datum_compute.planning.karmada.bindings import binding_name
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
from datum_compute.runtime.predicates import any_of, spec_or_metadata_changed, value_changed


async def reconcile(context: Context, key: Key) -> Outcome:
    client, hub = context.planes.require(key.plane), context.planes.hub
    deployment = client.read(DEPLOYMENT).get(key.ref)
    if deployment is None:
        return await _remove_orphan(context, client, key)
    namespace = client.read(NAMESPACE).get(Ref("", key.ref.namespace))
    target = Ref(hub_namespace_of(deployment, namespace), key.ref.name)
    binding = hub.read(BINDING).get(Ref(target.namespace, binding_name(DEPLOYMENT, target.name)))
    state = HubState(
        namespace=hub.read(NAMESPACE).get(Ref("", target.namespace)),
        deployment=hub.read(DEPLOYMENT).get(target),
        binding=binding,
        cells_pending_deletion=_ready_cells_with_work(hub, target)
        if deployment.is_terminating
        else (),
        unreachable_cells=_unready_cells_with_work(hub, target)
        if deployment.is_terminating
        else (),
        unreachable=_find_unreachable(hub, binding),
        placement_error=unschedulable_reason(_cells_of(hub, deployment.spec.city_code)),
    )
    plan = plan_federation(key.plane, deployment, namespace, state, context.now())
    return await apply_plan(context.planes, plan)


async def _remove_orphan(context: Context, client: CachedClient, key: Key) -> Outcome:
    """Delete a hub deployment that the project does not have, after a live read from the project.

    A hub that was restored from a backup may have deployments that were deleted since. If their
    namespace was deleted too, the controller of the hub namespace deletes them.
    """
    namespace = client.read(NAMESPACE).get(Ref("", key.ref.namespace))
    if namespace is None:
        return Done()
    target = Ref(federation_namespace(namespace.metadata.uid), key.ref.name)
    plan = plan_orphan_deletion(context.planes.hub.read(DEPLOYMENT).get(target))
    if plan.actions and await client.get_uncached(DEPLOYMENT, key.ref) is None:
        return await apply_plan(context.planes, plan)
    return Done()


def _cells_of(hub: CachedClient, city: str) -> list[Cluster]:
    found = hub.read(CLUSTER).list_with_label(labels.TOPOLOGY_CITY, city)
    return sorted((c for c in found if not c.is_terminating), key=ref_of)


def _find_unreachable(hub: CachedClient, binding: ResourceBinding | None) -> UnreachableCell | None:
    """Return the first unreachable cell that the deployment is scheduled to."""
    clusters = hub.read(CLUSTER)
    targets = binding.spec.clusters if binding is not None else ()
    found = (find_unreachable(clusters.get(Ref("", target.name))) for target in targets)
    return next(filter(None, found), None)


def _ready_cells_with_work(hub: CachedClient, target: Ref) -> tuple[str, ...]:
    """Return the reachable cells for which the hub has a Work of the deployment."""
    return tuple(c.metadata.name for c in _cells_with_work(hub, target) if _is_ready(c))


def _unready_cells_with_work(hub: CachedClient, target: Ref) -> tuple[str, ...]:
    return tuple(c.metadata.name for c in _cells_with_work(hub, target) if not _is_ready(c))


def _is_ready(cell: Cluster) -> bool:
    return is_true(cell.status.conditions, "Ready")


def _cells_with_work(hub: CachedClient, target: Ref) -> list[Cluster]:
    works, names = hub.read(WORK), work_names(DEPLOYMENT, target)

    def is_held(cell: Cluster) -> bool:
        space = execution_namespace(cell.metadata.name)
        return any(works.get(Ref(space, name)) is not None for name in names)

    return sorted((c for c in hub.read(CLUSTER).all() if is_held(c)), key=ref_of)


def map_hub_work(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a deleted Work to its deployment: the cell has confirmed that its copy is gone."""
    metadata = change.latest.spec.workload.manifests[0]["metadata"]
    key = upstream_key(metadata.get("labels", {}), metadata["name"])
    return [key] if key and change.new is None else []


def map_cluster(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a Cluster whose reachability changed to the deployments of its Works."""
    if same_reachability(change.old, change.new):
        return
    for work in client.read_unsynced(WORK).list_in_namespace(
        execution_namespace(change.latest.metadata.name)
    ):
        yield from map_hub_work(client, ObjectChange(work, None))


def map_hub_deployment(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a hub deployment to its source in the project.

    The source is found by the labels of the hub namespace, because those of the deployment may have
    been edited.
    """
    metadata = change.latest.metadata
    namespace = client.read_unsynced(NAMESPACE).get(Ref("", metadata.namespace))
    key = upstream_key(namespace.metadata.labels, metadata.name) if namespace is not None else None
    key = key or upstream_key(metadata.labels, metadata.name)
    return [key] if key else []


def map_hub_namespace(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a hub namespace whose labels changed to its deployments, so that labels are restored."""
    old, new = change.old, change.new
    if old is None or new is None or old.metadata.labels == new.metadata.labels:
        return
    for deployment in client.read_unsynced(DEPLOYMENT).list_in_namespace(new.metadata.name):
        yield from map_hub_deployment(client, ObjectChange(None, deployment))


def map_hub_binding(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a binding to the source of its deployment.

    The source is found by the labels of the hub namespace, because the hub deployment may be gone.
    """
    binding = change.latest
    namespace = client.read_unsynced(NAMESPACE).get(Ref("", binding.metadata.namespace))
    if namespace is None or binding.spec.resource.kind != DEPLOYMENT.kind:
        return []
    key = upstream_key(namespace.metadata.labels, binding.spec.resource.name)
    return [key] if key else []


# If only the content of a report changed, the hub deployment has the same status, and its own event
# starts the reconcile.
_PLACEMENT_CHANGED = any_of(value_changed(placement_and_report_state), spec_or_metadata_changed)

CONTROLLER = Controller(
    name="federator",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(DEPLOYMENT),
        reads(NAMESPACE),
        watches(NAMESPACE, map_hub_namespace, on="hub"),
        watches(DEPLOYMENT, map_hub_deployment, on="hub"),
        watches(BINDING, map_hub_binding, on="hub", update_filter=_PLACEMENT_CHANGED),
        watches(WORK, map_hub_work, on="hub"),
        watches(CLUSTER, map_cluster, on="hub"),
    ),
    finalizers=(labels.FEDERATOR_FINALIZER,),
    entitled_only=True,
    modes=(FEDERATED,),
)
