"""Prefixes of a pool never overlap and are found again; users of a prefix are found."""

from __future__ import annotations

from ipaddress import ip_network
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.compute.deployment import AttachedPrefix, NetworkAttachment
from datum_compute.api.compute.instance import Instance, InterfaceAddress, NetworkInterfaceStatus
from datum_compute.api.karmada import Work, WorkloadTemplate, WorkSpec
from datum_compute.api.kinds import NETWORK
from datum_compute.api.meta.objects import ObjectMeta, ref_of
from datum_compute.api.networking.network import IPAllocation, Network, NetworkIpam, NetworkSpec
from datum_compute.api.planes import PLATFORM, project_plane
from datum_compute.planning.network.prefixes import (
    HOLDER_RECHECK_S,
    IPV4_SUBNETS,
    IPV6_NETWORKS,
    USE_RECHECK_S,
    HolderState,
    Ledger,
    Pool,
    PrefixHolder,
    addressed_prefixes,
    allocation_name,
    attached_prefixes,
    find_prefix_user,
    free_prefix,
    is_indexed,
    is_project_removed,
    plan_allocation,
    plan_allocation_release,
    plan_orphaned_allocation,
    prefixes_in_work,
)
from datum_compute.planning.plan import Create, Delete, Plan, Wait
from testkit.builders import a_deployment, an_instance

PROJECT = project_plane("shop")
SMALL = Pool("10.128.0.0/22", 24)
EMPTY_LEDGER = Ledger((), frozenset())


def a_holder(uid: str = "uid-1", seed: str = "seed") -> PrefixHolder:
    metadata = ObjectMeta(name="default", namespace="default", uid=uid)
    network = Network(metadata=metadata, spec=NetworkSpec(ipam=NetworkIpam(mode="Auto")))
    return PrefixHolder(PROJECT, NETWORK, network, seed)


def allocation_of(holder: PrefixHolder, pool: Pool, ledger: Ledger = EMPTY_LEDGER) -> IPAllocation:
    (create,) = plan_allocation(holder, pool, ledger).actions
    assert isinstance(create, Create)
    assert isinstance(create.object, IPAllocation)
    return create.object


@pytest.mark.parametrize(
    ("pool", "count"), [(IPV4_SUBNETS, 2048), (IPV6_NETWORKS, 1 << 28), (SMALL, 4)]
)
def test_a_pool_is_cut_into_prefixes_of_one_length(pool: Pool, count: int) -> None:
    assert pool.count == count
    last = ip_network(pool.prefix(count - 1))
    assert last.prefixlen == pool.length
    assert last.broadcast_address == pool.network.broadcast_address


@given(st.lists(st.text(max_size=8), min_size=1, max_size=6))
def test_allocations_never_overlap(seeds: list[str]) -> None:
    taken: list[str] = []
    for seed in seeds:
        cidr = free_prefix(SMALL, taken, seed)
        if len(taken) == SMALL.count:
            assert cidr is None
        else:
            assert cidr is not None
            assert SMALL.contains(cidr)
            assert not any(ip_network(cidr).overlaps(ip_network(other)) for other in taken)
            taken.append(cidr)


@given(st.integers(0, (1 << 28) - 1), st.integers(0, (1 << 28) - 1))
def test_two_prefixes_have_two_names(one: int, other: int) -> None:
    names = {allocation_name(IPV6_NETWORKS.prefix(index)) for index in (one, other)}
    assert len(names) == len({one, other})


def test_an_allocation_is_named_after_its_prefix() -> None:
    taking = plan_allocation(a_holder(), IPV4_SUBNETS, EMPTY_LEDGER)
    (create,) = taking.actions
    assert isinstance(create, Create)
    assert (create.plane, create.object.metadata.name) == (PLATFORM, allocation_name(taking.cidr))


def test_a_recorded_prefix_is_found_again_after_a_crash() -> None:
    """Allocated, but not yet in the status of its holder."""
    holder = a_holder()
    record = allocation_of(holder, SMALL)
    again = plan_allocation(holder, SMALL, Ledger([record], {record.spec.cidr}))
    assert (again.cidr, again.actions) == (record.spec.cidr, ())


def test_a_recreated_holder_gets_its_old_prefix_if_it_is_free() -> None:
    first = allocation_of(a_holder("uid-1"), IPV4_SUBNETS)
    second = allocation_of(a_holder("uid-2"), IPV4_SUBNETS)
    assert first.spec.cidr == second.spec.cidr
    third = allocation_of(a_holder("uid-3"), IPV4_SUBNETS, Ledger((), {first.spec.cidr}))
    assert third.spec.cidr != first.spec.cidr


def test_a_holder_of_two_prefixes_keeps_the_one_in_its_status() -> None:
    holder = a_holder()
    recorded = allocation_of(holder, SMALL)
    other = allocation_of(holder, SMALL, Ledger((), {recorded.spec.cidr}))
    ledger = Ledger([recorded, other], {recorded.spec.cidr, other.spec.cidr})
    taking = plan_allocation(holder, SMALL, ledger, recorded=recorded.spec.cidr)
    (spare,) = taking.actions
    assert isinstance(spare, Delete)
    assert (taking.cidr, spare.ref) == (recorded.spec.cidr, ref_of(other))


def test_a_reported_prefix_without_record_is_allocated_again_or_refused() -> None:
    recorded = SMALL.prefix(2)
    assert plan_allocation(a_holder(), SMALL, EMPTY_LEDGER, recorded=recorded).cidr == recorded
    lost = plan_allocation(a_holder(), SMALL, Ledger((), {recorded}), recorded=recorded)
    assert lost.refusal is not None
    assert lost.refusal.reason == "RetainedAddressConflict"


def test_a_full_pool_reports_its_size() -> None:
    everything = {SMALL.prefix(index) for index in range(SMALL.count)}
    refusal = plan_allocation(a_holder(), SMALL, Ledger((), everything)).refusal
    assert refusal is not None
    assert refusal.reason == "AddressPoolExhausted"
    assert refusal.message == "All 4 prefixes of 10.128.0.0/22 (/24) are allocated"


@pytest.mark.parametrize("pool", [IPV4_SUBNETS, IPV6_NETWORKS])
def test_a_project_has_a_prefix_limit(pool: Pool) -> None:
    most = pool.project_max
    assert most is not None
    assert most <= pool.count // 16
    assert plan_allocation(a_holder(), pool, Ledger((), frozenset(), most - 1)).cidr
    refusal = plan_allocation(a_holder(), pool, Ledger((), frozenset(), most)).refusal
    assert refusal is not None
    assert refusal.reason == "PrefixLimitReached"
    assert f"Project shop holds {most} of at most {most} prefixes of {pool.cidr}" in refusal.message


def test_a_project_at_its_limit_keeps_its_prefixes() -> None:
    own = allocation_of(a_holder(), IPV4_SUBNETS)
    ledger = Ledger((own,), {own.spec.cidr}, IPV4_SUBNETS.project_max or 0)
    assert plan_allocation(a_holder(), IPV4_SUBNETS, ledger).cidr == own.spec.cidr


@pytest.mark.parametrize("requested", ["10.0.0.0/24", "10.128.0.0/23", "fd20::/48"])
def test_a_requested_prefix_outside_the_pool_is_refused(requested: str) -> None:
    refusal = plan_allocation(a_holder(), SMALL, EMPTY_LEDGER, requested=requested).refusal
    assert refusal is not None
    assert refusal.reason == "RangeUnsupported"


def test_a_release_deletes_the_recorded_uid() -> None:
    record = allocation_of(a_holder(), SMALL)
    record = msgspec.structs.replace(
        record, metadata=msgspec.structs.replace(record.metadata, uid="record-uid")
    )
    (delete,) = plan_allocation_release([record])
    assert isinstance(delete, Delete)
    assert (delete.uid, delete.ref) == ("record-uid", ref_of(record))


@pytest.mark.parametrize("user", ["", "Instance default/web-0"])
@pytest.mark.parametrize("holder", [HolderState.EXISTS, HolderState.UNKNOWN])
def test_an_allocation_stays_until_its_holder_is_known_to_be_gone(
    holder: HolderState, user: str
) -> None:
    plan = plan_orphaned_allocation(allocation_of(a_holder(), SMALL), holder, user)
    assert plan == Plan(requeue_after_s=HOLDER_RECHECK_S)


def test_an_orphaned_allocation_stays_while_its_prefix_is_used() -> None:
    record = allocation_of(a_holder(), SMALL)
    plan = plan_orphaned_allocation(record, HolderState.GONE, "Instance default/web-0")
    wait = Wait(f"{record.spec.cidr} is used by Instance default/web-0")
    assert plan == Plan((wait,), USE_RECHECK_S)


def test_an_unused_orphaned_allocation_is_released() -> None:
    record = allocation_of(a_holder(), SMALL)
    (delete,) = plan_orphaned_allocation(record, HolderState.GONE, "").actions
    assert isinstance(delete, Delete)
    assert delete.ref == ref_of(record)


def test_the_label_of_a_removed_project_is_on_its_allocations() -> None:
    record = allocation_of(a_holder(), SMALL)
    assert not is_project_removed(record)
    metadata = msgspec.structs.replace(record.metadata, labels={labels.PROJECT_REMOVED: "true"})
    assert is_project_removed(msgspec.structs.replace(record, metadata=metadata))


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


def test_a_deployment_uses_its_attached_prefix() -> None:
    deployment = a_deployment()
    spec = msgspec.structs.replace(deployment.spec, network_attachment=attached(PREFIX))
    given = msgspec.structs.replace(deployment, spec=spec)
    assert find_prefix_user(PREFIX, [given], [], []) == "WorkloadDeployment default/web-dfw"
    assert find_prefix_user(OTHER, [given], [], []) == ""
    spec = msgspec.structs.replace(deployment.spec, network_attachment=None)
    assert find_prefix_user(PREFIX, [msgspec.structs.replace(deployment, spec=spec)], [], []) == ""


def test_a_tombstone_uses_the_prefix_of_its_deployment() -> None:
    work = a_work({"networkAttachment": {"prefixes": [{"family": "IPv4", "prefix": PREFIX}]}})
    assert find_prefix_user(PREFIX, [], [work], []) == "Work karmada-es-dfw/web-1"
    assert find_prefix_user(OTHER, [], [work], []) == ""


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
def test_an_instance_uses_the_prefix_of_its_address(address: str) -> None:
    running = addressed(address)
    assert find_prefix_user(PREFIX, [], [], [running]).startswith("Instance ")
    assert find_prefix_user(OTHER, [], [], [running]) == ""


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
def test_malformed_works_use_no_prefix(spec: Any) -> None:
    assert prefixes_in_work(a_work(spec)) == []


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
    assert [prefix for prefix in expected if not find_prefix_user(prefix, [], [], [instance])] == []


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
    assert prefixes_in_work(a_work({"networkAttachment": {"prefixes": prefixes}})) == [PREFIX]
