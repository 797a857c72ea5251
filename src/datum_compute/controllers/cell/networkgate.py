"""The Network gate of an instance: cleared with the addresses that it gets from its deployment's
attachment, in one write with the condition."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from datum_compute.api import labels
from datum_compute.api.codec import plain
from datum_compute.api.conditions import TRUE
from datum_compute.api.instance import NETWORK_READY, Instance
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER
from datum_compute.api.meta import Ref, ref_of
from datum_compute.controllers.context import Context
from datum_compute.planning.network.addresses import interface_of, location_fields, network_verdict
from datum_compute.planning.rollout.gates import NETWORK, Decision, gate_names
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Edge, Key, reads, watches
from datum_compute.runtime.informer import ObjectChange

# Nobody says that an address of a full prefix has become free.
RECHECK_S = 30.0


def decide_network(context: Context, key: Key, instance: Instance) -> Decision | None:
    if NETWORK not in gate_names(instance) or instance.is_terminating:
        return None
    view = context.planes.require(key.plane)
    owner = instance.metadata.labels.get(labels.DEPLOYMENT_NAME, "")
    deployment = view.read(DEPLOYMENT).get(Ref(key.ref.namespace, owner))
    attachment = deployment.spec.network_attachment if deployment is not None else None
    interfaces, records = instance.status.network_interfaces, {}
    if not interfaces and attachment is not None and attachment.prefixes:
        addresses = context.state.addresses.addresses(view, attachment, instance)
        if addresses is not None:
            interfaces = [interface_of(instance, attachment, addresses)]
            records = {"networkInterfaces": plain(interfaces)}
    verdict = network_verdict(instance, attachment, interfaces)
    recheck_s = None if verdict.status == TRUE else RECHECK_S
    fields = location_fields(instance, attachment)
    return Decision(NETWORK, NETWORK_READY, verdict, recheck_s, records, fields)


def from_deployment(view: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    """Instances that wait for the network of their deployment."""
    old, new = change.old, change.new
    if new is None:
        return
    if old is not None and old.spec.network_attachment == new.spec.network_attachment:
        return
    for instance in view.cached(INSTANCE).with_label(labels.DEPLOYMENT_NAME, new.metadata.name):
        waits = NETWORK in gate_names(instance)
        if waits and instance.metadata.namespace == new.metadata.namespace:
            yield Key(view.plane, ref_of(instance))


EDGES: tuple[Edge, ...] = (
    watches(DEPLOYMENT, from_deployment),
    reads(SERVER),
)
