"""Finalizers that stand for something the platform has still to undo.

Whoever takes one away leaves machines, prefixes or copies behind that nobody looks for any more. So
only those may who hold the verb ``release`` on the kind: the controllers, and operators who know
what they leave behind. A controller with a finalizer of its own needs a line here; a test says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datum_compute.api import labels
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import (
    BINDING,
    CLAIM,
    CLUSTER,
    CLUSTER_BINDING,
    CONSUMER,
    DEPLOYMENT,
    ENTITLEMENT,
    INSTANCE,
    NETWORK,
    PROJECT,
    SERVER,
    SUBNET,
    WORK,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo

RELEASE = "release"  # the verb
_FIELD = "metadata.finalizers"

GUARDS: Mapping[str, tuple[str, ...]] = {
    WORKLOAD.resource: (labels.WORKLOAD_FINALIZER,),
    DEPLOYMENT.resource: (
        labels.FEDERATOR_FINALIZER,
        labels.WORKLOAD_FINALIZER,
        labels.REFERENCED_DATA_FINALIZER,
    ),
    CLAIM.resource: (labels.CLAIM_FINALIZER,),
    INSTANCE.resource: (labels.INSTANCE_FINALIZER, labels.PROVISIONER_FINALIZER),
    SERVER.resource: (labels.DRIVER_FINALIZER,),
    NETWORK.resource: (labels.NETWORK_FINALIZER,),
    SUBNET.resource: (labels.SUBNET_FINALIZER,),
    BINDING.resource: (labels.BINDING_FINALIZER,),
    CLUSTER_BINDING.resource: (labels.BINDING_FINALIZER,),
    WORK.resource: (labels.EXECUTION_FINALIZER,),
    PROJECT.resource: (labels.PROJECT_FINALIZER,),
    ENTITLEMENT.resource: (labels.ENTITLEMENT_FINALIZER,),
    CONSUMER.resource: (labels.CONSUMER_FINALIZER,),
    CLUSTER.resource: (labels.CLUSTER_FINALIZER,),
}


def released_guards(kind: KindInfo[Any], new: JsonObject, old: JsonObject) -> list[str]:
    """Those that the write would take away."""
    kept = new["metadata"].get("finalizers", ())
    return [f for f in _guards_of(kind, old) if f not in kept]


def with_guards(kind: KindInfo[Any], sent: JsonObject, old: JsonObject) -> JsonObject:
    """A replacement that says nothing of finalizers, as a manifest from a file, with those that
    stand for something."""
    guards, metadata = _guards_of(kind, old), sent.get("metadata")
    if not guards or not isinstance(metadata, dict) or "finalizers" in metadata:
        return sent
    return {**sent, "metadata": {**metadata, "finalizers": guards}}


def guard_causes(kind: KindInfo[Any], released: list[str]) -> list[Cause]:
    why = (
        f"Forbidden: {', '.join(released)} stays until the platform has undone what it stands for; "
        f"delete the {kind.kind} and wait, and if it stays ask an operator (to remove a finalizer "
        f'by hand needs the verb "{RELEASE}" on {kind.resource})'
    )
    return [Cause(_FIELD, "FieldValueForbidden", why)] if released else []


def _guards_of(kind: KindInfo[Any], obj: JsonObject) -> list[str]:
    known = GUARDS.get(kind.resource, ())
    return [f for f in obj["metadata"].get("finalizers", ()) if f in known]
