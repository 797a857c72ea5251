"""Subnets of a network context: a claim for each address family, a subnet for each claim.

Each subnet has one prefix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_network

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    ConditionValue,
    find_condition,
    is_true,
    set_conditions,
)
from datum_compute.api.kinds import NETWORK_CONTEXT, SUBNET, SUBNET_CLAIM
from datum_compute.api.meta.fields import IpFamily, LocalReference
from datum_compute.api.meta.objects import ObjectMeta, owner_reference
from datum_compute.api.networking.network import (
    Network,
    NetworkContext,
    NetworkContextIpamStatus,
    NetworkContextStatus,
    Subnet,
    SubnetClaim,
    SubnetClaimStatus,
    SubnetSpec,
    SubnetStatus,
)
from datum_compute.api.planes import PlaneName
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.network.prefixes import (
    IPV4_SUBNETS,
    IPV6_SUBNET_LENGTH,
    Ledger,
    Pool,
    PrefixHolder,
    PrefixPlan,
    plan_allocation,
    plan_allocation_release,
)
from datum_compute.planning.plan import Action, Plan, Wait, add_finalizer, drop_finalizer

RECHECK_S = 30.0
IPAM_ALLOCATED, ALLOCATED, PROGRAMMED, READY = "IPAMAllocated", "Allocated", "Programmed", "Ready"


def subnet_name(context: NetworkContext, family: IpFamily) -> str:
    return f"{context.metadata.name}-{family.lower()}"


def families_of(context: NetworkContext, network: Network) -> list[IpFamily]:
    """Return the families that get a prefix; none if the network allocates none."""
    return list(context.spec.ip_families) if network.spec.ipam.mode == "Auto" else []


# --- the context


def plan_context(
    plane: PlaneName,
    context: NetworkContext,
    network: Network,
    claims: Mapping[str, SubnetClaim],
    subnets: Mapping[str, Subnet],
    now: str,
) -> Plan:
    """Plan the claims and the status of a context.

    ``claims`` and ``subnets`` are those of the context, by name.
    """
    actions: list[Action] = []
    families = families_of(context, network)
    for family in families:
        claim = _build_subnet_claim(context, family)
        name = claim.metadata.name
        actions += plan_object(plane, SUBNET_CLAIM, claim, claims.get(name), f"for {family}")
    verdict = _context_verdict([(f, subnets.get(subnet_name(context, f))) for f in families])
    status = _context_status(context, verdict, now)
    return Plan((*actions, *plan_status(plane, NETWORK_CONTEXT, context, status)))


def _build_subnet_claim(context: NetworkContext, family: IpFamily) -> SubnetClaim:
    metadata = context.metadata
    return SubnetClaim(
        metadata=ObjectMeta(
            name=subnet_name(context, family),
            namespace=metadata.namespace,
            owner_references=[owner_reference(context, NETWORK_CONTEXT)],
        ),
        spec=SubnetSpec(
            subnet_class="private",
            network_context=LocalReference(name=metadata.name),
            location=context.spec.location,
            ip_family=family,
        ),
    )


def _context_verdict(subnets: Sequence[tuple[IpFamily, Subnet | None]]) -> ConditionValue:
    if not subnets:
        return ConditionValue(TRUE, "Ready", "Nothing to allocate")
    for family, subnet in subnets:
        allocated = subnet and find_condition(subnet.status.conditions, ALLOCATED)
        if not allocated or allocated.status == UNKNOWN:
            return ConditionValue(UNKNOWN, "Pending", f"The {family} subnet has no prefix yet")
        if allocated.status == FALSE:
            return ConditionValue(FALSE, allocated.reason, allocated.message)
    prefixes = ", ".join(prefix_of(subnet) for _, subnet in subnets if subnet is not None)
    return ConditionValue(TRUE, "Allocated", f"Allocated {prefixes}")


def _context_status(
    context: NetworkContext, verdict: ConditionValue, now: str
) -> NetworkContextStatus:
    generation = context.metadata.generation
    ready = ConditionValue(TRUE, "Ready", verdict.message) if verdict.status == TRUE else verdict
    conditions = set_conditions(
        context.status.conditions,
        {IPAM_ALLOCATED: verdict, READY: ready},
        generation=generation,
        now=now,
    )
    has_ipv6 = "IPv6" in context.spec.ip_families and verdict.reason == "Allocated"
    ipv6_ref = LocalReference(name=subnet_name(context, "IPv6")) if has_ipv6 else None
    return NetworkContextStatus(
        conditions=conditions,
        ipam=NetworkContextIpamStatus(ipv6_subnet_ref=ipv6_ref),
        observed_generation=generation,
    )


# --- the claim


def plan_claim(
    plane: PlaneName,
    claim: SubnetClaim,
    context: NetworkContext | None,
    subnet: Subnet | None,
    now: str,
) -> Plan:
    """Plan the Subnet and the status of a claim.

    ``subnet`` is the Subnet with the name of the claim, if it exists.
    """
    if claim.is_terminating or context is None or context.is_terminating:
        return Plan()
    actions: list[Action] = []
    if subnet is None:
        actions += plan_object(plane, SUBNET, _build_subnet(claim, context), None, "claimed")
    status = _claim_status(claim, subnet, now)
    return Plan((*actions, *plan_status(plane, SUBNET_CLAIM, claim, status)))


def _build_subnet(claim: SubnetClaim, context: NetworkContext) -> Subnet:
    return Subnet(
        metadata=ObjectMeta(
            name=claim.metadata.name,
            namespace=claim.metadata.namespace,
            owner_references=[owner_reference(context, NETWORK_CONTEXT)],
            finalizers=[labels.SUBNET_FINALIZER],
        ),
        spec=claim.spec,
    )


def _claim_status(claim: SubnetClaim, subnet: Subnet | None, now: str) -> SubnetClaimStatus:
    generation = claim.metadata.generation
    verdicts: dict[str, ConditionValue] = {}
    for type_ in (ALLOCATED, PROGRAMMED):
        found = subnet and find_condition(subnet.status.conditions, type_)
        if found:
            verdicts[type_] = ConditionValue(found.status, found.reason, found.message)
    ready = subnet is not None and is_true(subnet.status.conditions, READY)
    verdicts[READY] = (
        ConditionValue(TRUE, "SubnetReady", f"Subnet {claim.metadata.name} is ready")
        if ready
        else ConditionValue(FALSE, "SubnetNotReady", f"Subnet {claim.metadata.name} is not ready")
    )
    observed = subnet.status if subnet is not None else SubnetStatus()
    return SubnetClaimStatus(
        conditions=set_conditions(
            claim.status.conditions, verdicts, generation=generation, now=now
        ),
        subnet_ref=LocalReference(name=claim.metadata.name) if ready else None,
        start_address=observed.start_address,
        prefix_length=observed.prefix_length,
        observed_generation=generation,
    )


# --- the subnet


def pool_of(subnet: Subnet, network: Network | None) -> Pool | None:
    """Return the pool of the subnet's prefix; None while its network has no IPv6 prefix."""
    if subnet.spec.ip_family == "IPv4":
        return IPV4_SUBNETS
    prefix = network.status.ipam.ipv6_prefix if network is not None else ""
    return Pool(prefix, IPV6_SUBNET_LENGTH) if prefix else None


def plan_subnet(
    plane: PlaneName,
    subnet: Subnet,
    network: Network | None,
    ledger: Ledger,
    now: str,
) -> Plan:
    """Plan the prefix and the status of a Subnet.

    ``ledger`` contains the allocations from the pool that ``pool_of`` returns.
    """
    assert not subnet.is_terminating, "see plan_subnet_removal"
    if missing := add_finalizer(plane, SUBNET, subnet, labels.SUBNET_FINALIZER):
        return Plan(tuple(missing))
    pool = pool_of(subnet, network)
    if pool is None:
        return Plan((Wait("the network has no IPv6 prefix yet"),), requeue_after_s=RECHECK_S)
    identity = network.metadata.uid if network is not None else subnet.metadata.uid
    seed = f"{identity}/{subnet.spec.location.name}"
    holder = PrefixHolder(plane, SUBNET, subnet, seed)
    plan = plan_allocation(
        holder, pool, ledger, recorded=prefix_of(subnet), requested=_requested_prefix(subnet)
    )
    status = _subnet_status(subnet, plan, now)
    return Plan(
        (*plan.actions, *plan_status(plane, SUBNET, subnet, status)),
        requeue_after_s=RECHECK_S if plan.refusal else None,
    )


def plan_subnet_removal(
    plane: PlaneName, subnet: Subnet, ledger: Ledger, users: Mapping[str, str]
) -> Plan:
    """Release the unused prefixes and the finalizer. ``users`` maps each prefix to its user.

    The allocation of a prefix in use stays, for example while a cell is unreachable. The controller
    of IPAllocations releases it later (controllers/network/ip_allocations.py).
    """
    deletions = plan_allocation_release([a for a in ledger.own if not users.get(a.spec.cidr)])
    released = drop_finalizer(plane, SUBNET, subnet, labels.SUBNET_FINALIZER)
    return Plan((*deletions, *released))


def prefix_of(subnet: Subnet) -> str:
    """Return the prefix in the status, or the empty string."""
    status = subnet.status
    return f"{status.start_address}/{status.prefix_length}" if status.start_address else ""


def _requested_prefix(subnet: Subnet) -> str:
    spec = subnet.spec
    default = IPV4_SUBNETS.length if spec.ip_family == "IPv4" else IPV6_SUBNET_LENGTH
    return f"{spec.start_address}/{spec.prefix_length or default}" if spec.start_address else ""


def _subnet_status(subnet: Subnet, plan: PrefixPlan, now: str) -> SubnetStatus:
    generation = subnet.metadata.generation
    if plan.refusal is not None:
        # Keep the previous prefix, because machines may have addresses from it.
        verdicts = {ALLOCATED: plan.refusal, READY: plan.refusal}
        start, length = subnet.status.start_address, subnet.status.prefix_length
    else:
        network = ip_network(plan.cidr)
        start, length = str(network.network_address), network.prefixlen
        verdicts = {
            ALLOCATED: ConditionValue(TRUE, "PrefixAllocated", f"The subnet has {plan.cidr}"),
            PROGRAMMED: ConditionValue(TRUE, "Programmed", "Cells assign its addresses"),
            READY: ConditionValue(TRUE, "Ready", "Instances can use its addresses"),
        }
    return msgspec.structs.replace(
        subnet.status,
        conditions=set_conditions(
            subnet.status.conditions, verdicts, generation=generation, now=now
        ),
        start_address=start,
        prefix_length=length,
        observed_generation=generation,
    )
