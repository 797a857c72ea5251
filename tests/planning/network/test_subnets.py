"""Subnet claims, subnets and their prefixes."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    ConditionStatus,
    ConditionValue,
    make_condition,
)
from datum_compute.api.kinds import IP_ALLOCATION, SUBNET_CLAIM
from datum_compute.api.meta.fields import IpFamily
from datum_compute.api.networking.network import (
    IPAllocation,
    Network,
    NetworkContext,
    NetworkContextStatus,
    Subnet,
    SubnetClaim,
)
from datum_compute.planning.network.prefixes import (
    IPV4_SUBNETS,
    IPV6_SUBNET_LENGTH,
    Ledger,
    Pool,
)
from datum_compute.planning.network.subnets import (
    RECHECK_S,
    plan_claim,
    plan_context,
    plan_subnet,
    plan_subnet_removal,
    pool_of,
)
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Plan, Wait
from testkit.builders import NOW
from tests.planning.network.network_objects import PLANE, a_context, a_network, a_subnet, meta


def test_a_context_claims_a_subnet_for_each_family() -> None:
    actions = plan_context(PLANE, a_context(), a_network(), {}, {}, NOW).actions
    made = [a.object.metadata.name for a in actions if isinstance(a, Create)]
    assert made == ["blue-dfw-ipv4"]
    assert [a.kind for a in actions if isinstance(a, Create)] == [SUBNET_CLAIM]


def test_a_subnet_allocates_its_prefix_before_reporting_it() -> None:
    take, show = plan_subnet(PLANE, a_subnet(), a_network(), Ledger((), ()), NOW).actions
    assert isinstance(take, Create)
    assert isinstance(show, PatchStatus)
    assert take.kind is IP_ALLOCATION
    assert show.status["startAddress"] == take.object.spec.cidr.split("/")[0]  # type: ignore[attr-defined]


def test_an_exhausted_pool_is_reported_with_numbers_and_no_prefix() -> None:
    everything = {IPV4_SUBNETS.prefix(index) for index in range(IPV4_SUBNETS.count)}
    plan = plan_subnet(PLANE, a_subnet(), a_network(), Ledger((), everything), NOW)
    (show,) = plan.actions
    assert isinstance(show, PatchStatus)
    allocated = next(c for c in show.status["conditions"] if c["type"] == "Allocated")
    assert (allocated["status"], allocated["reason"]) == ("False", "AddressPoolExhausted")
    assert "All 2048 prefixes of 10.128.0.0/9" in allocated["message"]
    assert "startAddress" not in show.status
    assert plan.requeue_after_s is not None


# --- verdicts


def with_prefix(status: ConditionStatus, reason: str) -> Subnet:
    subnet = a_subnet("10.128.32.0/20")
    verdict = ConditionValue(status, reason, "no prefix is free")
    conditions = [
        make_condition(type_, verdict, generation=1, now=NOW) for type_ in ("Allocated", "Ready")
    ]
    new_status = msgspec.structs.replace(subnet.status, conditions=conditions)
    return msgspec.structs.replace(subnet, status=new_status)


def conditions_in(plan: Plan) -> dict[str, tuple[str, str]]:
    """Return status and reason of each condition that the plan reports."""
    (report,) = [a for a in plan.actions if isinstance(a, PatchStatus)]
    return {c["type"]: (c["status"], c["reason"]) for c in report.status["conditions"]}


@pytest.mark.parametrize(
    ("subnet", "allocated", "ready"),
    [
        pytest.param(None, ("Unknown", "Pending"), ("Unknown", "Pending"), id="no-subnet"),
        pytest.param(
            a_subnet(), ("Unknown", "Pending"), ("Unknown", "Pending"), id="without-prefix"
        ),
        pytest.param(
            with_prefix(FALSE, "AddressPoolExhausted"),
            ("False", "AddressPoolExhausted"),
            ("False", "AddressPoolExhausted"),
            id="pool-exhausted",
        ),
        pytest.param(
            with_prefix(TRUE, "PrefixAllocated"),
            ("True", "Allocated"),
            ("True", "Ready"),
            id="allocated",
        ),
    ],
)
def test_a_context_is_ready_when_its_subnets_have_prefixes(
    subnet: Subnet | None, allocated: tuple[str, str], ready: tuple[str, str]
) -> None:
    subnets = {"blue-dfw-ipv4": subnet} if subnet is not None else {}
    plan = plan_context(PLANE, without_conditions(a_context()), a_network(), {}, subnets, NOW)
    assert conditions_in(plan) == {"IPAMAllocated": allocated, "Ready": ready}


def without_conditions(context: NetworkContext) -> NetworkContext:
    return msgspec.structs.replace(context, status=NetworkContextStatus())


def test_a_network_without_allocation_needs_no_subnet() -> None:
    network = a_network()
    ipam = msgspec.structs.replace(network.spec.ipam, mode="Policy")
    network = msgspec.structs.replace(
        network, spec=msgspec.structs.replace(network.spec, ipam=ipam)
    )
    plan = plan_context(PLANE, without_conditions(a_context()), network, {}, {}, NOW)
    assert not [a for a in plan.actions if isinstance(a, Create)]
    assert conditions_in(plan)["Ready"] == ("True", "Ready")


# --- claims


def a_claim(**more: object) -> SubnetClaim:
    return SubnetClaim(metadata=meta("blue-dfw-ipv4", **more), spec=a_subnet().spec)


def test_a_claim_creates_its_subnet_with_the_finalizer_that_protects_the_prefix() -> None:
    create, report = plan_claim(PLANE, a_claim(), a_context(), None, NOW).actions
    assert isinstance(create, Create)
    assert create.object.metadata.finalizers == [labels.SUBNET_FINALIZER]
    assert create.object.metadata.owner_references[0].name == "blue-dfw"
    assert isinstance(report, PatchStatus)
    assert "subnetRef" not in report.status


def test_a_claim_reports_the_prefix_of_its_ready_subnet() -> None:
    subnet = with_prefix(TRUE, "PrefixAllocated")
    (report,) = plan_claim(PLANE, a_claim(), a_context(), subnet, NOW).actions
    assert isinstance(report, PatchStatus)
    assert report.status["subnetRef"] == {"name": "blue-dfw-ipv4"}
    assert (report.status["startAddress"], report.status["prefixLength"]) == ("10.128.32.0", 20)


def test_a_claim_copies_the_refusal_of_its_subnet() -> None:
    subnet = with_prefix(FALSE, "AddressPoolExhausted")
    plan = plan_claim(PLANE, a_claim(), a_context(), subnet, NOW)
    assert conditions_in(plan) == {
        "Allocated": ("False", "AddressPoolExhausted"),
        "Programmed": ("Unknown", "Pending"),
        "Ready": ("False", "SubnetNotReady"),
    }


@pytest.mark.parametrize(
    ("claim", "context"),
    [
        pytest.param(a_claim(deletion_timestamp=NOW), a_context(), id="claim-terminating"),
        pytest.param(a_claim(), None, id="no-context"),
    ],
)
def test_no_subnet_is_created_for_a_claim_that_is_no_longer_used(
    claim: SubnetClaim, context: NetworkContext | None
) -> None:
    assert plan_claim(PLANE, claim, context, None, NOW) == Plan()


# --- prefixes


def in_family(family: IpFamily) -> Subnet:
    subnet = a_subnet()
    return msgspec.structs.replace(
        subnet, spec=msgspec.structs.replace(subnet.spec, ip_family=family)
    )


def with_ipv6_prefix() -> Network:
    network = a_network()
    ipam = msgspec.structs.replace(network.status.ipam, ipv6_prefix="fd00:1::/48")
    return msgspec.structs.replace(
        network, status=msgspec.structs.replace(network.status, ipam=ipam)
    )


@pytest.mark.parametrize(
    ("subnet", "network", "pool"),
    [
        (in_family("IPv4"), None, IPV4_SUBNETS),
        (in_family("IPv6"), with_ipv6_prefix(), Pool("fd00:1::/48", IPV6_SUBNET_LENGTH)),
        (in_family("IPv6"), a_network(), None),
        (in_family("IPv6"), None, None),
    ],
)
def test_an_ipv6_subnet_is_part_of_the_prefix_of_its_network(
    subnet: Subnet, network: Network | None, pool: Pool | None
) -> None:
    assert pool_of(subnet, network) == pool


def test_an_ipv6_subnet_waits_for_the_prefix_of_its_network() -> None:
    plan = plan_subnet(PLANE, in_family("IPv6"), a_network(), Ledger((), ()), NOW)
    assert [type(action) for action in plan.actions] == [Wait]
    assert plan.requeue_after_s == RECHECK_S


def test_a_subnet_gets_its_finalizer_before_its_prefix() -> None:
    subnet = a_subnet()
    metadata = msgspec.structs.replace(subnet.metadata, finalizers=[])
    bare = msgspec.structs.replace(subnet, metadata=metadata)
    (patch,) = plan_subnet(PLANE, bare, a_network(), Ledger((), ()), NOW).actions
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["finalizers"] == [labels.SUBNET_FINALIZER]


def test_the_requested_prefix_is_allocated() -> None:
    subnet = a_subnet()
    spec = msgspec.structs.replace(subnet.spec, start_address="10.129.0.0", prefix_length=20)
    requested = msgspec.structs.replace(subnet, spec=spec)
    create, report = plan_subnet(PLANE, requested, a_network(), Ledger((), ()), NOW).actions
    assert isinstance(create, Create)
    assert isinstance(create.object, IPAllocation)
    assert create.object.spec.cidr == "10.129.0.0/20"
    assert isinstance(report, PatchStatus)
    assert report.status["startAddress"] == "10.129.0.0"


def an_allocation(name: str, cidr: str) -> IPAllocation:
    """Return the allocation of a subnet with another prefix."""
    create, _ = plan_subnet(PLANE, a_subnet(), a_network(), Ledger((), ()), NOW).actions
    assert isinstance(create, Create)
    assert isinstance(create.object, IPAllocation)
    spec = msgspec.structs.replace(create.object.spec, cidr=cidr)
    return msgspec.structs.replace(create.object, metadata=meta(name), spec=spec)


def test_a_removed_subnet_keeps_the_allocations_in_use() -> None:
    used, unused = an_allocation("used", "10.128.16.0/20"), an_allocation("unused", "10.9.0.0/20")
    users = {used.spec.cidr: "instance web-dfw-0"}
    ledger = Ledger((used, unused), ())
    deletion, release = plan_subnet_removal(PLANE, a_subnet(), ledger, users).actions
    assert isinstance(deletion, Delete)
    assert deletion.ref.name == "unused"
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []
