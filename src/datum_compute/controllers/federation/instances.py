"""Copies Instances from their cell to the hub, and from the hub to their project.

The rules are in planning/federation/instances.py. There are three controllers:

- `HUB_COPY_CONTROLLER` copies the Instances of a cell to the hub. A copy that names this cell is
  deleted if the cell does not have the instance: it may have been deleted while the hub was
  unreachable, or the cell may have lost its store.
- `PROJECT_COPY_CONTROLLER` copies the Instances of the hub to their projects.
- `QUARANTINE_CONTROLLER` quarantines hub Instances whose labels identify no project.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, assert_never

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.errors import AlreadyExists
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, INSTANCE, NAMESPACE
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import HUB, PlaneName, cell_plane, deployment_of, federation_namespace
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planes.planes import upstream_key
from datum_compute.planning.federation.instances import (
    NO_DEPLOYMENT,
    OWNER_RECHECK_S,
    REASONS,
    DeleteCopy,
    KeepCopy,
    Problem,
    PublishCopy,
    Quarantine,
    ReleaseFromQuarantine,
    decide_project_copy,
    identity_problem,
    is_quarantined,
    plan_hub_copy,
    plan_hub_copy_deletion,
    plan_project_copy,
    plan_project_copy_deletion,
    plan_quarantine,
    plan_release_from_quarantine,
    quarantine_reason,
    should_publish,
    source_cells,
)
from datum_compute.planning.federation.unreachable import (
    UnreachableCell,
    find_unreachable,
    same_reachability,
)
from datum_compute.planning.initial_status import INITIAL_STATUS_S, age_s
from datum_compute.runtime.cache import Index
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    MANY_WORKERS,
    Controller,
    Done,
    Key,
    Outcome,
    Requeue,
    for_,
    reads,
    watches,
)
from datum_compute.runtime.event_recorder import EventRequest, reference_to
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.metrics import ComputedGauge, GaugeSample
from datum_compute.runtime.predicates import spec_or_metadata_changed

BY_ANNOTATED_CELL = "noted-elsewhere"
QUARANTINED_EVENT = "Quarantined"


async def reconcile(context: Context, key: Key) -> Outcome:
    client, hub = context.planes.require(key.plane), context.planes.hub
    namespace = client.read(NAMESPACE).get(Ref("", key.ref.namespace))
    if namespace is None:
        return Done()
    target = federation_namespace(namespace.metadata.uid)
    hub_instance = hub.read(INSTANCE).get(Ref(target, key.ref.name))
    is_identified = hub_instance is not None and _identifies_project(hub_instance, key)
    deployment = None
    if hub_instance is not None and is_identified:
        owner = Ref(
            key.ref.namespace,
            deployment_of(hub_instance.metadata.name, hub_instance.metadata.labels),
        )
        deployment = client.read(DEPLOYMENT).get(owner)
    decision = decide_project_copy(
        key.plane, key.ref.namespace, hub_instance, deployment, is_identified=is_identified
    )
    match decision:
        case KeepCopy():
            return Done()
        case DeleteCopy():
            return await _delete_project_copy(context, key)
        case Quarantine(instance, problem):
            return await _quarantine_instance(context, key, instance, problem)
        case ReleaseFromQuarantine(instance):
            return await _release_from_quarantine(context, instance)
        case PublishCopy(instance, owner_deployment):
            return await _copy_to_project(context, key, instance, owner_deployment)
        case _:
            assert_never(decision)


async def _copy_to_project(
    context: Context, key: Key, hub_instance: Instance, deployment: WorkloadDeployment
) -> Outcome:
    plan = plan_project_copy(
        key.plane,
        key.ref.namespace,
        hub_instance,
        deployment,
        context.planes.require(key.plane).read(INSTANCE).get(key.ref),
        _find_unreachable(context.planes.hub, hub_instance),
        context.now(),
    )
    return await apply_plan(context.planes, plan)


async def _delete_project_copy(context: Context, key: Key) -> Outcome:
    projection = context.planes.require(key.plane).read(INSTANCE).get(key.ref)
    return await apply_plan(context.planes, plan_project_copy_deletion(key.plane, projection))


async def _quarantine_instance(
    context: Context, key: Key, hub_instance: Instance, problem: Problem
) -> Outcome:
    outcome = await _mark_as_quarantined(context, hub_instance, problem)
    if not is_quarantined(hub_instance):
        return Requeue(OWNER_RECHECK_S)
    await _delete_project_copy(context, key)
    return outcome


async def _mark_as_quarantined(context: Context, instance: Instance, problem: Problem) -> Outcome:
    """Mark the copy and record an event, once the problem has lasted for the grace period."""
    key, now_s = Key(HUB, ref_of(instance)), context.elapsed_s()
    waited_s = now_s - context.state.unresolved_since_s.setdefault(key, now_s)
    plan = plan_quarantine(instance, problem, waited_s, context.now())
    outcome = await apply_plan(context.planes, plan)
    if plan.actions:
        reason, message = problem
        note = f"{reason}: {message}. It stays, and is checked again when its labels change"
        about = reference_to(INSTANCE, instance)
        context.planes.record_event(EventRequest(HUB, about, "Warning", QUARANTINED_EVENT, note))
    return outcome


async def _release_from_quarantine(context: Context, instance: Instance) -> Outcome:
    """Remove the marks, if there are any. A later problem starts a new grace period."""
    context.state.unresolved_since_s.pop(Key(HUB, ref_of(instance)), None)
    return await apply_plan(context.planes, plan_release_from_quarantine(instance))


def _identifies_project(hub_instance: Instance, key: Key) -> bool:
    """Return True if the labels of the hub instance name the project and namespace of the key."""
    return upstream_key(hub_instance.metadata.labels, key.ref.name) == key


def _find_unreachable(hub: CachedClient, instance: Instance) -> UnreachableCell | None:
    """Return the state of the first unreachable cell that the copy names."""
    clusters = hub.read(CLUSTER)
    found = (find_unreachable(clusters.get(Ref("", cell))) for cell in source_cells(instance))
    return next(filter(None, found), None)


def annotated_cell(copy: Instance) -> Iterable[str]:
    """Return the cell that the copy's annotation names, if its label names another one."""
    labeled_cell = copy.metadata.labels.get(labels.CELL)
    return (cell for cell in source_cells(copy) if cell != labeled_cell)


def map_hub_instance(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a hub copy to the project's copy.

    Both the labels of the copy and those of its namespace are used, because the labels of the copy
    may have been edited.
    """
    metadata = change.latest.metadata
    hub_namespace = client.read_unsynced(NAMESPACE).get(Ref("", metadata.namespace))
    labels_read = [metadata.labels]
    if hub_namespace is not None:
        labels_read.append(hub_namespace.metadata.labels)
    return filter(None, dict.fromkeys(upstream_key(found, metadata.name) for found in labels_read))


def map_cluster(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a Cluster whose reachability changed to the copies of its instances."""
    if same_reachability(change.old, change.new):
        return
    copies, cell = client.read_unsynced(INSTANCE), change.latest.metadata.name
    for instance in (
        *copies.list_with_label(labels.CELL, cell),
        *copies.list_by_index(BY_ANNOTATED_CELL, cell),
    ):
        yield from map_hub_instance(client, ObjectChange(None, instance))


def map_deployment(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map the creation and the deletion of a deployment to the copies of its instances."""
    if change.old is not None and change.new is not None:
        return []
    name = change.latest.metadata.name
    waiting = client.read_unsynced(INSTANCE).list_with_label(labels.DEPLOYMENT_NAME, name)
    return [Key(client.plane, ref_of(instance)) for instance in waiting]


PROJECT_COPY_CONTROLLER = Controller(
    name="projector",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE),
        reads(NAMESPACE),
        reads(NAMESPACE, on="hub"),
        watches(DEPLOYMENT, map_deployment),
        watches(INSTANCE, map_hub_instance, on="hub"),
        watches(CLUSTER, map_cluster, on="hub"),
    ),
    indexes=(Index(INSTANCE, BY_ANNOTATED_CELL, annotated_cell, on="hub"),),
    workers=MANY_WORKERS,
    entitled_only=True,
    modes=(FEDERATED,),
)


async def reconcile_hub_copy(context: Context, key: Key) -> Outcome:
    client, hub = context.planes.require(key.plane), context.planes.hub
    instance = client.read(INSTANCE).get(key.ref)
    published = context.state.published_instances
    if instance is None:
        published.pop(key, None)
        return await _delete_hub_copy(context, client, key)
    owner = instance.metadata.labels.get(labels.DEPLOYMENT_NAME, "")
    deployment = hub.read(DEPLOYMENT).get(Ref(key.ref.namespace, owner))
    copy = hub.read(INSTANCE).get(key.ref)
    if copy is None and not should_publish(instance, context.now()):
        return Requeue(INITIAL_STATUS_S)
    had_copy = (
        published.get(key) == instance.metadata.uid
        or age_s(instance, context.now()) > OWNER_RECHECK_S
    )
    if copy is None and deployment is not None and had_copy:
        # After a disconnect the cached deployments of the hub may be older than the cached copies.
        # A copy whose owner is gone would be garbage collected and created again repeatedly.
        deployment = await hub.get_uncached(DEPLOYMENT, ref_of(deployment))
    try:
        plan = plan_hub_copy(key.plane, instance, deployment, copy)
        if copy is None and plan.actions:
            published[key] = instance.metadata.uid
        return await apply_plan(context.planes, plan)
    except AlreadyExists:
        # The cell label of the copy was edited. This cell watches only copies with its label.
        copy = await hub.get_uncached(INSTANCE, key.ref)
        plan = plan_hub_copy(key.plane, instance, deployment, copy)
        return await apply_plan(context.planes, plan)


async def _delete_hub_copy(context: Context, client: CachedClient, key: Key) -> Outcome:
    """Delete a copy only after a live read from the cell confirms that the original is gone."""
    plan = plan_hub_copy_deletion(key.plane, context.planes.hub.read(INSTANCE).get(key.ref))
    if plan.actions and await client.get_uncached(INSTANCE, key.ref) is not None:
        return Requeue(1)
    return await apply_plan(context.planes, plan)


def map_hub_copy(_client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a copy to the cells that it names or named, so that its cell restores edited fields."""
    seen = [copy for copy in (change.old, change.new) if copy is not None]
    for cell in dict.fromkeys(name for copy in seen for name in source_cells(copy)):
        try:
            plane = cell_plane(cell)
        except ValueError:  # an edited label may not be a valid cell name
            continue
        yield Key(plane, ref_of(change.latest))


HUB_COPY_CONTROLLER = Controller(
    name="writeback",
    role="cell",
    reconcile=reconcile_hub_copy,
    edges=(
        for_(INSTANCE),
        reads(DEPLOYMENT, on="hub"),
        watches(INSTANCE, map_hub_copy, on="hub"),
    ),
    finalizers=(labels.INSTANCE_FINALIZER,),
    workers=MANY_WORKERS,
    modes=(FEDERATED,),
)


async def reconcile_quarantine(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    instance = client.read(INSTANCE).get(key.ref)
    if instance is None:
        context.state.unresolved_since_s.pop(key, None)
        return Done()
    hub_namespace = client.read(NAMESPACE).get(Ref("", key.ref.namespace))
    problem = identity_problem(instance, hub_namespace)
    if problem is not None:
        return await _mark_as_quarantined(context, instance, problem)
    if quarantine_reason(instance) == NO_DEPLOYMENT and is_quarantined(instance):
        return Done()  # the controller of project copies looks for its deployment
    return await _release_from_quarantine(context, instance)


def map_namespace(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a hub namespace whose labels changed to the copies in it."""
    old, new = change.old, change.new
    if old is not None and new is not None and old.metadata.labels == new.metadata.labels:
        return
    for instance in client.read_unsynced(INSTANCE).list_in_namespace(change.latest.metadata.name):
        yield Key(client.plane, ref_of(instance))


def _by_reason(instance: Instance) -> Iterable[str]:
    reason = quarantine_reason(instance)
    return (reason,) if reason else ()


def quarantine_gauge(client_of: Callable[[PlaneName], CachedClient | None]) -> ComputedGauge:
    """Return a gauge of quarantined copies by reason, including reasons without any."""

    def readings() -> Iterable[GaugeSample]:
        hub = client_of(HUB)
        informer = hub.informer(INSTANCE) if hub is not None else None
        counts = informer.cache.counts(QUARANTINED.name) if informer is not None else {}
        return [((reason,), float(counts.get(reason, 0))) for reason in REASONS]

    text = "Copies of instances on the hub that belong to no project or deployment, by reason."
    return ComputedGauge("compute_federation_quarantined_objects", text, ("reason",), readings)


QUARANTINED = Index(INSTANCE, "quarantined", _by_reason)

QUARANTINE_CONTROLLER = Controller(
    name="quarantine",
    role="hub",
    reconcile=reconcile_quarantine,
    edges=(
        for_(INSTANCE, update_filter=spec_or_metadata_changed),
        watches(NAMESPACE, map_namespace),
    ),
    indexes=(QUARANTINED,),
    modes=(FEDERATED,),
)
