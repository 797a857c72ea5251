"""Controller of network attachments: the NetworkBinding and the subnets of a deployment."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.kinds import (
    DEPLOYMENT,
    LOCATION_BINDING,
    NETWORK_BINDING,
    NETWORK_CONTEXT,
    SUBNET,
)
from datum_compute.api.meta.objects import Ref
from datum_compute.api.networking.network import NetworkBinding
from datum_compute.controllers.context import Context
from datum_compute.controllers.effects import apply_plan
from datum_compute.planning.network.attachment import (
    ContextWithSubnets,
    DesiredNetwork,
    binding_ref,
    city_of,
    is_rollout_complete,
    location_for,
    network_of,
    plan_attachment,
)
from datum_compute.planning.network.subnets import subnet_name
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import (
    Controller,
    Done,
    Key,
    Outcome,
    for_,
    owns,
    reads,
    watches,
)
from datum_compute.runtime.informer import ObjectChange
from datum_compute.runtime.predicates import any_of, spec_or_metadata_changed, value_changed


async def reconcile(context: Context, key: Key) -> Outcome:
    client = context.planes.require(key.plane)
    deployment = client.read(DEPLOYMENT).get(key.ref)
    if deployment is None:
        return Done()
    location = location_for(deployment.spec.city_code, client.read(LOCATION_BINDING).all())
    bindings = client.read(NETWORK_BINDING)
    bound_context = None
    if location is not None:
        network = network_of(deployment.spec.template, key.ref.namespace)
        desired = DesiredNetwork(network, location.spec.location_ref.name)
        bound_context = _observe_context(client, bindings.get(binding_ref(deployment, desired)))
    owned = bindings.list_owned_by(deployment.metadata.uid)
    plan = plan_attachment(key.plane, deployment, location, owned, bound_context)
    return await apply_plan(context.planes, plan)


def _observe_context(
    client: CachedClient, binding: NetworkBinding | None
) -> ContextWithSubnets | None:
    reference = binding.status.network_context_ref if binding is not None else None
    if reference is None:
        return None
    context = client.read(NETWORK_CONTEXT).get(Ref(reference.namespace, reference.name))
    if context is None:
        return None
    names = [subnet_name(context, family) for family in context.spec.ip_families]
    namespace = context.metadata.namespace
    subnets = {name: client.read(SUBNET).get(Ref(namespace, name)) for name in names}
    return ContextWithSubnets(
        context, {name: subnet for name, subnet in subnets.items() if subnet is not None}
    )


def map_context(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a context whose spec changed to the deployments that use it.

    A change of its status also changes the status of the bindings, which has an event of its own.
    """
    old, new = change.old, change.new
    if old is None or new is None or old.spec == new.spec:
        return
    name = new.metadata.name
    for binding in client.read_unsynced(NETWORK_BINDING).list_with_label(
        labels.NETWORK_CONTEXT, name
    ):
        for owner in binding.metadata.owner_references:
            if owner.kind == DEPLOYMENT.kind:
                yield Key(client.plane, Ref(binding.metadata.namespace, owner.name))


def map_location(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Map a location that was added or removed to the deployments in its city."""
    if change.old is None or change.new is None:
        for deployment in client.read_unsynced(DEPLOYMENT).list_with_label(
            labels.CITY_CODE, city_of(change.latest)
        ):
            metadata = deployment.metadata
            yield Key(client.plane, Ref(metadata.namespace, metadata.name))


CONTROLLER = Controller(
    name="attachment",
    role="project",
    reconcile=reconcile,
    edges=(
        for_(
            DEPLOYMENT,
            update_filter=any_of(value_changed(is_rollout_complete), spec_or_metadata_changed),
        ),
        owns(NETWORK_BINDING),
        watches(NETWORK_CONTEXT, map_context),
        watches(LOCATION_BINDING, map_location),
        reads(SUBNET),
    ),
    entitled_only=True,
)
