"""Who uses a prefix, seen from every side; odd objects use none."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api.instance import Instance, InterfaceAddress, NetworkInterfaceStatus
from datum_compute.api.meta import ObjectMeta
from datum_compute.api.work import Work, WorkloadTemplate, WorkSpec
from datum_compute.api.workloaddeployment import AttachedPrefix, NetworkAttachment
from datum_compute.planning.network.prefixes import (
    addressed_prefixes,
    attached_prefixes,
    carried_prefixes,
    is_indexed,
    user_of,
)
from testkit.builders import a_deployment, an_instance

PREFIX, OTHER = "10.128.16.0/20", "10.128.32.0/20"


def attached(prefix: str) -> NetworkAttachment:
    gateway = prefix.partition("/")[0]
    prefixes = [AttachedPrefix(family="IPv4", prefix=prefix, gateway=gateway)]
    return NetworkAttachment(network="blue", prefixes=prefixes)


def a_work(spec: Any) -> Work:
    manifest = {"kind": "WorkloadDeployment", "metadata": {"name": "web"}, "spec": spec}
    return Work(
        metadata=ObjectMeta(name="web-1", namespace="karmada-es-dfw"),
        spec=WorkSpec(workload=WorkloadTemplate(manifests=[manifest])),
    )


def test_a_deployment_that_was_given_it_uses_it() -> None:
    deployment = a_deployment()
    spec = msgspec.structs.replace(deployment.spec, network_attachment=attached(PREFIX))
    given = msgspec.structs.replace(deployment, spec=spec)
    assert user_of(PREFIX, [given], [], []) == "WorkloadDeployment default/web-dfw"
    assert user_of(OTHER, [given], [], []) == ""
    spec = msgspec.structs.replace(deployment.spec, network_attachment=None)
    assert user_of(PREFIX, [msgspec.structs.replace(deployment, spec=spec)], [], []) == ""


def test_a_tombstone_of_a_deployment_uses_it() -> None:
    work = a_work({"networkAttachment": {"prefixes": [{"family": "IPv4", "prefix": PREFIX}]}})
    assert user_of(PREFIX, [], [work], []) == "Work karmada-es-dfw/web-1"
    assert user_of(OTHER, [], [work], []) == ""


def addressed(*addresses: str) -> Instance:
    given = [
        InterfaceAddress(
            family="IPv6" if ":" in address else "IPv4",
            address=address,
            prefix_length=20,
            gateway="10.128.16.1",
        )
        for address in addresses
    ]
    instance = an_instance(0)
    interfaces = [NetworkInterfaceStatus(addresses=given)]
    status = msgspec.structs.replace(instance.status, network_interfaces=interfaces)
    return msgspec.structs.replace(instance, status=status)


@pytest.mark.parametrize("address", ["10.128.16.2", "10.128.31.254"])
def test_an_instance_with_an_address_of_it_uses_it(address: str) -> None:
    running = addressed(address)
    assert user_of(PREFIX, [], [], [running]).startswith("Instance ")
    assert user_of(OTHER, [], [], [running]) == ""


@pytest.mark.parametrize(
    "spec",
    [
        None,
        [],
        {"networkAttachment": None},
        {"networkAttachment": {"prefixes": "all"}},
        {"networkAttachment": {"prefixes": [1, {"prefix": 2}, {"prefix": "x"}, {}]}},
    ],
)
def test_odd_works_use_nothing(spec: Any) -> None:
    assert carried_prefixes(a_work(spec)) == []


@pytest.mark.parametrize(
    ("addresses", "expected"),
    [
        (("10.128.16.2",), [PREFIX]),
        (("10.128.16.2", "10.128.31.254"), [PREFIX]),
        (("10.128.16.2/20",), [PREFIX]),
        (("fd20:0:1:2::5",), ["fd20:0:1::/48", "fd20:0:1:2::/64"]),
        (("not an address",), []),
        ((), []),
    ],
)
def test_an_instance_is_indexed_by_each_prefix_of_its_addresses_once(
    addresses: tuple[str, ...], expected: list[str]
) -> None:
    instance = addressed(*addresses)
    assert addressed_prefixes(instance) == expected
    assert [prefix for prefix in expected if not is_indexed(prefix)] == []
    assert [prefix for prefix in expected if not user_of(prefix, [], [], [instance])] == []


@pytest.mark.parametrize("cidr", ["10.128.0.0/16", "10.128.16.0/24", "fd20::/32"])
def test_prefixes_of_other_lengths_are_not_indexed(cidr: str) -> None:
    assert not is_indexed(cidr)


def test_a_prefix_that_is_attached_twice_is_indexed_once() -> None:
    deployment = a_deployment()
    twice = attached(PREFIX)
    twice = msgspec.structs.replace(twice, prefixes=[*twice.prefixes, *twice.prefixes])
    spec = msgspec.structs.replace(deployment.spec, network_attachment=twice)
    assert attached_prefixes(msgspec.structs.replace(deployment, spec=spec)) == [PREFIX]
    prefixes = [{"prefix": PREFIX}, {"prefix": PREFIX}]
    assert carried_prefixes(a_work({"networkAttachment": {"prefixes": prefixes}})) == [PREFIX]
