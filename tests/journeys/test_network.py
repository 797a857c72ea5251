"""Networks on the whole platform: prefixes and addresses are allocated and released."""

from __future__ import annotations

import asyncio
from ipaddress import ip_address, ip_network

from datum_compute.api.compute.workload import Workload
from datum_compute.api.conditions import find_condition, is_true
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import (
    DEPLOYMENT,
    INSTANCE,
    IP_ALLOCATION,
    NAMESPACE,
    NETWORK,
    NETWORK_CONTEXT,
    SERVER,
    WORKLOAD,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.networking.network import Network, NetworkIpam, NetworkSpec
from datum_compute.api.planes import PLATFORM
from tests.journeys.platform import CELL, WEB, Platform, on_platform

DEFAULT = Ref("default", "default")


async def prefixes(platform: Platform) -> list[str]:
    allocations = (await platform.host.operator(PLATFORM).list(IP_ALLOCATION)).items
    return sorted(a.spec.cidr for a in allocations)


def template(network: str) -> JsonObject:
    return {
        "spec": {
            "runtime": {"sandbox": {"containers": [{"name": "app", "image": "web:1"}]}},
            "networkInterfaces": [{"network": {"name": network}}],
        }
    }


def test_every_instance_has_an_address_in_the_prefix_of_its_network_and_city() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy(replicas=3, instanceManagementPolicy="Parallel")
        await platform.until_ready("web:1", 3)
        (prefix,) = await prefixes(platform)
        deployment = await platform.deployment()
        attachment = deployment.spec.network_attachment
        assert attachment is not None
        assert [a.prefix for a in attachment.prefixes] == [prefix]
        network = ip_network(prefix)
        assert network.prefixlen == 20
        given = [
            i.status.network_interfaces[0].assignments.network_ip
            for i in await platform.instances()
        ]
        assert len(set(given)) == 3
        assert all(ip_address(address) in network for address in given)
        assert str(network.network_address + 1) == attachment.prefixes[0].gateway
        assert attachment.prefixes[0].gateway not in given
        seen_by_the_user = (await platform.project.list(INSTANCE)).items
        shown = [i.status.network_interfaces[0].assignments.network_ip for i in seen_by_the_user]
        assert sorted(shown) == sorted(given)
        machines = platform.host.providers[CELL].machines.values()
        assert sorted(a for m in machines for a in m.addresses) == sorted(given)

    on_platform(story, boot_s=0.0)


def test_workloads_of_any_namespace_use_the_default_network() -> None:
    """Regression: workloads outside of the namespace default never became ready."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        spec = (await platform.workload()).spec
        await platform.project.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="other")))
        metadata = ObjectMeta(name="web", namespace="other")
        await platform.project.create(WORKLOAD, Workload(metadata=metadata, spec=spec))

        async def ready() -> bool:
            found = await platform.project.get(WORKLOAD, Ref("other", "web"))
            return found.status.ready_replicas == 1

        await platform.until(ready, "the workload of the other namespace")
        (shown,) = (await platform.project.list(INSTANCE, "other")).items
        (prefix,) = await prefixes(platform)
        address = shown.status.network_interfaces[0].assignments.network_ip
        assert ip_address(address) in ip_network(prefix)

    on_platform(story, boot_s=0.0)


def test_a_recreated_instance_keeps_its_address() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        (before,) = await platform.instances()
        await platform.change_image("web:2")
        await platform.until_ready("web:2")
        (after,) = await platform.instances()
        assert before.metadata.uid != after.metadata.uid
        assert before.status.network_interfaces == after.status.network_interfaces

    on_platform(story)


def test_the_prefix_is_released_with_the_last_workload() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.project.delete(WORKLOAD, WEB)

        async def nothing_left() -> bool:
            contexts = (await platform.project.list(NETWORK_CONTEXT)).items
            return not contexts and await prefixes(platform) == []

        await platform.until(nothing_left, "the prefix is back")
        assert await platform.project.get(NETWORK, DEFAULT)

    on_platform(story)


def test_a_missing_network_is_reported_on_the_instance_until_it_exists() -> None:
    async def story(platform: Platform) -> str:
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.change(template=template("blue"))
        message = ""

        async def is_reported() -> bool:
            nonlocal message
            for instance in await platform.instances():
                found = find_condition(instance.status.conditions, "Ready")
                if found is not None and found.reason == "NetworkNotFound":
                    message = found.message
            return bool(message)

        await platform.until(is_reported, "the instance names the network")
        available = await platform.available()
        assert available.status == "True", "the instance with the old template serves"
        metadata = ObjectMeta(name="blue", namespace="default")
        blue = NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv6", "IPv4"])
        await platform.project.create(NETWORK, Network(metadata=metadata, spec=blue))
        await platform.until_ready("web:1")
        (instance,) = await platform.instances()
        families = [a.family for a in instance.status.network_interfaces[0].addresses]
        assert families == ["IPv6", "IPv4"]
        primary = instance.status.network_interfaces[0].assignments.network_ip
        network = await platform.project.get(NETWORK, Ref("default", "blue"))
        assert ip_address(primary) in ip_network(network.status.ipam.ipv6_prefix)
        return message

    assert "Network default/blue does not exist" in on_platform(story)


def test_networks_of_the_same_name_in_two_namespaces_are_distinct() -> None:
    """Regression: they were confused, and the prefix was released while instances used it."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        before = await prefixes(platform)
        other = template("default")
        other["spec"]["networkInterfaces"][0]["network"]["namespace"] = "elsewhere"
        await platform.change(template=other)

        async def is_reported() -> bool:
            found = [
                find_condition(i.status.conditions, "Ready") for i in await platform.instances()
            ]
            return any(c is not None and "elsewhere/default" in c.message for c in found)

        await platform.until(is_reported, "the instance names the network that is not there")
        await asyncio.sleep(60)
        assert await prefixes(platform) == before

    on_platform(story, boot_s=0.0)


def test_a_deleted_network_stays_until_it_has_no_users() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.project.delete(NETWORK, DEFAULT)
        await asyncio.sleep(5)
        network = await platform.project.get(NETWORK, DEFAULT)
        ready = find_condition(network.status.conditions, "Ready")
        assert ready is not None
        assert (ready.reason, ready.message) == ("InUse", "The network is in use in dfw")
        assert (await platform.instances())[0].status.network_interfaces
        await platform.project.delete(WORKLOAD, WEB)

        async def replaced() -> bool:
            found = (await platform.project.list(NETWORK)).items
            return [n.metadata.uid for n in found] not in ([], [network.metadata.uid])

        await platform.until(replaced, "it is gone, and there is a new one")
        await platform.deploy("web:2")
        await platform.until_ready("web:2")

    on_platform(story)


def test_a_terminating_network_is_deleted_soon_after_its_last_user() -> None:
    """Regression: it took 30 s, with RangeOccupied for a prefix that was already released."""

    async def story(platform: Platform) -> float:
        await platform.wait_until_booted()
        spec = NetworkSpec(ip_families=["IPv4", "IPv6"], ipam=NetworkIpam(mode="Auto"))
        blue = Network(metadata=ObjectMeta(name="blue", namespace="default"), spec=spec)
        await platform.project.create(NETWORK, blue)
        await platform.deploy()
        await platform.change(template=template("blue"))
        await platform.until_ready("web:1")
        await platform.project.delete(NETWORK, Ref("default", "blue"))
        await asyncio.sleep(5)
        await platform.project.delete(WORKLOAD, WEB)
        loop = asyncio.get_running_loop()
        started_s = loop.time()

        async def gone() -> bool:
            found = (await platform.project.list(NETWORK)).items
            return "blue" not in [n.metadata.name for n in found]

        await platform.until(gone, "the network is gone")
        return loop.time() - started_s

    assert on_platform(story, boot_s=0.0) < 10


def test_a_deleted_default_network_without_users_is_recreated() -> None:
    """Regression: after the deletion no workload of the project got an address."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.project.delete(WORKLOAD, WEB)
        await asyncio.sleep(30)
        first = await platform.project.get(NETWORK, DEFAULT)
        await platform.project.delete(NETWORK, DEFAULT)

        async def is_back() -> bool:
            found = (await platform.project.list(NETWORK)).items
            others = [n for n in found if n.metadata.uid != first.metadata.uid]
            return any(is_true(n.status.conditions, "Ready") for n in others)

        await platform.until(is_back, "there is another network, and it is ready")
        second = await platform.project.get(NETWORK, DEFAULT)
        assert second.spec == first.spec
        await platform.deploy("web:2")
        await platform.until_ready("web:2")

    on_platform(story, boot_s=0.0)


def test_a_prefix_is_released_after_the_last_machine_that_has_an_address_in_it() -> None:
    """Regression: deleting a namespace released its prefix while machines still used it."""

    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        await platform.project.delete(WORKLOAD, WEB)
        await platform.project.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="team")))
        network = Network(
            metadata=ObjectMeta(name="blue", namespace="team"),
            spec=NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4"]),
        )
        await platform.project.create(NETWORK, network)
        body = {
            "apiVersion": WORKLOAD.api_version,
            "kind": "Workload",
            "metadata": {"name": "web", "namespace": "team"},
            "spec": {
                "template": template("blue"),
                "placements": [
                    {"name": "a", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 2}}
                ],
            },
        }
        await platform.project.create_plain(WORKLOAD, body)

        async def runs() -> bool:
            return (
                sum(is_true(i.status.conditions, "Ready") for i in await platform.instances()) == 2
            )

        await platform.until(runs, "two instances run in the namespace")
        (record,) = (await platform.host.operator(PLATFORM).list(IP_ALLOCATION)).items
        before = len(platform.writes)
        await platform.project.delete(NAMESPACE, Ref("", "team"))

        async def gone() -> bool:
            return "team" not in {
                n.metadata.name for n in (await platform.project.list(NAMESPACE)).items
            }

        await platform.until(gone, "the namespace is gone")

        async def given_back() -> bool:
            return record.spec.cidr not in await prefixes(platform)

        gone_s = asyncio.get_running_loop().time()
        await platform.until(given_back, "the prefix is given back")
        assert asyncio.get_running_loop().time() - gone_s < 5
        ends = [c.key for c in platform.writes[before:] if c.body is None]
        backs = [i for i, key in enumerate(ends) if key.resource == IP_ALLOCATION.resource]
        machines = [i for i, key in enumerate(ends) if key.resource == SERVER.resource]
        assert len(machines) == 2
        assert min(backs) > max(machines)

    on_platform(story)


def test_an_allocation_whose_holder_is_gone_is_deleted() -> None:
    async def story(platform: Platform) -> None:
        await platform.deploy()
        await platform.until_ready("web:1")
        admin = platform.host.operator(PLATFORM)
        (record,) = (await admin.list(IP_ALLOCATION)).items
        body = record.spec
        orphan = type(record)(
            metadata=ObjectMeta(name="ipv4-10-255-240-0-20"),
            spec=type(body)(
                cidr="10.255.240.0/20",
                pool=body.pool,
                project=body.project,
                holder=body.holder,
                holder_uid="uid-of-a-deleted-holder",
            ),
        )
        await admin.create(IP_ALLOCATION, orphan)
        await asyncio.sleep(5)
        assert await prefixes(platform) == [record.spec.cidr]
        assert (await platform.project.list(DEPLOYMENT)).items

    on_platform(story)
