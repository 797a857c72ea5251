"""Allocate prefixes from pools, and find the objects that use a prefix.

Allocation:

- All prefixes of a pool have one length, and the name of an IPAllocation is made from the prefix.
  So two allocations never overlap, and the API server rejects the second create of a prefix.
- The allocation is written before the status that contains the prefix. After a crash between the
  two writes it is found again by the uid of its holder.
- The search starts at an index computed from the holder's seed. A holder that is created again
  finds its previous prefix if it is free, concurrent holders seldom choose the same prefix, and a
  released prefix is not reused immediately.

A prefix in use is not given to another holder. A prefix is in use by

- a deployment of the project that has it in its network attachment;
- a Work that carries such a deployment to a cell, also if the Work is a tombstone, because the cell
  may still have the deployment;
- an instance with an address of the prefix, also if its deployment now uses another network.

Usually the controller of the holder releases the allocation. It does not if the prefix was in use
when the holder was deleted, if a user removed the finalizer, or if a crash interrupted it. Then
``plan_orphaned_allocation`` releases it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import FALSE, ConditionValue
from datum_compute.api.karmada import Work
from datum_compute.api.kinds import IP_ALLOCATION
from datum_compute.api.meta.fields import IpFamily, TypedObjectReference
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, ref_of
from datum_compute.api.networking.network import IPAllocation, IPAllocationSpec
from datum_compute.api.planes import PLATFORM, PlaneName, member_name
from datum_compute.planning.plan import Action, Create, Delete, Plan, Wait

# Interval of checks that the holder of an allocation still exists, and that its prefix is used.
HOLDER_RECHECK_S = 600.0
USE_RECHECK_S = 60.0


@dataclass(frozen=True, slots=True)
class Pool:
    """A prefix from which prefixes of one length are allocated."""

    cidr: str
    length: int
    project_max: int | None = None  # maximum number of prefixes of one project

    @property
    def network(self) -> IPv4Network | IPv6Network:
        return ip_network(self.cidr)

    @property
    def family(self) -> IpFamily:
        return "IPv4" if self.network.version == 4 else "IPv6"

    @property
    def count(self) -> int:
        return 1 << (self.length - self.network.prefixlen)

    def prefix(self, index: int) -> str:
        network = self.network
        start = int(network.network_address) + (index << (network.max_prefixlen - self.length))
        return str(type(network)((start, self.length)))

    def contains(self, cidr: str) -> bool:
        inner = ip_network(cidr)
        outer = self.network
        if inner.version != outer.version or inner.prefixlen != self.length:
            return False
        shift = outer.max_prefixlen - outer.prefixlen
        return int(inner.network_address) >> shift == int(outer.network_address) >> shift


# Pools of the whole platform: a /20 for each network and location, a /48 for each network.
# The limit for a project keeps prefixes free for the others.
IPV4_SUBNETS = Pool("10.128.0.0/9", 20, project_max=128)
IPV6_NETWORKS = Pool("fd20::/20", 48, project_max=1024)
IPV6_SUBNET_LENGTH = 64


@dataclass(frozen=True, slots=True)
class PrefixHolder:
    """The object that holds a prefix.

    ``seed`` decides where the search for a prefix starts. It is the same for an object that is
    created again.
    """

    plane: PlaneName
    kind: KindInfo[Any]
    object: ApiObject
    seed: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """Recorded allocations.

    ``own`` are those of the holder. ``allocated`` are all allocated prefixes of the pool, of which
    ``of_project`` belong to the holder's project.
    """

    own: Sequence[IPAllocation]
    allocated: Collection[str]
    of_project: int = 0


@dataclass(frozen=True, slots=True)
class PrefixPlan:
    """The prefix of a holder and the actions that allocate it, or the refusal of the allocation."""

    cidr: str = ""
    actions: tuple[Action, ...] = ()
    refusal: ConditionValue | None = None


def plan_allocation(
    holder: PrefixHolder, pool: Pool, ledger: Ledger, *, recorded: str = "", requested: str = ""
) -> PrefixPlan:
    """Plan the allocation of a prefix.

    ``recorded`` is the prefix in the holder's status, ``requested`` the prefix in its spec.
    """
    own = sorted(
        (a for a in ledger.own if not a.is_terminating), key=lambda allocation: allocation.spec.cidr
    )
    if own:
        kept = next((a for a in own if a.spec.cidr == recorded), own[0])
        spare = tuple(
            _delete_allocation(a, "the holder has another allocation") for a in own if a is not kept
        )
        return PrefixPlan(kept.spec.cidr, spare)
    if pool.project_max is not None and ledger.of_project >= pool.project_max:
        return PrefixPlan(refusal=_prefix_limit_verdict(holder, pool, ledger))
    exact = recorded or requested
    if exact and not pool.contains(exact):
        message = f"{exact} is not a /{pool.length} of {pool.cidr}"
        return PrefixPlan(refusal=ConditionValue(FALSE, "RangeUnsupported", message))
    if exact and exact in ledger.allocated:
        message = (
            f"{exact} is allocated to another object; delete this object to get another prefix"
        )
        return PrefixPlan(refusal=ConditionValue(FALSE, "RetainedAddressConflict", message))
    cidr = exact or free_prefix(pool, ledger.allocated, holder.seed)
    if cidr is None:
        message = f"All {pool.count} prefixes of {pool.cidr} (/{pool.length}) are allocated"
        return PrefixPlan(refusal=ConditionValue(FALSE, "AddressPoolExhausted", message))
    plan = Create(
        PLATFORM, IP_ALLOCATION, _build_allocation(holder, pool, cidr), "allocate a prefix"
    )
    return PrefixPlan(cidr, (plan,))


def _prefix_limit_verdict(holder: PrefixHolder, pool: Pool, ledger: Ledger) -> ConditionValue:
    message = (
        f"Project {member_name(holder.plane)} holds {ledger.of_project} of at most "
        f"{pool.project_max} prefixes of {pool.cidr} (/{pool.length}); "
        "delete an unused network"
    )
    return ConditionValue(FALSE, "PrefixLimitReached", message)


def plan_allocation_release(own: Sequence[IPAllocation]) -> list[Action]:
    return [_delete_allocation(a, "the prefix is not used") for a in own if not a.is_terminating]


class HolderState(Enum):
    EXISTS = auto()
    UNKNOWN = auto()  # its project is not engaged, or its kind cannot be read
    GONE = auto()


def plan_orphaned_allocation(allocation: IPAllocation, holder: HolderState, user: str) -> Plan:
    """Release an allocation whose holder is gone and whose prefix is not used.

    ``user`` names an object or an allocation that uses the prefix. It only matters
    if the holder is gone.
    """
    if holder is not HolderState.GONE:
        return Plan(requeue_after_s=HOLDER_RECHECK_S)
    if user:
        return Plan((Wait(f"{allocation.spec.cidr} is used by {user}"),), USE_RECHECK_S)
    return Plan(tuple(plan_allocation_release([allocation])))


def is_project_removed(allocation: IPAllocation) -> bool:
    """Return True if the project of the holder no longer exists, and therefore its holder."""
    return labels.PROJECT_REMOVED in allocation.metadata.labels


def free_prefix(pool: Pool, allocated: Collection[str], seed: str) -> str | None:
    """Return the first free prefix at or after an index computed from the seed, or None."""
    if len(allocated) >= pool.count:
        return None
    first = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8]) % pool.count
    candidates = (pool.prefix((first + step) % pool.count) for step in range(pool.count))
    return next((cidr for cidr in candidates if cidr not in allocated), None)


def allocation_name(cidr: str) -> str:
    """Return the name of the IPAllocation of a prefix, which is unique for each prefix."""
    network = ip_network(cidr)
    if network.version == 4:
        return f"ipv4-{str(network.network_address).replace('.', '-')}-{network.prefixlen}"
    return f"ipv6-{int(network.network_address):032x}-{network.prefixlen}"


def pool_label(cidr: str) -> str:
    return allocation_name(cidr)


def _build_allocation(holder: PrefixHolder, pool: Pool, cidr: str) -> IPAllocation:
    metadata, project = holder.object.metadata, member_name(holder.plane)
    return IPAllocation(
        metadata=ObjectMeta(
            name=allocation_name(cidr),
            labels={
                labels.POOL: pool_label(pool.cidr),
                labels.HOLDER_PROJECT: project,
                labels.HOLDER_UID: metadata.uid,
            },
        ),
        spec=IPAllocationSpec(
            cidr=cidr,
            pool=pool.cidr,
            project=project,
            holder=TypedObjectReference(
                api_group=holder.kind.group,
                kind=holder.kind.kind,
                name=metadata.name,
                namespace=metadata.namespace,
            ),
            holder_uid=metadata.uid,
        ),
    )


def _delete_allocation(allocation: IPAllocation, reason: str) -> Delete:
    uid = allocation.metadata.uid
    return Delete(PLATFORM, IP_ALLOCATION, ref_of(allocation), uid, reason)


# --- use of prefixes

# Lengths of the prefixes that the platform allocates, by IP version.
_LENGTHS = {
    4: (IPV4_SUBNETS.length,),
    6: (IPV6_NETWORKS.length, IPV6_SUBNET_LENGTH),
}


def attached_prefixes(deployment: WorkloadDeployment) -> list[str]:
    attachment = deployment.spec.network_attachment
    prefixes = attachment.prefixes if attachment is not None else ()
    return list(dict.fromkeys(p.prefix for p in prefixes))


def prefixes_in_work(work: Work) -> list[str]:
    """Return the valid prefixes in the first manifest, which may be malformed."""
    spec = work.spec.workload.manifests[0].get("spec")
    attachment = spec.get("networkAttachment") if isinstance(spec, dict) else None
    prefixes = attachment.get("prefixes") if isinstance(attachment, dict) else None
    found = prefixes if isinstance(prefixes, list) else []
    valid = (p["prefix"] for p in found if isinstance(p, dict) and _is_prefix(p.get("prefix")))
    return list(dict.fromkeys(valid))


def addressed_prefixes(instance: Instance) -> list[str]:
    """Return the prefixes that contain an address of the instance, one of each allocated length."""
    addresses = (a.address for i in instance.status.network_interfaces for a in i.addresses)
    return list(dict.fromkeys(prefix for a in addresses for prefix in _prefixes_around(a)))


def is_indexed(cidr: str) -> bool:
    """Return True if `addressed_prefixes` returns this prefix for an address in it."""
    network = ip_network(cidr)
    return network.prefixlen in _LENGTHS[network.version] and str(network) == cidr


@lru_cache(maxsize=4096)
def _prefixes_around(address: str) -> tuple[str, ...]:
    try:
        found = ip_address(address.partition("/")[0])
    except ValueError:
        return ()  # an invalid address is in no prefix
    return tuple(
        str(ip_network(f"{found}/{length}", strict=False)) for length in _LENGTHS[found.version]
    )


def find_prefix_user(
    cidr: str,
    deployments: Iterable[WorkloadDeployment],
    works: Iterable[Work],
    instances: Iterable[Instance],
) -> str:
    """Return the first object that uses the prefix, for messages; empty if none does."""
    for deployment in deployments:
        if cidr in attached_prefixes(deployment):
            return f"WorkloadDeployment {ref_of(deployment)}"
    for work in works:
        if cidr in prefixes_in_work(work):
            return f"Work {ref_of(work)}"
    for instance in instances:
        if _has_address_in(instance, cidr):
            return f"Instance {ref_of(instance)}"
    return ""


def _is_prefix(value: object) -> bool:
    return isinstance(value, str) and _is_valid_prefix(value)


@lru_cache(maxsize=4096)
def _is_valid_prefix(value: str) -> bool:
    try:
        return bool(ip_network(value))
    except ValueError:
        return False


def _has_address_in(instance: Instance, cidr: str) -> bool:
    network = ip_network(cidr)
    for interface in instance.status.network_interfaces:
        for address in interface.addresses:
            try:
                if ip_address(address.address.partition("/")[0]) in network:
                    return True
            except ValueError:
                continue  # an invalid address is in no prefix
    return False
