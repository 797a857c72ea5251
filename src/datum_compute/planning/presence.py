"""A network in a location: the bindings that want it there, and the context they share.

The context goes with the last binding. A binding that has just been promised a context must not
lose it to a removal that was decided before the binding existed, so each binding takes hold first:
it writes its uid on the context, and the context is removed only in the version in which it was
seen without bindings.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    Verdict,
    find_condition,
)
from datum_compute.api.fields import LocalReference, NamespacedReference
from datum_compute.api.kinds import NETWORK, NETWORK_BINDING, NETWORK_CONTEXT
from datum_compute.api.locationbinding import LocationBinding
from datum_compute.api.meta import ObjectMeta, Ref, owner_reference, ref_of
from datum_compute.api.network import Network
from datum_compute.api.networkbinding import NetworkBinding, NetworkBindingStatus
from datum_compute.api.networkcontext import NetworkContext, NetworkContextSpec
from datum_compute.api.plane import PlaneName
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.plan import Action, Delete, Patch, Plan
from datum_compute.planning.verdicts import with_verdicts

RECHECK_S = 60.0
READY = "Ready"
_NAME_MAX = 50  # leaves room for the family in the names of subnets, within a label value


def network_ref(binding: NetworkBinding) -> Ref:
    named = binding.spec.network
    return Ref(named.namespace or binding.metadata.namespace, named.name)


def context_ref(network: Ref, location: str) -> Ref:
    """``<network>-<location>``; with a digest where that could mean two things, or is too long."""
    name = f"{network.name}-{location}"
    if "-" in location or "." in location or len(name) > _NAME_MAX:
        digest = hashlib.sha256(f"{network.name}\0{location}".encode()).hexdigest()[:10]
        name = f"{name[: _NAME_MAX - 11].rstrip('-.')}-{digest}"
    return Ref(network.namespace, name)


def binding_labels(network: Ref, location: str) -> dict[str, str]:
    """By which a binding is found when its network, location or context changes."""
    return {
        labels.NETWORK: network.name[:63].rstrip("-."),
        labels.LOCATION: location[:63].rstrip("-."),
        labels.NETWORK_CONTEXT: context_ref(network, location).name,
    }


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What a binding speaks of, as far as it is there."""

    network: Network | None
    location: LocationBinding | None
    context: NetworkContext | None


def plan_binding(plane: PlaneName, binding: NetworkBinding, around: Surroundings, now: str) -> Plan:
    if binding.is_terminating:
        return Plan()
    wanted = binding_labels(network_ref(binding), binding.spec.location.name)
    if any(binding.metadata.labels.get(label) != value for label, value in wanted.items()):
        metadata = {"uid": binding.metadata.uid, "labels": wanted}
        ref = ref_of(binding)
        return Plan((Patch(plane, NETWORK_BINDING, ref, {"metadata": metadata}, "to be found"),))
    actions = _plan_context(plane, binding, around)
    verdict = binding_verdict(binding, around)
    held = around.context if verdict.status == TRUE else None
    if held is not None and held.metadata.uid != binding.status.network_context_uid:
        actions.append(_take_hold(plane, binding, held))
    status = _binding_status(binding, verdict, held, now)
    return Plan(
        (*actions, *plan_status(plane, NETWORK_BINDING, binding, status)),
        requeue_after_s=None if verdict.status == TRUE else RECHECK_S,
    )


def binding_verdict(binding: NetworkBinding, around: Surroundings) -> Verdict:
    network, location, context = around.network, around.location, around.context
    if network is None or (network.is_terminating and context is None):
        message = f"Network {network_ref(binding)} does not exist"
        return Verdict(FALSE, "NetworkNotFound", message)
    if location is None:
        message = f"The project has no LocationBinding for {binding.spec.location.name}"
        return Verdict(FALSE, "LocationNotAvailable", message)
    if context is None:
        return Verdict(UNKNOWN, "NetworkContextNotReady", "The network context is being made")
    if not _is_about(context, binding):
        message = f"NetworkContext {context.metadata.name} is about another network or location"
        return Verdict(FALSE, "NetworkContextNotReady", message)
    ready = find_condition(context.status.conditions, READY)
    if ready is None or ready.status != TRUE:
        # Unknown until somebody has looked at it; what is False has a cause worth passing on.
        told = ready or Condition(type=READY, status=UNKNOWN, reason="Pending")
        message = f"NetworkContext {context.metadata.name}: {told.reason}: {told.message}"
        return Verdict(told.status, "NetworkContextNotReady", message)
    return Verdict(TRUE, "NetworkContextReady", f"NetworkContext {context.metadata.name} is ready")


def _is_about(context: NetworkContext, binding: NetworkBinding) -> bool:
    spec = context.spec
    return (spec.network.name, spec.location.name) == (
        binding.spec.network.name,
        binding.spec.location.name,
    )


def _plan_context(plane: PlaneName, binding: NetworkBinding, around: Surroundings) -> list[Action]:
    """Made for the first binding, and kept equal to the network's numbers."""
    network, context = around.network, around.context
    if network is None or around.location is None:
        return []
    if network.is_terminating or (context is not None and context.is_terminating):
        return []
    if context is not None and not _is_about(context, binding):
        return []
    location = binding.spec.location.name
    ref = context_ref(ref_of(network), location)
    desired = NetworkContext(
        metadata=ObjectMeta(
            name=ref.name,
            namespace=ref.namespace,
            owner_references=[owner_reference(network, NETWORK)],
        ),
        spec=NetworkContextSpec(
            network=LocalReference(name=network.metadata.name),
            location=LocalReference(name=location),
            ip_families=network.spec.ip_families,
            mtu=network.spec.mtu,
            network_generation=network.metadata.generation,
        ),
    )
    reason = f"{network.metadata.name} is wanted in {location}"
    return plan_object(plane, NETWORK_CONTEXT, desired, context, reason)


def _take_hold(plane: PlaneName, binding: NetworkBinding, context: NetworkContext) -> Patch:
    uid = binding.metadata.uid
    metadata = {"uid": context.metadata.uid, "annotations": {labels.LAST_HOLDER: uid}}
    return Patch(plane, NETWORK_CONTEXT, ref_of(context), {"metadata": metadata}, "take hold")


def _binding_status(
    binding: NetworkBinding, verdict: Verdict, held: NetworkContext | None, now: str
) -> NetworkBindingStatus:
    generation, before = binding.metadata.generation, binding.status
    told = with_verdicts(before.conditions, {READY: verdict}, generation=generation, now=now)
    named = (
        NamespacedReference(name=held.metadata.name, namespace=held.metadata.namespace)
        if held is not None
        else None
    )
    return msgspec.structs.replace(
        before,
        conditions=told,
        network_context_ref=named,
        network_context_uid=held.metadata.uid if held is not None else "",
        observed_generation=generation,
    )


def holders_of(context: NetworkContext, bindings: Sequence[NetworkBinding]) -> list[NetworkBinding]:
    """The bindings that keep the context; one that is going still does until it is gone."""
    ref = ref_of(context)
    return [b for b in bindings if context_ref(network_ref(b), b.spec.location.name) == ref]


def plan_context_removal(plane: PlaneName, context: NetworkContext) -> Plan:
    """Only in the state in which it was seen without holders."""
    metadata = context.metadata
    reason = "no binding wants it any more"
    version = metadata.resource_version
    gone = Delete(plane, NETWORK_CONTEXT, ref_of(context), metadata.uid, reason, version)
    return Plan((gone,))
