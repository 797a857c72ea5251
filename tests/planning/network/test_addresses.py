"""Addresses are in the prefix, unique and never reserved; a full prefix is reported."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.compute.deployment import (
    AttachedPrefix,
    AttachmentProblem,
    NetworkAttachment,
)
from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN
from datum_compute.planning.network.addresses import (
    assigned_interfaces,
    block_of,
    interface_of,
    network_verdict,
    plan_address,
    reachable_interfaces,
)
from testkit.builders import an_attachment, an_instance

TINY = "10.128.0.0/29"


@pytest.mark.parametrize(
    ("prefix", "count"), [("10.128.0.0/20", 4093), (TINY, 5), ("fd20::/64", 2**64 - 2)]
)
def test_network_gateway_and_broadcast_addresses_are_reserved(prefix: str, count: int) -> None:
    assert block_of(prefix).count == count


@given(st.lists(st.text(max_size=6), max_size=8))
def test_an_address_is_allocated_once_and_is_not_reserved(names: list[str]) -> None:
    taken: list[str] = []
    for name in names:
        address = plan_address(TINY, name, taken.__contains__)
        if len(taken) == block_of(TINY).count:
            assert address is None
            continue
        assert address is not None
        assert address not in (*taken, "10.128.0.0", "10.128.0.1", "10.128.0.7")
        assert ip_address(address) in ip_network(TINY)
        taken.append(address)


@given(st.text(max_size=20))
def test_the_same_name_starts_at_the_same_address(name: str) -> None:
    free = plan_address("10.128.0.0/20", name, lambda _: False)
    assert free == plan_address("10.128.0.0/20", name, lambda _: False)
    assert free != plan_address("10.128.0.0/20", name, lambda address: address == free)


def test_an_interface_shows_bare_addresses_and_the_primary_first() -> None:
    both = NetworkAttachment(
        network="default",
        prefixes=[
            AttachedPrefix(family="IPv6", prefix="fd20::/64", gateway="fd20::1"),
            *an_attachment().prefixes,
        ],
        mtu=1400,
    )
    interface = interface_of(an_instance(0), both, ["fd20::5", "10.128.16.9"])
    assert interface.assignments.network_ip == "fd20::5"
    assert [(a.address, a.prefix_length, a.gateway) for a in interface.addresses] == [
        ("fd20::5", 64, "fd20::1"),
        ("10.128.16.9", 20, "10.128.16.1"),
    ]
    assert (interface.name, interface.mtu) == ("eth0", 1400)


def test_the_network_is_ready_with_the_addresses() -> None:
    given_ = interface_of(an_instance(0), an_attachment(), ["10.128.16.9"])
    assert network_verdict(an_instance(0), an_attachment(), [given_]).status == TRUE


def test_without_an_attachment_the_network_is_provisioning() -> None:
    verdict = network_verdict(an_instance(0), None, [])
    assert (verdict.status, verdict.reason) == (UNKNOWN, "NetworkProvisioning")


def test_a_problem_of_the_attachment_is_reported_with_its_message() -> None:
    problem = AttachmentProblem(reason="NoAddresses", message="Network blue allocates none")
    attachment = NetworkAttachment(network="blue", problem=problem)
    verdict = network_verdict(an_instance(0), attachment, [])
    assert (verdict.status, verdict.reason) == (FALSE, "NetworkFailedToCreate")
    assert verdict.message == 'Interface "eth0": NoAddresses: Network blue allocates none'


def test_a_missing_network_is_reported_as_missing() -> None:
    problem = AttachmentProblem(reason="NetworkNotFound", message="Network blue does not exist")
    attachment = NetworkAttachment(network="blue", problem=problem)
    verdict = network_verdict(an_instance(0), attachment, [])
    assert (verdict.status, verdict.reason) == (FALSE, "NetworkNotFound")
    assert verdict.message == 'Interface "eth0": Network blue does not exist'


def test_a_full_prefix_reports_its_number_of_addresses() -> None:
    attachment = msgspec.structs.replace(
        an_attachment(),
        prefixes=[AttachedPrefix(family="IPv4", prefix=TINY, gateway="10.128.0.1")],
    )
    verdict = network_verdict(an_instance(0), attachment, [])
    assert verdict.reason == "NetworkFailedToCreate"
    assert "AddressPoolExhausted: all 5 addresses of 10.128.0.0/29" in verdict.message


def test_a_machine_with_own_addresses_is_reachable_at_them() -> None:
    """A pod has an address of its cluster and is not reachable at the assigned one."""
    given_ = [interface_of(an_instance(0), an_attachment(), ["10.128.16.9"])]
    assert reachable_interfaces(given_, ()) == given_, "kept while the machine has no address"
    assert reachable_interfaces(given_, ["10.128.16.9"]) == given_
    (shown,) = reachable_interfaces(given_, ["10.244.1.7", "fd00::7"])
    assert shown.assignments.network_ip == "10.244.1.7"
    assert shown.addresses == given_[0].addresses, "those stay its own in the network"
    assert reachable_interfaces([shown], ()) == [shown], "also while it starts again"
    assert reachable_interfaces([shown], ["10.128.16.9"]) == given_
    assert assigned_interfaces([shown]) == given_
