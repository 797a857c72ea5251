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
from datum_compute.planes.upstream import upstream_key
from datum_compute.planning.projection import OWNER_S, plan_projection
from datum_compute.planning.quarantine import (
    NO_DEPLOYMENT,
    deployment_problem,
    is_quarantined,
    quarantine_reason,
)
from datum_compute.planning.silence import Silence, are_equally_heard, silence_of
from datum_compute.runtime.controller import MANY_WORKERS, Controller, for_, reads, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Later, Outcome
from datum_compute.runtime.view import View


async def reconcile(context: Context, key: Key) -> Outcome:
    view, hub = context.planes.need(key.plane), context.planes.hub
    namespace = view.read(NAMESPACE).get(Ref("", key.ref.namespace))
    if namespace is None:
        return Done()
    home = federation_namespace(namespace.metadata.uid)
    hub_instance = hub.read(INSTANCE).get(Ref(home, key.ref.name))
    projection = view.read(INSTANCE).get(key.ref)
    owner = Ref(key.ref.namespace, _owner_name(hub_instance, key.ref.name))
    deployment = view.read(DEPLOYMENT).get(owner)
    if hub_instance is not None and deployment is None:
        problem = deployment_problem(member_name(key.plane), *owner)
        outcome = await set_apart(context, hub_instance, problem)
        return outcome if is_quarantined(hub_instance) else Later(OWNER_S)
    if hub_instance is not None and quarantine_reason(hub_instance) == NO_DEPLOYMENT:
        return await readmit(context, hub_instance)
    plan = plan_projection(
        key.plane,
        key.ref.namespace,
        hub_instance,
        deployment,
        projection,
        _silence(hub, hub_instance),
        context.now(),
    )
    return await carry_out(context.planes, plan)


def _silence(hub: View, instance: Instance | None) -> Silence | None:
    cell = instance.metadata.labels.get(labels.CELL, "") if instance is not None else ""
    return silence_of(hub.read(CLUSTER).get(Ref("", cell)))


def _owner_name(instance: Instance | None, name: str) -> str:
    """The deployment by label, else by the instance's name without its ordinal."""
    named = instance.metadata.labels if instance is not None else {}
    return named.get(labels.DEPLOYMENT_NAME) or name.rpartition("-")[0]


def from_hub_instance(_view: View, change: Change[Any]) -> Iterable[Key]:
    metadata = change.latest.metadata
    key = upstream_key(metadata.labels, metadata.name)
    return [key] if key else []


def from_cluster(view: View, change: Change[Any]) -> Iterable[Key]:
    """What is shown of a cell depends on whether it answers."""
    if are_equally_heard(change.old, change.new):
        return
    for instance in view.cached(INSTANCE).labelled(labels.CELL, change.latest.metadata.name):
        yield from from_hub_instance(view, Change(None, instance))


def from_deployment(view: View, change: Change[Any]) -> Iterable[Key]:
    """Projections wait for their deployment and leave with it."""
    if change.old is not None and change.new is not None:
        return []
    name = change.latest.metadata.name
    waiting = view.cached(INSTANCE).labelled(labels.DEPLOYMENT_NAME, name)
    return [Key(view.plane, ref_of(instance)) for instance in waiting]


CONTROLLER = Controller(
    name="projector",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(INSTANCE),
        reads(NAMESPACE),
        watches(DEPLOYMENT, from_deployment),
        watches(INSTANCE, from_hub_instance, on="hub"),
        watches(CLUSTER, from_cluster, on="hub"),
    ),
    workers=MANY_WORKERS,
    entitled_only=True,
)
