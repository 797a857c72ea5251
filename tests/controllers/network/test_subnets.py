"""Networks of two projects allocate prefixes concurrently while the host crashes.

Every subnet ends with its own prefix, recorded once.
"""

from __future__ import annotations

import asyncio
from ipaddress import ip_network
from itertools import pairwise
from random import Random
from typing import TypeVar

import pytest

from datum_compute.api.conditions import is_true
from datum_compute.api.errors import AlreadyExists, ApiError, Unreachable
from datum_compute.api.kinds import IP_ALLOCATION, NETWORK, NETWORK_BINDING, SUBNET
from datum_compute.api.meta.fields import LocalReference, NamespacedReference
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta
from datum_compute.api.networking.network import (
    Network,
    NetworkBinding,
    NetworkBindingSpec,
    NetworkIpam,
    NetworkSpec,
)
from datum_compute.api.planes import PLATFORM, cell_plane, project_plane
from datum_compute.client.client import Client
from datum_compute.planning.network.subnets import prefix_of
from testkit.sim.loop import VirtualLoop, run_virtual
from testkit.sim.single_host import CrashAt, SingleHost, single_host

PROJECTS = (project_plane("shop"), project_plane("bank"))
NETWORKS = 4


T = TypeVar("T", bound=ApiObject)


async def _insist(client: Client, kind: KindInfo[T], obj: T) -> None:
    while True:
        try:
            await client.create(kind, obj)
        except AlreadyExists:
            return
        except (ApiError, Unreachable):
            await asyncio.sleep(0.5)
        else:
            return


async def _ask(user: Client, manager: Client, number: int) -> None:
    metadata = ObjectMeta(name=f"net{number}", namespace="default")
    spec = NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4", "IPv6"])
    await _insist(user, NETWORK, Network(metadata=metadata, spec=spec))
    binding = NetworkBindingSpec(
        network=NamespacedReference(name=metadata.name), location=LocalReference(name="dfw")
    )
    await _insist(manager, NETWORK_BINDING, NetworkBinding(metadata=metadata, spec=binding))


@pytest.mark.parametrize("crashes", [(), (150, 175, 200), (160, 190)])
def test_every_subnet_ends_with_its_own_prefix(crashes: tuple[int, ...]) -> None:
    async def main(loop: VirtualLoop) -> None:
        host = single_host(loop, projects=PROJECTS, cells=(cell_plane("dfw"),))
        disk = host.host.disk
        disk.crash_points += [CrashAt(disk, commit, commit % 2 == 0) for commit in crashes]
        host.host.start()
        # Operators create the bindings, because users may not.
        clients = [host.operator(plane) for plane in PROJECTS]
        users = [host.client(plane) for plane in PROJECTS]
        both = list(zip(users, clients, strict=True))
        await asyncio.gather(*(_ask(u, m, n) for u, m in both for n in range(NETWORKS)))
        await asyncio.sleep(60)
        assert host.host.crash_count == len(crashes)
        await _check(host)

    run_virtual(Random(1), main)


async def _check(host: SingleHost) -> None:
    records = (await host.client(PLATFORM).list(IP_ALLOCATION)).items
    held = {record.spec.holder_uid: record.spec.cidr for record in records}
    assert len(held) == len(records), "each holder has one"
    shown = []
    for plane in PROJECTS:
        client = host.client(plane)
        bindings = (await client.list(NETWORK_BINDING)).items
        assert all(is_true(b.status.conditions, "Ready") for b in bindings)
        subnets = (await client.list(SUBNET)).items
        assert len(subnets) == 2 * NETWORKS
        for subnet in subnets:
            assert held[subnet.metadata.uid] == prefix_of(subnet)
            shown.append(ip_network(prefix_of(subnet)))
    ordered = sorted(shown, key=lambda n: (n.version, int(n.network_address)))
    for one, other in pairwise(ordered):
        assert one.version != other.version or not one.overlaps(other)
