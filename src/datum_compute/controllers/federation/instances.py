"""Copies the Instances of the hub to their projects. The rules are in planning/federation/instances.py."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, assert_never

from datum_compute.api import labels
from datum_compute.api.identity import deployment_of, federation_namespace
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, INSTANCE, NAMESPACE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.controllers.context import FEDERATED, Context
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.instance_quarantine import quarantine, release_from_quarantine
from datum_compute.planes.planes import upstream_key
from datum_compute.planning.federation.instances import (
    OWNER_S,
    DeleteCopy,
    KeepCopy,
    PublishCopy,
    Quarantine,
    ReleaseFromQuarantine,
    cells_of_copy,
    decide_project_copy,
    plan_projection,
    plan_unprojection,
)
from datum_compute.planning.federation.unreachable import Silence, are_equally_heard, silence_of
from datum_compute.planning.quarantine import Problem, is_quarantined
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
from datum_compute.runtime.informer import ObjectChange

NOTED = "noted-elsewhere"


async def reconcile(context: Context, key: Key) -> Outcome:
    view, hub = context.planes.require(key.plane), context.planes.hub
    namespace = view.read(NAMESPACE).get(Ref("", key.ref.namespace))
    if namespace is None:
        return Done()
    home = federation_namespace(namespace.metadata.uid)
    hub_instance = hub.read(INSTANCE).get(Ref(home, key.ref.name))
    is_identified = hub_instance is not None and _identifies(hub_instance, key)
    deployment = None
    if hub_instance is not None and is_identified:
        owner = Ref(
            key.ref.namespace,
            deployment_of(hub_instance.metadata.name, hub_instance.metadata.labels),
        )
        deployment = view.read(DEPLOYMENT).get(owner)
    decision = decide_project_copy(
        key.plane, key.ref.namespace, hub_instance, deployment, is_identified=is_identified
    )
    match decision:
        case KeepCopy():
            return Done()
        case DeleteCopy():
            return await _delete_project_copy(context, key)
        case Quarantine(instance, problem):
            return await _quarantine(context, key, instance, problem)
        case ReleaseFromQuarantine(instance):
            return await release_from_quarantine(context, instance)
        case PublishCopy(instance, owner_deployment):
            return await _publish(context, key, instance, owner_deployment)
        case _:
            assert_never(decision)


async def _publish(
    context: Context, key: Key, hub_instance: Instance, deployment: WorkloadDeployment
) -> Outcome:
    plan = plan_projection(
        key.plane,
        key.ref.namespace,
        hub_instance,
        deployment,
        context.planes.require(key.plane).read(INSTANCE).get(key.ref),
        _silence(context.planes.hub, hub_instance),
        context.now(),
    )
    return await carry_out(context.planes, plan)


async def _delete_project_copy(context: Context, key: Key) -> Outcome:
    projection = context.planes.require(key.plane).read(INSTANCE).get(key.ref)
    return await carry_out(context.planes, plan_unprojection(key.plane, projection))


async def _quarantine(
    context: Context, key: Key, hub_instance: Instance, problem: Problem
) -> Outcome:
    outcome = await quarantine(context, hub_instance, problem)
    if not is_quarantined(hub_instance):
        return Requeue(OWNER_S)
    await _delete_project_copy(context, key)
    return outcome


def _identifies(hub_instance: Instance, key: Key) -> bool:
    """Return True if the labels of the hub instance lead to the key."""
    return upstream_key(hub_instance.metadata.labels, key.ref.name) == key


def _silence(hub: CachedClient, instance: Instance) -> Silence | None:
    """Return the state of the first unreachable cell that the copy names."""
    clusters = hub.read(CLUSTER)
    found = (silence_of(clusters.get(Ref("", cell))) for cell in cells_of_copy(instance))
    return next(filter(None, found), None)


def noted_elsewhere(copy: Instance) -> Iterable[str]:
    """Return the cell that the copy's annotation names, if its label names another one."""
    labelled = copy.metadata.labels.get(labels.CELL)
    return (cell for cell in cells_of_copy(copy) if cell != labelled)


def from_hub_instance(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map by the copy's own labels and by its namespace's labels: labels on the copy may have been
    edited."""
    metadata = change.latest.metadata
    home = view.cached(NAMESPACE).get(Ref("", metadata.namespace))
    told = [metadata.labels] if home is None else [metadata.labels, home.metadata.labels]
    return filter(None, dict.fromkeys(upstream_key(said, metadata.name) for said in told))


def from_cluster(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a Cluster whose reachability changed to the copies of its instances."""
    if are_equally_heard(change.old, change.new):
        return
    copies, cell = view.cached(INSTANCE), change.latest.metadata.name
    for instance in (*copies.with_label(labels.CELL, cell), *copies.indexed(NOTED, cell)):
        yield from from_hub_instance(view, ObjectChange(None, instance))


def from_deployment(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map the creation and the deletion of a deployment to the copies of its instances."""
    if change.old is not None and change.new is not None:
        return []
    name = change.latest.metadata.name
    waiting = view.cached(INSTANCE).with_label(labels.DEPLOYMENT_NAME, name)
    return [Key(view.plane, ref_of(instance)) for instance in waiting]


CONTROLLER = Controller(
    name="projector",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE),
        reads(NAMESPACE),
        reads(NAMESPACE, on="hub"),
        watches(DEPLOYMENT, from_deployment),
        watches(INSTANCE, from_hub_instance, on="hub"),
        watches(CLUSTER, from_cluster, on="hub"),
    ),
    indexes=(Index(INSTANCE, NOTED, noted_elsewhere, on="hub"),),
    workers=MANY_WORKERS,
    entitled_only=True,
    modes=(FEDERATED,),
)
