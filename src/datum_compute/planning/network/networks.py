"""A Network: its IPv6 prefix, and what must be gone before it can go.

A network in a location: the bindings that want it there, and the context they share.

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
    with_verdicts,
)
from datum_compute.api.fields import LocalReference, NamespacedReference
from datum_compute.api.kinds import NETWORK, NETWORK_BINDING, NETWORK_CONTEXT
from datum_compute.api.locationbinding import LocationBinding
from datum_compute.api.meta import ObjectMeta, Ref, owner_reference, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.network import Network, NetworkIpamStatus, NetworkStatus
from datum_compute.api.networkbinding import NetworkBinding, NetworkBindingStatus
from datum_compute.api.networkcontext import NetworkContext, NetworkContextSpec
from datum_compute.api.plane import PlaneName
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.network.prefixes import (
    IPV6_NETWORKS,
    Ledger,
    PrefixHolder,
    PrefixPlan,
    plan_allocation,
    plan_allocation_release,
)
from datum_compute.planning.plan import (
    Action,
    Create,
    Delete,
    Patch,
    Plan,
    Wait,
    add_finalizer,
    drop_finalizer,
)

# Nobody tells a network that a pool has room again.
RECHECK_S = 30.0
IPAM_ALLOCATED, READY = "IPAMAllocated", "Ready"


def plan_default_network(
    plane: PlaneName, namespace: Namespace | None, existing: Network | None, desired: Network
) -> Plan:
    """Create the default network of a project if its namespace is open and has none of that name.

    A user may delete the network: a new one follows when the old one is gone, as for the default
    service account of a namespace. A network that a user created under the name is kept.
    """
    if namespace is None or namespace.is_terminating or existing is not None:
        return Plan()
    if labels.REVOKED in namespace.metadata.annotations:
        return Plan()
    return Plan((Create(plane, NETWORK, desired, "every project has one"),))


def plan_network(
    plane: PlaneName,
    network: Network,
    contexts: Sequence[NetworkContext],
    ledger: Ledger,
    inside: int,
    now: str,
) -> Plan:
    """``contexts`` are all of this network, ``inside`` how many prefixes were cut from its own."""
    if network.is_terminating:
        return _plan_removal(plane, network, contexts, ledger, inside, now)
    guard = add_finalizer(plane, NETWORK, network, labels.NETWORK_FINALIZER)
    if guard:
        return Plan(tuple(guard))
    if network.spec.ipam.mode != "Auto" or "IPv6" not in network.spec.ip_families:
        status = _status(network, {READY: Verdict(TRUE, "Ready", "Nothing to allocate")}, "", now)
        return Plan(tuple(plan_status(plane, NETWORK, network, status)))
    shown = network.status.ipam.ipv6_prefix
    plan = plan_allocation(
        PrefixHolder(plane, NETWORK, network, network.metadata.uid),
        IPV6_NETWORKS,
        ledger,
        shown=shown,
    )
    status = _status(network, _verdicts(plan), plan.cidr or shown, now)
    return Plan(
        (*plan.actions, *plan_status(plane, NETWORK, network, status)),
        requeue_after_s=RECHECK_S if plan.refusal else None,
    )


def _verdicts(plan: PrefixPlan) -> dict[str, Verdict]:
    if plan.refusal is not None:
        return {IPAM_ALLOCATED: plan.refusal, READY: plan.refusal}
    return {
        IPAM_ALLOCATED: Verdict(TRUE, "Allocated", f"The network has {plan.cidr}"),
        READY: Verdict(TRUE, "Ready", "The network can be used"),
    }


def _plan_removal(
    plane: PlaneName,
    network: Network,
    contexts: Sequence[NetworkContext],
    ledger: Ledger,
    inside: int,
    now: str,
) -> Plan:
    """First its presence everywhere, then the prefixes cut from its own, then its own."""
    if contexts:
        places = ", ".join(sorted(c.spec.location.name for c in contexts))
        verdict = Verdict(FALSE, "InUse", f"Instances still use it in {places}")
    elif inside:
        verdict = Verdict(FALSE, "RangeOccupied", f"{inside} prefixes cut from it are not back yet")
    else:
        actions: list[Action] = plan_allocation_release(ledger.own)
        released = drop_finalizer(plane, NETWORK, network, labels.NETWORK_FINALIZER)
        return Plan((*actions, *released))
    status = _status(network, {READY: verdict}, network.status.ipam.ipv6_prefix, now)
    report = plan_status(plane, NETWORK, network, status)
    return Plan((*report, Wait(verdict.message)), requeue_after_s=RECHECK_S)


def _status(
    network: Network, verdicts: dict[str, Verdict], ipv6_prefix: str, now: str
) -> NetworkStatus:
    generation = network.metadata.generation
    told = with_verdicts(network.status.conditions, verdicts, generation=generation, now=now)
    return msgspec.structs.replace(
        network.status,
        conditions=told,
        ipam=NetworkIpamStatus(ipv6_prefix=ipv6_prefix),
        observed_generation=generation,
    )


RECHECK_S_PRESENCE = 60.0
READY_PRESENCE = "Ready"
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
class BindingInputs:
    """What a binding speaks of, as far as it is there."""

    network: Network | None
    location: LocationBinding | None
    context: NetworkContext | None


def plan_binding(
    plane: PlaneName, binding: NetworkBinding, around: BindingInputs, now: str
) -> Plan:
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
        requeue_after_s=None if verdict.status == TRUE else RECHECK_S_PRESENCE,
    )


def binding_verdict(binding: NetworkBinding, around: BindingInputs) -> Verdict:
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
    ready = find_condition(context.status.conditions, READY_PRESENCE)
    if ready is None or ready.status != TRUE:
        # Unknown until somebody has looked at it; what is False has a cause worth passing on.
        told = ready or Condition(type=READY_PRESENCE, status=UNKNOWN, reason="Pending")
        message = f"NetworkContext {context.metadata.name}: {told.reason}: {told.message}"
        return Verdict(told.status, "NetworkContextNotReady", message)
    return Verdict(TRUE, "NetworkContextReady", f"NetworkContext {context.metadata.name} is ready")


def _is_about(context: NetworkContext, binding: NetworkBinding) -> bool:
    spec = context.spec
    return (spec.network.name, spec.location.name) == (
        binding.spec.network.name,
        binding.spec.location.name,
    )


def _plan_context(plane: PlaneName, binding: NetworkBinding, around: BindingInputs) -> list[Action]:
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
    told = with_verdicts(
        before.conditions, {READY_PRESENCE: verdict}, generation=generation, now=now
    )
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
