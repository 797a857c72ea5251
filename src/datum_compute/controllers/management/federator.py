"""Project WorkloadDeployment -> hub, and the hub's status back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.identity import decoded_project
from datum_compute.api.kinds import BINDING, DEPLOYMENT, NAMESPACE
from datum_compute.api.meta import Ref
from datum_compute.api.plane import project_plane
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import carry_out
from datum_compute.planning.federation import HubState, hub_namespace_of, plan_federation
from datum_compute.planning.propagation import binding_name
from datum_compute.runtime.controller import Controller, reads, watches
from datum_compute.runtime.informer import Change
from datum_compute.runtime.key import Key
from datum_compute.runtime.outcome import Done, Outcome
from datum_compute.runtime.view import View


async def reconcile(context: Context, key: Key) -> Outcome:
    view, hub = context.planes.need(key.plane), context.planes.hub
    deployment = view.read(DEPLOYMENT).get(key.ref)
    if deployment is None:
        return Done()
    namespace = view.read(NAMESPACE).get(Ref("", key.ref.namespace))
    target = Ref(hub_namespace_of(deployment, namespace), key.ref.name)
    state = HubState(
        namespace=hub.read(NAMESPACE).get(Ref("", target.namespace)),
        deployment=hub.read(DEPLOYMENT).get(target),
        binding=hub.read(BINDING).get(Ref(target.namespace, binding_name(DEPLOYMENT, target.name))),
    )
    plan = plan_federation(key.plane, deployment, namespace, state, context.now())
    return await carry_out(context.planes, plan)


def from_hub_deployment(_view: View, change: Change[Any]) -> Iterable[Key]:
    """The project's deployment that a hub deployment stands for, by its identity labels."""
    hub_deployment = change.new or change.old
    if hub_deployment is None:
        return
    named = hub_deployment.metadata.labels
    project = decoded_project(named.get(labels.UPSTREAM_CLUSTER, ""))
    namespace = named.get(labels.UPSTREAM_NAMESPACE)
    if project and namespace:
        yield Key(project_plane(project), Ref(namespace, hub_deployment.metadata.name))


def from_hub_binding(view: View, change: Change[Any]) -> Iterable[Key]:
    """By the hub namespace's identity: the hub deployment may be gone already."""
    binding = change.new or change.old
    if binding is None or binding.spec.resource.kind != DEPLOYMENT.kind:
        return
    namespace = view.cached(NAMESPACE).get(Ref("", binding.metadata.namespace))
    named = namespace.metadata.labels if namespace is not None else {}
    project = decoded_project(named.get(labels.UPSTREAM_CLUSTER, ""))
    upstream = named.get(labels.UPSTREAM_NAMESPACE)
    if project and upstream:
        yield Key(project_plane(project), Ref(upstream, binding.spec.resource.name))


CONTROLLER = Controller(
    name="federator",
    role="project",
    kind=DEPLOYMENT,
    reconcile=reconcile,
    watches=(
        reads("project", NAMESPACE),
        reads("hub", NAMESPACE),
        watches("hub", DEPLOYMENT, from_hub_deployment),
        watches("hub", BINDING, from_hub_binding),
    ),
)
