"""Which object uses a prefix. While one does, the prefix is not given to another holder.

A prefix is used by

- a deployment of the project that has it in its network attachment;
- a Work that carries such a deployment to a cell. A Work that is a tombstone counts, because the
  cell may still have the deployment;
- an instance with an address of the prefix, also if its deployment uses another network by now.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import ip_address, ip_network

from datum_compute.api.instance import Instance
from datum_compute.api.meta import ref_of
from datum_compute.api.work import Work
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.network.prefixes import IPV4_SUBNETS, IPV6_NETWORKS, IPV6_SUBNET_LENGTH

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


def user_of(
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
