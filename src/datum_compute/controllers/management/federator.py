"""Project WorkloadDeployment -> hub, and the hub's status back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import is_true
from datum_compute.api.identity import execution_namespace, federation_namespace
from datum_compute.api.kinds import BINDING, CLUSTER, DEPLOYMENT, NAMESPACE, WORK
from datum_compute.api.meta import Ref
from datum_compute.api.resourcebinding import ResourceBinding
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planes.upstream import upstream_key
from datum_compute.planning.federation import (
    HubState,
    hub_namespace_of,
    plan_federation,
    plan_orphan,
)
from datum_compute.planning.propagation import binding_name, work_name
from datum_compute.planning.silence import Silence, are_equally_heard, silence_of
from datum_compute.runtime.controller import Controller, for_, reads, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View


async def reconcile(context: Context, key: Key) -> Outcome:
    view, hub = context.planes.need(key.plane), context.planes.hub
    deployment = view.read(DEPLOYMENT).get(key.ref)
    if deployment is None:
        return await _remove_orphan(context, view, key)
    namespace = view.read(NAMESPACE).get(Ref("", key.ref.namespace))
    target = Ref(hub_namespace_of(deployment, namespace), key.ref.name)
    binding = hub.read(BINDING).get(Ref(target.namespace, binding_name(DEPLOYMENT, target.name)))
    state = HubState(
        namespace=hub.read(NAMESPACE).get(Ref("", target.namespace)),
        deployment=hub.read(DEPLOYMENT).get(target),
        binding=binding,
        awaited=_awaited(hub, target) if deployment.is_terminating else (),
        silence=_silence(hub, binding),
    )
    plan = plan_federation(key.plane, deployment, namespace, state, context.now())
    return await carry_out(context.planes, plan)


async def _remove_orphan(context: Context, view: View, key: Key) -> Outcome:
    """A hub that was restored from a backup may hold what its project has let go since. The project
    is asked itself: a deployment that only our view lacks is no reason to remove anything."""
    namespace = view.read(NAMESPACE).get(Ref("", key.ref.namespace))
    if namespace is None:
        return Done()
    target = Ref(federation_namespace(namespace.metadata.uid), key.ref.name)
    plan = plan_orphan(context.planes.hub.read(DEPLOYMENT).get(target))
    if plan.actions and await view.live(DEPLOYMENT, key.ref) is None:
        return await carry_out(context.planes, plan)
    return Done()


def _silence(hub: View, binding: ResourceBinding | None) -> Silence | None:
    """Of the first cell it is placed on that does not answer."""
    clusters = hub.read(CLUSTER)
    targets = binding.spec.clusters if binding is not None else ()
    found = (silence_of(clusters.get(Ref("", target.name))) for target in targets)
    return next(filter(None, found), None)


def _awaited(hub: View, target: Ref) -> tuple[str, ...]:
    """The cells that answer and for which the hub still holds a Work of the deployment."""
    works, name = hub.read(WORK), work_name(DEPLOYMENT, target)
    return tuple(
        sorted(
            cluster.metadata.name
            for cluster in hub.read(CLUSTER).all()
            if is_true(cluster.status.conditions, "Ready")
            and works.get(Ref(execution_namespace(cluster.metadata.name), name)) is not None
        )
    )


def from_hub_work(_view: View, change: Change[Any]) -> Iterable[Key]:
    """A Work that goes is a cell's word that its copy is gone."""
    metadata = change.latest.spec.workload.manifests[0]["metadata"]
    key = upstream_key(metadata.get("labels", {}), metadata["name"])
    return [key] if key and change.new is None else []


def from_cluster(view: View, change: Change[Any]) -> Iterable[Key]:
    """A cell that stops answering is no longer waited for, nor believed."""
    if are_equally_heard(change.old, change.new):
        return
    for work in view.cached(WORK).in_namespace(execution_namespace(change.latest.metadata.name)):
        yield from from_hub_work(view, Change(work, None))


def from_hub_deployment(_view: View, change: Change[Any]) -> Iterable[Key]:
    """The project's deployment that a hub deployment stands for."""
    metadata = change.latest.metadata
    key = upstream_key(metadata.labels, metadata.name)
    return [key] if key else []


def from_hub_binding(view: View, change: Change[Any]) -> Iterable[Key]:
    """By the hub namespace's identity: the hub deployment may be gone already."""
    binding = change.latest
    namespace = view.cached(NAMESPACE).get(Ref("", binding.metadata.namespace))
    if namespace is None or binding.spec.resource.kind != DEPLOYMENT.kind:
        return []
    key = upstream_key(namespace.metadata.labels, binding.spec.resource.name)
    return [key] if key else []


CONTROLLER = Controller(
    name="federator",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(DEPLOYMENT),
        reads(NAMESPACE),
        reads(NAMESPACE, on="hub"),
        watches(DEPLOYMENT, from_hub_deployment, on="hub"),
        watches(BINDING, from_hub_binding, on="hub"),
        watches(WORK, from_hub_work, on="hub"),
        watches(CLUSTER, from_cluster, on="hub"),
    ),
    finalizers=(labels.FEDERATOR_FINALIZER,),
)
