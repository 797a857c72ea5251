"""Networks of a project: prefix, bindings, and the context that the bindings of a location share.

- A network is deleted after its contexts, and after the prefixes allocated from its prefix.
- A context is deleted with its last binding. A binding writes its uid on the context before its
  status names the context, and the context is deleted only at the version at which it was observed
  without bindings. Otherwise a deletion decided earlier could remove the context of a new binding.
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
    ConditionValue,
    find_condition,
    set_conditions,
)
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import NETWORK, NETWORK_BINDING, NETWORK_CONTEXT
from datum_compute.api.meta.fields import LocalReference, NamespacedReference
from datum_compute.api.meta.objects import ObjectMeta, Ref, owner_reference, ref_of
from datum_compute.api.networking.location import LocationBinding
from datum_compute.api.networking.network import (
    Network,
    NetworkBinding,
    NetworkBindingStatus,
    NetworkContext,
    NetworkContextSpec,
    NetworkIpamStatus,
    NetworkStatus,
)
from datum_compute.api.planes import PlaneName
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

# No event reports that a pool has free prefixes again.
POOL_RECHECK_S = 30.0
BINDING_RECHECK_S = 60.0
# A live list contained bindings that the cache did not.
CONTEXT_RECHECK_S = 5.0
IPAM_ALLOCATED, READY = "IPAMAllocated", "Ready"
_NAME_MAX = 50  # leaves room for the family in the names of subnets, within a label value


# --- the network


def plan_default_network(
    plane: PlaneName, namespace: Namespace | None, existing: Network | None, desired: Network
) -> Plan:
    """Create the default network of a project if its namespace exists and has no such network.

    If a user deletes the network, it is created again, like the default service account of a
    namespace. A network that a user created with this name is kept.
    """
    if namespace is None or namespace.is_terminating or existing is not None:
        return Plan()
    if labels.REVOKED in namespace.metadata.annotations:
        return Plan()
    return Plan((Create(plane, NETWORK, desired, "default network of the project"),))


def plan_network(
    plane: PlaneName,
    network: Network,
    contexts: Sequence[NetworkContext],
    ledger: Ledger,
    prefixes_in_use: int,
    now: str,
) -> Plan:
    """Plan the prefix and the status of a network.

    ``contexts`` are all contexts of the network. ``prefixes_in_use`` is the number of prefixes that
    were allocated from its prefix.
    """
    if network.is_terminating:
        return _plan_removal(plane, network, contexts, ledger, prefixes_in_use, now)
    if missing := add_finalizer(plane, NETWORK, network, labels.NETWORK_FINALIZER):
        return Plan(tuple(missing))
    if network.spec.ipam.mode != "Auto" or "IPv6" not in network.spec.ip_families:
        status = _network_status(
            network, {READY: ConditionValue(TRUE, "Ready", "Nothing to allocate")}, "", now
        )
        return Plan(tuple(plan_status(plane, NETWORK, network, status)))
    recorded = network.status.ipam.ipv6_prefix
    plan = plan_allocation(
        PrefixHolder(plane, NETWORK, network, network.metadata.uid),
        IPV6_NETWORKS,
        ledger,
        recorded=recorded,
    )
    status = _network_status(network, _ready_verdicts(plan), plan.cidr or recorded, now)
    return Plan(
        (*plan.actions, *plan_status(plane, NETWORK, network, status)),
        requeue_after_s=POOL_RECHECK_S if plan.refusal else None,
    )


def _ready_verdicts(plan: PrefixPlan) -> dict[str, ConditionValue]:
    if plan.refusal is not None:
        return {IPAM_ALLOCATED: plan.refusal, READY: plan.refusal}
    return {
        IPAM_ALLOCATED: ConditionValue(TRUE, "Allocated", f"The network has {plan.cidr}"),
        READY: ConditionValue(TRUE, "Ready", "The network can be used"),
    }


def _plan_removal(
    plane: PlaneName,
    network: Network,
    contexts: Sequence[NetworkContext],
    ledger: Ledger,
    prefixes_in_use: int,
    now: str,
) -> Plan:
    """Wait for the contexts and for the prefixes allocated from this prefix, then release it."""
    if contexts:
        locations = ", ".join(sorted(context.spec.location.name for context in contexts))
        verdict = ConditionValue(FALSE, "InUse", f"The network is in use in {locations}")
    elif prefixes_in_use:
        verdict = ConditionValue(
            FALSE,
            "RangeOccupied",
            f"{prefixes_in_use} prefixes allocated from its prefix are in use",
        )
    else:
        actions: list[Action] = plan_allocation_release(ledger.own)
        released = drop_finalizer(plane, NETWORK, network, labels.NETWORK_FINALIZER)
        return Plan((*actions, *released))
    status = _network_status(network, {READY: verdict}, network.status.ipam.ipv6_prefix, now)
    report = plan_status(plane, NETWORK, network, status)
    return Plan((*report, Wait(verdict.message)), requeue_after_s=POOL_RECHECK_S)


def _network_status(
    network: Network, verdicts: dict[str, ConditionValue], ipv6_prefix: str, now: str
) -> NetworkStatus:
    generation = network.metadata.generation
    conditions = set_conditions(network.status.conditions, verdicts, generation=generation, now=now)
    return msgspec.structs.replace(
        network.status,
        conditions=conditions,
        ipam=NetworkIpamStatus(ipv6_prefix=ipv6_prefix),
        observed_generation=generation,
    )


# --- bindings and contexts


def network_ref(binding: NetworkBinding) -> Ref:
    reference = binding.spec.network
    return Ref(reference.namespace or binding.metadata.namespace, reference.name)


def context_ref(network: Ref, location: str) -> Ref:
    """Return ``<network>-<location>``, with a digest if that is ambiguous or too long."""
    name = f"{network.name}-{location}"
    if "-" in location or "." in location or len(name) > _NAME_MAX:
        digest = hashlib.sha256(f"{network.name}\0{location}".encode()).hexdigest()[:10]
        name = f"{name[: _NAME_MAX - 11].rstrip('-.')}-{digest}"
    return Ref(network.namespace, name)


def binding_labels(network: Ref, location: str) -> dict[str, str]:
    """Return the labels by which bindings are found when a network, location or context changes."""
    return {
        labels.NETWORK: network.name[:63].rstrip("-."),
        labels.LOCATION: location[:63].rstrip("-."),
        labels.NETWORK_CONTEXT: context_ref(network, location).name,
    }


@dataclass(frozen=True, slots=True)
class BindingInputs:
    """The objects that a binding refers to, if they exist."""

    network: Network | None
    location: LocationBinding | None
    context: NetworkContext | None


def plan_binding(
    plane: PlaneName, binding: NetworkBinding, inputs: BindingInputs, now: str
) -> Plan:
    if binding.is_terminating:
        return Plan()
    desired = binding_labels(network_ref(binding), binding.spec.location.name)
    if any(binding.metadata.labels.get(label) != value for label, value in desired.items()):
        metadata = {"uid": binding.metadata.uid, "labels": desired}
        ref = ref_of(binding)
        return Plan(
            (Patch(plane, NETWORK_BINDING, ref, {"metadata": metadata}, "restore the labels"),)
        )
    actions = _plan_context(plane, binding, inputs)
    verdict = binding_verdict(binding, inputs)
    context = inputs.context if verdict.status == TRUE else None
    if context is not None and context.metadata.uid != binding.status.network_context_uid:
        actions.append(_annotate_holder(plane, binding, context))
    status = _binding_status(binding, verdict, context, now)
    return Plan(
        (*actions, *plan_status(plane, NETWORK_BINDING, binding, status)),
        requeue_after_s=None if verdict.status == TRUE else BINDING_RECHECK_S,
    )


def binding_verdict(binding: NetworkBinding, inputs: BindingInputs) -> ConditionValue:
    network, location, context = inputs.network, inputs.location, inputs.context
    if network is None or (network.is_terminating and context is None):
        message = f"Network {network_ref(binding)} does not exist"
        return ConditionValue(FALSE, "NetworkNotFound", message)
    if location is None:
        message = f"The project has no LocationBinding for {binding.spec.location.name}"
        return ConditionValue(FALSE, "LocationNotAvailable", message)
    if context is None:
        return ConditionValue(
            UNKNOWN, "NetworkContextNotReady", "The network context is being created"
        )
    if not _is_context_of(context, binding):
        message = f"NetworkContext {context.metadata.name} belongs to another network or location"
        return ConditionValue(FALSE, "NetworkContextNotReady", message)
    ready = find_condition(context.status.conditions, READY)
    if ready is None or ready.status != TRUE:
        # The reason of a False condition is the cause.
        reported = ready or Condition(type=READY, status=UNKNOWN, reason="Pending")
        message = f"NetworkContext {context.metadata.name}: {reported.reason}: {reported.message}"
        return ConditionValue(reported.status, "NetworkContextNotReady", message)
    return ConditionValue(
        TRUE, "NetworkContextReady", f"NetworkContext {context.metadata.name} is ready"
    )


def _is_context_of(context: NetworkContext, binding: NetworkBinding) -> bool:
    spec = context.spec
    return (spec.network.name, spec.location.name) == (
        binding.spec.network.name,
        binding.spec.location.name,
    )


def _plan_context(plane: PlaneName, binding: NetworkBinding, inputs: BindingInputs) -> list[Action]:
    """Create the context for the first binding, and update it when the network changes."""
    network, context = inputs.network, inputs.context
    if network is None or inputs.location is None:
        return []
    if network.is_terminating or (context is not None and context.is_terminating):
        return []
    if context is not None and not _is_context_of(context, binding):
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
    reason = f"{network.metadata.name} is used in {location}"
    return plan_object(plane, NETWORK_CONTEXT, desired, context, reason)


def _annotate_holder(plane: PlaneName, binding: NetworkBinding, context: NetworkContext) -> Patch:
    uid = binding.metadata.uid
    metadata = {"uid": context.metadata.uid, "annotations": {labels.LAST_HOLDER: uid}}
    return Patch(
        plane, NETWORK_CONTEXT, ref_of(context), {"metadata": metadata}, "record the holder"
    )


def _binding_status(
    binding: NetworkBinding, verdict: ConditionValue, context: NetworkContext | None, now: str
) -> NetworkBindingStatus:
    generation, before = binding.metadata.generation, binding.status
    conditions = set_conditions(before.conditions, {READY: verdict}, generation=generation, now=now)
    reference = (
        NamespacedReference(name=context.metadata.name, namespace=context.metadata.namespace)
        if context is not None
        else None
    )
    return msgspec.structs.replace(
        before,
        conditions=conditions,
        network_context_ref=reference,
        network_context_uid=context.metadata.uid if context is not None else "",
        observed_generation=generation,
    )


def holders_of(context: NetworkContext, bindings: Sequence[NetworkBinding]) -> list[NetworkBinding]:
    """Return the bindings that use the context, including terminating ones."""
    ref = ref_of(context)
    return [b for b in bindings if context_ref(network_ref(b), b.spec.location.name) == ref]


def plan_context_removal(plane: PlaneName, context: NetworkContext) -> Plan:
    """Delete the context at the version at which it was observed without bindings."""
    metadata = context.metadata
    reason = "no binding uses it"
    version = metadata.resource_version
    deletion = Delete(plane, NETWORK_CONTEXT, ref_of(context), metadata.uid, reason, version)
    return Plan((deletion,))
