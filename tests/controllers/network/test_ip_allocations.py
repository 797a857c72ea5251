"""When the controller of IP allocations checks a prefix, and when it deletes the allocation."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from datum_compute.api.compute.instance import Instance, InterfaceAddress, NetworkInterfaceStatus
from datum_compute.api.kinds import INSTANCE, IP_ALLOCATION, ORGANIZATION, PROJECT, SUBNET
from datum_compute.api.meta.fields import TypedObjectReference
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.networking.network import IPAllocation, IPAllocationSpec
from datum_compute.api.planes import HUB, PLATFORM, PlaneName
from datum_compute.api.resourcemanager import Organization, Project, ProjectOwner, ProjectSpec
from datum_compute.app.controllers import ManagerOptions
from datum_compute.client.client import Client
from datum_compute.controllers.context import Context
from datum_compute.controllers.network.ip_allocations import CONTROLLER
from datum_compute.controllers.registry import PROJECT_MEMBERSHIP
from datum_compute.planning.network.prefixes import allocation_name
from datum_compute.runtime.controller import Controller, Key
from datum_compute.runtime.informer import ObjectChange
from testkit.builders import an_instance
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import running
from tests.runtime.planes_in_process import InProcessPlanes, with_planes


def instance_at(address: str) -> Instance:
    given = InterfaceAddress(
        family="IPv4", address=address, prefix_length=20, gateway="10.128.16.1"
    )
    instance = an_instance(0)
    interfaces = [NetworkInterfaceStatus(addresses=[given])]
    status = msgspec.structs.replace(instance.status, network_interfaces=interfaces)
    return msgspec.structs.replace(instance, status=status)


def keys_of(change: ObjectChange[Instance]) -> list[Key]:
    view: Any = None
    edges = [edge for edge in CONTROLLER.edges if edge.kind is INSTANCE and edge.to_keys]
    return [key for edge in edges if edge.to_keys for key in edge.to_keys(view, change)]


def test_the_removal_of_the_last_instance_checks_the_prefix_of_its_address() -> None:
    change = ObjectChange(instance_at("10.128.16.2"), None)
    assert keys_of(change) == [Key(PLATFORM, Ref("", allocation_name("10.128.16.0/20")))]


@pytest.mark.parametrize("old", [None, instance_at("10.128.16.2")], ids=["new", "changed"])
def test_an_instance_that_exists_checks_no_prefix(old: Instance | None) -> None:
    assert keys_of(ObjectChange(old, instance_at("10.128.16.2"))) == []


@pytest.mark.parametrize(
    ("exists", "controllers", "is_kept"),
    [
        (True, (CONTROLLER, *PROJECT_MEMBERSHIP), True),
        (False, (CONTROLLER, *PROJECT_MEMBERSHIP), False),
        (False, (CONTROLLER,), True),  # projects are listed in the configuration
    ],
)
def test_an_allocation_is_deleted_if_the_platform_has_no_such_project(
    exists: bool, controllers: tuple[Controller[Context], ...], is_kept: bool
) -> None:
    """A create request may arrive after its project was deleted."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        platform = await planes.create(PLATFORM)
        await planes.create(HUB)
        await platform.create(ORGANIZATION, Organization(metadata=ObjectMeta(name="default")))
        if exists:
            owner = ProjectOwner(kind="Organization", name="default")
            gamma = Project(metadata=ObjectMeta(name="gamma"), spec=ProjectSpec(owner_ref=owner))
            await platform.create(PROJECT, gamma)
        spec = IPAllocationSpec(
            cidr="10.128.16.0/20",
            pool="10.128.0.0/16",
            project="gamma",
            holder=TypedObjectReference(kind=SUBNET.kind, namespace="default", name="dfw-ipv4"),
            holder_uid="u",
        )
        name = allocation_name(spec.cidr)
        await platform.create(
            IP_ALLOCATION, IPAllocation(metadata=ObjectMeta(name=name), spec=spec)
        )

        async def reach(plane: PlaneName) -> Client:
            return planes.client(plane)

        options = ManagerOptions(reach=reach)
        async with running(controllers, loop, planes, PLATFORM, HUB, options=options):
            await asyncio.sleep(5)
        return [found.metadata.name for found in (await platform.list(IP_ALLOCATION)).items]

    assert bool(with_planes(test)) == is_kept
