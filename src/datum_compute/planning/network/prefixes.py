"""Which prefix of a pool somebody gets, and how it is taken, kept and given back.

Rules kept here:
- All prefixes of a pool have one length, and the name of an IPAllocation is made from the prefix.
  So two allocations never overlap, and the plane itself lets only one of two takers have it.
- The allocation comes before the status that shows the prefix. After a crash between the two it is
  found again by the uid of its holder.
- Where the search begins follows from who asks. Whoever comes back finds the old prefix if it is
  still free, two who ask at once seldom want the same one, and what was given back rests a while.

Which object uses a prefix. While one does, the prefix is not given to another holder.

A prefix is used by

- a deployment of the project that has it in its network attachment;
- a Work that carries such a deployment to a cell. A Work that is a tombstone counts, because the
  cell may still have the deployment;
- an instance with an address of the prefix, also if its deployment uses another network by now.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import Any

from datum_compute.api import labels
from datum_compute.api.conditions import FALSE, Verdict
from datum_compute.api.fields import IpFamily, ObjectReference
from datum_compute.api.instance import Instance
from datum_compute.api.ipallocation import IPAllocation, IPAllocationSpec
from datum_compute.api.kinds import IP_ALLOCATION
from datum_compute.api.meta import ApiObject, KindInfo, ObjectMeta, ref_of
from datum_compute.api.plane import PLATFORM, PlaneName, member_name
from datum_compute.api.work import Work
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.plan import Action, Create, Delete


@dataclass(frozen=True, slots=True)
class Pool:
    """A prefix that is cut into prefixes of one length."""

    cidr: str
    length: int
    project_max: int | None = None  # how many of them one project may hold

    @property
    def whole(self) -> IPv4Network | IPv6Network:
        return ip_network(self.cidr)

    @property
    def family(self) -> IpFamily:
        return "IPv4" if self.whole.version == 4 else "IPv6"

    @property
    def count(self) -> int:
        return 1 << (self.length - self.whole.prefixlen)

    def prefix(self, index: int) -> str:
        whole = self.whole
        start = int(whole.network_address) + (index << (whole.max_prefixlen - self.length))
        return str(type(whole)((start, self.length)))

    def contains(self, cidr: str) -> bool:
        inner = ip_network(cidr)
        outer = self.whole
        if inner.version != outer.version or inner.prefixlen != self.length:
            return False
        shift = outer.max_prefixlen - outer.prefixlen
        return int(inner.network_address) >> shift == int(outer.network_address) >> shift


# Of the whole platform: one /20 for each network and location, one /48 for each network.
# No project may take so many that nothing is left for others.
IPV4_SUBNETS = Pool("10.128.0.0/9", 20, project_max=128)
IPV6_NETWORKS = Pool("fd20::/20", 48, project_max=1024)
IPV6_SUBNET_LENGTH = 64


@dataclass(frozen=True, slots=True)
class PrefixHolder:
    """Who asks. ``seed`` says where the search begins; it outlives the holder's uid."""

    plane: PlaneName
    kind: KindInfo[Any]
    object: ApiObject
    seed: str


@dataclass(frozen=True, slots=True)
class Ledger:
    """What is on record: the holder's own allocations, every prefix of the pool that is taken, and
    how many of those are its project's."""

    own: Sequence[IPAllocation]
    taken: Collection[str]
    of_project: int = 0


@dataclass(frozen=True, slots=True)
class PrefixPlan:
    """How the holder comes to its prefix; with a refusal it has none."""

    cidr: str = ""
    actions: tuple[Action, ...] = ()
    refusal: Verdict | None = None


def plan_allocation(
    holder: PrefixHolder, pool: Pool, ledger: Ledger, *, recorded: str = "", requested: str = ""
) -> PrefixPlan:
    """``recorded`` is the prefix that the holder's status speaks of, ``requested`` one that is asked
    for."""
    own = sorted((a for a in ledger.own if not a.is_terminating), key=lambda a: a.spec.cidr)
    if own:
        kept = next((a for a in own if a.spec.cidr == recorded), own[0])
        spare = tuple(_release(a, "one is enough") for a in own if a is not kept)
        return PrefixPlan(kept.spec.cidr, spare)
    if pool.project_max is not None and ledger.of_project >= pool.project_max:
        return PrefixPlan(refusal=_too_many(holder, pool, ledger))
    exact = recorded or requested
    if exact and not pool.contains(exact):
        message = f"{exact} is no /{pool.length} of {pool.cidr}"
        return PrefixPlan(refusal=Verdict(FALSE, "RangeUnsupported", message))
    if exact and exact in ledger.taken:
        message = f"{exact} is held by somebody else; delete the object to get another prefix"
        return PrefixPlan(refusal=Verdict(FALSE, "RetainedAddressConflict", message))
    cidr = exact or free_prefix(pool, ledger.taken, holder.seed)
    if cidr is None:
        message = f"All {pool.count} prefixes of {pool.cidr} (/{pool.length}) are taken"
        return PrefixPlan(refusal=Verdict(FALSE, "AddressPoolExhausted", message))
    plan = Create(PLATFORM, IP_ALLOCATION, _allocation(holder, pool, cidr), "take a prefix")
    return PrefixPlan(cidr, (plan,))


def _too_many(holder: PrefixHolder, pool: Pool, ledger: Ledger) -> Verdict:
    message = (
        f"Project {member_name(holder.plane)} holds {ledger.of_project} of at most "
        f"{pool.project_max} prefixes of {pool.cidr} (/{pool.length}); "
        "delete a network that is not needed"
    )
    return Verdict(FALSE, "PrefixLimitReached", message)


def plan_allocation_release(own: Sequence[IPAllocation]) -> list[Action]:
    return [_release(a, "no longer needed") for a in own if not a.is_terminating]


def free_prefix(pool: Pool, taken: Collection[str], seed: str) -> str | None:
    """The first one that is free, in the order that the seed gives; None if there is none."""
    if len(taken) >= pool.count:
        return None
    first = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8]) % pool.count
    candidates = (pool.prefix((first + step) % pool.count) for step in range(pool.count))
    return next((cidr for cidr in candidates if cidr not in taken), None)


def allocation_name(cidr: str) -> str:
    """The one name an allocation of the prefix can have."""
    network = ip_network(cidr)
    if network.version == 4:
        return f"ipv4-{str(network.network_address).replace('.', '-')}-{network.prefixlen}"
    return f"ipv6-{int(network.network_address):032x}-{network.prefixlen}"


def pool_label(cidr: str) -> str:
    return allocation_name(cidr)


def _allocation(holder: PrefixHolder, pool: Pool, cidr: str) -> IPAllocation:
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
            holder=ObjectReference(
                api_group=holder.kind.group,
                kind=holder.kind.kind,
                name=metadata.name,
                namespace=metadata.namespace,
            ),
            holder_uid=metadata.uid,
        ),
    )


def _release(allocation: IPAllocation, reason: str) -> Delete:
    uid = allocation.metadata.uid
    return Delete(PLATFORM, IP_ALLOCATION, ref_of(allocation), uid, reason)


# Lengths of the prefixes that the platform gives out, by IP version.
_LENGTHS = {
    4: (IPV4_SUBNETS.length,),
    6: (IPV6_NETWORKS.length, IPV6_SUBNET_LENGTH),
}


def attached_prefixes(deployment: WorkloadDeployment) -> list[str]:
    attachment = deployment.spec.network_attachment
    prefixes = attachment.prefixes if attachment is not None else ()
    return list(dict.fromkeys(p.prefix for p in prefixes))


def carried_prefixes(work: Work) -> list[str]:
    """The valid prefixes in the first manifest: a Work may carry anything."""
    spec = work.spec.workload.manifests[0].get("spec")
    attachment = spec.get("networkAttachment") if isinstance(spec, dict) else None
    prefixes = attachment.get("prefixes") if isinstance(attachment, dict) else None
    found = prefixes if isinstance(prefixes, list) else []
    valid = (p["prefix"] for p in found if isinstance(p, dict) and _is_prefix(p.get("prefix")))
    return list(dict.fromkeys(valid))


def addressed_prefixes(instance: Instance) -> list[str]:
    """The prefixes that contain an address of the instance, in every length that is given out."""
    addresses = (a.address for i in instance.status.network_interfaces for a in i.addresses)
    return list(dict.fromkeys(prefix for a in addresses for prefix in _prefixes_around(a)))


def is_indexed(cidr: str) -> bool:
    """Whether `addressed_prefixes` contains the prefix if an instance has an address of it."""
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
    """The first object that uses the prefix, for messages; the empty string if none does."""
    for deployment in deployments:
        if cidr in attached_prefixes(deployment):
            return f"WorkloadDeployment {ref_of(deployment)}"
    for work in works:
        if cidr in carried_prefixes(work):
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
                continue  # what is no address is in no prefix
    return False
