"""Hub Instance -> read-only projection in its project; gone from the hub, gone from there."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.identity import federation_namespace
from datum_compute.api.instance import Instance
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, INSTANCE, NAMESPACE
from datum_compute.api.meta import Ref, ref_of
from datum_compute.api.plane import member_name
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.controllers.management.quarantine import readmit, set_apart
from datum_compute.planes.planes import upstream_key
from datum_compute.planning.projection import (
    OWNER_S,
    cells_of_copy,
    plan_projection,
    plan_unprojection,
)
from datum_compute.planning.quarantine import (
    NO_DEPLOYMENT,
    Problem,
    deployment_name_of,
    deployment_problem,
    is_quarantined,
    quarantine_reason,
    slot_name_problem,
)
from datum_compute.planning.silence import Silence, are_equally_heard, silence_of
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
    if hub_instance is None:
        return await _show_no_more(context, key)
    if not _leads_to(key, hub_instance):
        # Others have a while to put it right.
        return await _show_no_more(context, key) if is_quarantined(hub_instance) else Done()
    problem = slot_name_problem(hub_instance)
    if problem is not None:
        return await _set_apart(context, key, hub_instance, problem)
    owner = Ref(key.ref.namespace, deployment_name_of(hub_instance))
    deployment = view.read(DEPLOYMENT).get(owner)
    if deployment is None:
        problem = deployment_problem(member_name(key.plane), *owner)
        return await _set_apart(context, key, hub_instance, problem)
    if quarantine_reason(hub_instance) == NO_DEPLOYMENT:
        return await readmit(context, hub_instance)
    plan = plan_projection(
        key.plane,
        key.ref.namespace,
        hub_instance,
        deployment,
        view.read(INSTANCE).get(key.ref),
        _silence(hub, hub_instance),
        context.now(),
    )
    return await carry_out(context.planes, plan)


async def _show_no_more(context: Context, key: Key) -> Outcome:
    projection = context.planes.require(key.plane).read(INSTANCE).get(key.ref)
    return await carry_out(context.planes, plan_unprojection(key.plane, projection))


async def _set_apart(
    context: Context, key: Key, hub_instance: Instance, problem: Problem
) -> Outcome:
    outcome = await set_apart(context, hub_instance, problem)
    if not is_quarantined(hub_instance):
        return Requeue(OWNER_S)
    await _show_no_more(context, key)
    return outcome


def _leads_to(key: Key, hub_instance: Instance) -> bool:
    return upstream_key(hub_instance.metadata.labels, key.ref.name) == key


def _silence(hub: CachedClient, instance: Instance) -> Silence | None:
    """Of the first cell that it says it is of and that does not answer."""
    clusters = hub.read(CLUSTER)
    found = (silence_of(clusters.get(Ref("", cell))) for cell in cells_of_copy(instance))
    return next(filter(None, found), None)


def noted_elsewhere(copy: Instance) -> Iterable[str]:
    """The cell that a copy is of by its note, if its label says something else."""
    labelled = copy.metadata.labels.get(labels.CELL)
    return (cell for cell in cells_of_copy(copy) if cell != labelled)


def from_hub_instance(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """By what it says of itself, and by the home it lies in: anybody may edit what it says, and
    its project would never hear that it has gone."""
    metadata = change.latest.metadata
    home = view.cached(NAMESPACE).get(Ref("", metadata.namespace))
    told = [metadata.labels] if home is None else [metadata.labels, home.metadata.labels]
    return filter(None, dict.fromkeys(upstream_key(said, metadata.name) for said in told))


def from_cluster(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """What is shown of a cell depends on whether it answers."""
    if are_equally_heard(change.old, change.new):
        return
    copies, cell = view.cached(INSTANCE), change.latest.metadata.name
    for instance in (*copies.with_label(labels.CELL, cell), *copies.indexed(NOTED, cell)):
        yield from from_hub_instance(view, ObjectChange(None, instance))


def from_deployment(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Projections wait for their deployment and leave with it."""
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
)
