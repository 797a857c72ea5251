"""Dependents go when every owner they name is gone, whatever kinds the two are of."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from datum_compute.api.kinds import NAMESPACE, NETWORK, NETWORK_BINDING, ORGANIZATION
from datum_compute.api.meta import ApiObject, KindInfo, ObjectMeta, OwnerReference, Ref
from datum_compute.api.network import Network, NetworkIpam, NetworkSpec
from datum_compute.api.organization import Organization
from datum_compute.api.plane import HUB
from datum_compute.client.client import Client
from datum_compute.controllers.context import Context
from datum_compute.controllers.neighbours.garbage import CONTROLLERS
from datum_compute.planes.planes import Planes as EngagedPlanes
from datum_compute.runtime.manager import Manager
from datum_compute.testing.virtual_loop import VirtualLoop
from tests.runtime.planes import Planes, a_namespace, with_planes

SETTLED_S = 5


def owned_by(kind: KindInfo[Any], *owners: ApiObject) -> list[OwnerReference]:
    return [
        OwnerReference(
            api_version=kind.api_version,
            kind=kind.kind,
            name=owner.metadata.name,
            uid=owner.metadata.uid,
        )
        for owner in owners
    ]


def a_network(name: str, owners: list[OwnerReference]) -> Network:
    metadata = ObjectMeta(name=name, namespace="default", owner_references=owners)
    return Network(metadata=metadata, spec=NetworkSpec(ipam=NetworkIpam(mode="Auto")))


def an_organization(name: str) -> Organization:
    return Organization(metadata=ObjectMeta(name=name))


async def started(loop: VirtualLoop, planes: Planes) -> Client:
    """A plane with a namespace, whose garbage is collected."""

    def context(manager: Manager[Context]) -> Context:
        return Context(EngagedPlanes(manager.view), {}, loop.time)

    client = await planes.create(HUB)
    await client.create(NAMESPACE, a_namespace("default"))
    manager = Manager(CONTROLLERS, context, Random(1))
    manager.engage(HUB, client)
    loop.create_task(manager.run())
    return client


async def names(client: Client, kind: KindInfo[Any]) -> list[str]:
    await asyncio.sleep(SETTLED_S)
    return sorted(obj.metadata.name for obj in (await client.list(kind)).items)


def test_a_dependent_goes_with_its_owner_and_others_stay() -> None:
    async def test(loop: VirtualLoop, planes: Planes) -> None:
        client = await started(loop, planes)
        first = await client.create(ORGANIZATION, an_organization("first"))
        second = await client.create(ORGANIZATION, an_organization("second"))
        await client.create(NETWORK, a_network("a", owned_by(ORGANIZATION, first)))
        await client.create(NETWORK, a_network("b", owned_by(ORGANIZATION, second)))
        await client.create(NETWORK, a_network("c", []))
        assert await names(client, NETWORK) == ["a", "b", "c"]
        await client.delete(ORGANIZATION, Ref("", "first"))
        assert await names(client, NETWORK) == ["b", "c"]

    with_planes(test)


def test_the_last_owner_decides() -> None:
    async def test(loop: VirtualLoop, planes: Planes) -> None:
        client = await started(loop, planes)
        first = await client.create(ORGANIZATION, an_organization("first"))
        second = await client.create(ORGANIZATION, an_organization("second"))
        await client.create(NETWORK, a_network("a", owned_by(ORGANIZATION, first, second)))
        await client.delete(ORGANIZATION, Ref("", "first"))
        assert await names(client, NETWORK) == ["a"]
        await client.delete(ORGANIZATION, Ref("", "second"))
        assert await names(client, NETWORK) == []

    with_planes(test)


def test_an_owner_that_was_never_there_is_gone_and_one_of_the_same_name_is_another() -> None:
    async def test(loop: VirtualLoop, planes: Planes) -> None:
        client = await started(loop, planes)
        former = await client.create(ORGANIZATION, an_organization("acme"))
        await client.delete(ORGANIZATION, Ref("", "acme"))
        await client.create(ORGANIZATION, an_organization("acme"))
        await client.create(NETWORK, a_network("a", owned_by(ORGANIZATION, former)))
        assert await names(client, NETWORK) == []

    with_planes(test)


def test_an_object_that_gets_an_owner_later_goes_with_it() -> None:
    async def test(loop: VirtualLoop, planes: Planes) -> None:
        client = await started(loop, planes)
        owner = await client.create(ORGANIZATION, an_organization("acme"))
        await client.create(NETWORK, a_network("a", []))
        assert await names(client, NETWORK) == ["a"]
        (reference,) = owned_by(ORGANIZATION, owner)
        owners = [
            {
                "apiVersion": reference.api_version,
                "kind": reference.kind,
                "name": reference.name,
                "uid": reference.uid,
            }
        ]
        patch = {"metadata": {"ownerReferences": owners}}
        await client.patch(NETWORK, Ref("default", "a"), patch)
        assert await names(client, NETWORK) == ["a"]
        await client.delete(ORGANIZATION, Ref("", "acme"))
        assert await names(client, NETWORK) == []
        assert await names(client, NETWORK_BINDING) == []

    with_planes(test)
