"""The ledger of a network: allocated prefixes, and the objects that use a prefix."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from datum_compute.api.kinds import (
    DEPLOYMENT,
    INSTANCE,
    IP_ALLOCATION,
    NAMESPACE,
    NETWORK,
    SUBNET,
    WORK,
)
from datum_compute.api.meta.objects import Ref
from datum_compute.api.networking.network import IPAllocation, Subnet
from datum_compute.api.planes import HUB, PLATFORM, project_plane
from datum_compute.controllers.prefix_ledger import (
    USER_INDEXES,
    map_to_holder,
    observe_ledger,
    observe_prefix_user,
)
from datum_compute.planning.network.prefixes import (
    IPV4_SUBNETS,
    Ledger,
    PrefixHolder,
    plan_allocation,
)
from datum_compute.planning.plan import Create
from datum_compute.runtime.controller import Key
from datum_compute.runtime.informer import ObjectChange
from testkit.builders import a_deployment
from testkit.sim.loop import VirtualLoop
from tests.controllers.network.test_ip_allocations import instance_at
from tests.controllers.running_controllers import a_context, a_synced_view, as_new
from tests.planning.network.network_objects import a_subnet
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

PROJECT = project_plane("alpha")
PREFIX = "10.128.16.0/20"


def a_subnet_of(uid: str) -> Subnet:
    subnet = a_subnet()
    return replace(subnet, metadata=replace(subnet.metadata, uid=uid))


def an_allocation(cidr: str, project: str, uid: str) -> IPAllocation:
    holder = PrefixHolder(project_plane(project), SUBNET, a_subnet_of(uid), "seed")
    plan = plan_allocation(holder, IPV4_SUBNETS, Ledger((), ()), requested=cidr)
    (create,) = plan.actions
    assert isinstance(create, Create)
    assert isinstance(create.object, IPAllocation)
    return create.object


def test_a_prefix_is_used_by_an_attached_deployment_or_an_instance_with_an_address() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[bool]:
        hub, project = await planes.create(HUB), await planes.create(PROJECT)
        await hub.create(NAMESPACE, a_namespace("default"))
        await project.create(NAMESPACE, a_namespace("default"))
        used = []

        async def observe() -> None:
            of_hub = [index for index in USER_INDEXES if index.on == "hub"]
            of_project = [index for index in USER_INDEXES if index.on == "project"]
            hub_view = await a_synced_view(loop, planes, HUB, INSTANCE, WORK, indexes=of_hub)
            view = await a_synced_view(loop, planes, PROJECT, DEPLOYMENT, indexes=of_project)
            context = a_context(loop, planes, hub_view, view)
            used.append(observe_prefix_user(context, view, PREFIX) != "")
            used.append(observe_prefix_user(context, None, PREFIX) != "")

        await observe()
        await project.create(DEPLOYMENT, as_new(a_deployment(finalizers=())))
        await observe()
        await project.delete(DEPLOYMENT, Ref("default", "web-dfw"))
        await hub.create(INSTANCE, as_new(instance_at("10.128.16.2")), with_status=True)
        await observe()
        return used

    assert with_planes(test) == [False, False, True, False, True, True]


def test_the_ledger_counts_the_prefixes_of_the_project_and_finds_those_of_the_holder() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform = await planes.create(PLATFORM)
        holders = {"10.128.0.0/20": ("shop", "u-1"), "10.128.16.0/20": ("bank", "u-2")}
        for cidr, (project, uid) in holders.items():
            await platform.create(IP_ALLOCATION, an_allocation(cidr, project, uid))
        view = await a_synced_view(loop, planes, PLATFORM, IP_ALLOCATION)
        context = a_context(loop, planes, view)
        ledger = observe_ledger(context, project_plane("shop"), a_subnet_of("u-1"), IPV4_SUBNETS)
        assert [record.spec.cidr for record in ledger.own] == ["10.128.0.0/20"]
        assert set(ledger.allocated) == set(holders)
        assert ledger.of_project == 1

    with_planes(test)


def test_an_allocation_maps_to_its_holder_if_it_has_the_kind() -> None:
    change = ObjectChange(None, an_allocation("10.128.0.0/20", "shop", "u-1"))
    unused: Any = None
    holder = Key(project_plane("shop"), Ref("default", "blue-dfw-ipv4"))
    assert list(map_to_holder(SUBNET)(unused, change)) == [holder]
    assert list(map_to_holder(NETWORK)(unused, change)) == []
