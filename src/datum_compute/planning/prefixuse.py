"""Who uses a prefix, as far as the planes know. While anybody does, it is nobody else's.

A deployment of the project that was given it; a Work that carries such a deployment to a cell, or
is the tombstone of one that the cell may still have; an instance with an address of it, also of a
network that its deployment has left meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable
from ipaddress import ip_address, ip_network

from datum_compute.api.instance import Instance
from datum_compute.api.meta import ref_of
from datum_compute.api.work import Work
from datum_compute.api.workloaddeployment import WorkloadDeployment


def attached_prefixes(deployment: WorkloadDeployment) -> list[str]:
    attachment = deployment.spec.network_attachment
    return [p.prefix for p in attachment.prefixes] if attachment is not None else []


def carried_prefixes(work: Work) -> list[str]:
    """Read with care: a Work may carry anything. Only what is a prefix."""
    spec = work.spec.workload.manifests[0].get("spec")
    attachment = spec.get("networkAttachment") if isinstance(spec, dict) else None
    prefixes = attachment.get("prefixes") if isinstance(attachment, dict) else None
    found = prefixes if isinstance(prefixes, list) else []
    return [p["prefix"] for p in found if isinstance(p, dict) and _is_prefix(p.get("prefix"))]


def user_of(
    cidr: str,
    deployments: Iterable[WorkloadDeployment],
    works: Iterable[Work],
    instances: Iterable[Instance],
) -> str:
    """The first that uses the prefix, for people; the empty string if nobody does."""
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
    try:
        return isinstance(value, str) and bool(ip_network(value))
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
