"""A Network: its IPv6 prefix, and what must be gone before it can go."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, TRUE, Verdict
from datum_compute.api.kinds import NETWORK
from datum_compute.api.namespace import Namespace
from datum_compute.api.network import Network, NetworkIpamStatus, NetworkStatus
from datum_compute.api.networkcontext import NetworkContext
from datum_compute.api.plane import PlaneName
from datum_compute.planning.apply import plan_status
from datum_compute.planning.network.prefixes import (
    IPV6_NETWORKS,
    Holder,
    Ledger,
    Taking,
    plan_giving_back,
    plan_taking,
)
from datum_compute.planning.plan import Action, Create, Plan, Wait, add_finalizer, drop_finalizer
from datum_compute.planning.verdicts import with_verdicts

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
    taking = plan_taking(
        Holder(plane, NETWORK, network, network.metadata.uid), IPV6_NETWORKS, ledger, shown=shown
    )
    status = _status(network, _verdicts(taking), taking.cidr or shown, now)
    return Plan(
        (*taking.actions, *plan_status(plane, NETWORK, network, status)),
        requeue_after_s=RECHECK_S if taking.refusal else None,
    )


def _verdicts(taking: Taking) -> dict[str, Verdict]:
    if taking.refusal is not None:
        return {IPAM_ALLOCATED: taking.refusal, READY: taking.refusal}
    return {
        IPAM_ALLOCATED: Verdict(TRUE, "Allocated", f"The network has {taking.cidr}"),
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
        actions: list[Action] = plan_giving_back(ledger.own)
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
