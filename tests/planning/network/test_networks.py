"""Bindings, contexts, subnets and attachments of a network; the default network of a project."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    ConditionStatus,
    ConditionValue,
    make_condition,
)
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import (
    DEPLOYMENT,
    IP_ALLOCATION,
    NETWORK,
    NETWORK_BINDING,
    NETWORK_CONTEXT,
    SUBNET_CLAIM,
)
from datum_compute.api.meta.fields import CITY_CODE_KEY, LocalReference, NamespacedReference
from datum_compute.api.meta.objects import ObjectMeta, Ref, owner_reference
from datum_compute.api.networking.location import LocationBinding, LocationBindingSpec
from datum_compute.api.networking.network import (
    Network,
    NetworkBinding,
    NetworkBindingSpec,
    NetworkContext,
    NetworkContextSpec,
    NetworkIpam,
    NetworkSpec,
    Subnet,
    SubnetSpec,
)
from datum_compute.api.planes import project_plane
from datum_compute.planning.network.attachment import (
    ContextWithSubnets,
    location_for,
    plan_attachment,
)
from datum_compute.planning.network.networks import (
    BindingInputs,
    binding_labels,
    binding_verdict,
    context_ref,
    holders_of,
    plan_binding,
    plan_context_removal,
    plan_default_network,
)
from datum_compute.planning.network.prefixes import IPV4_SUBNETS, Ledger
from datum_compute.planning.network.subnets import plan_context, plan_subnet
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus
from datum_compute.planning.workload.deployments import desired_deployments, plan_workload
from testkit.builders import NOW, a_deployment, a_workload, an_attachment

PLANE = project_plane("shop")
BLUE = Ref("default", "blue")


def meta(name: str, **more: object) -> ObjectMeta:
    values: dict[str, object] = {"uid": f"uid-of-{name}", "resource_version": "5", "generation": 1}
    return ObjectMeta(name=name, namespace="default", **{**values, **more})  # type: ignore[arg-type]


def a_network(**more: object) -> Network:
    spec = NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4"])
    return Network(metadata=meta("blue", **more), spec=spec)


def a_binding(name: str = "b") -> NetworkBinding:
    return NetworkBinding(
        metadata=meta(name, labels=binding_labels(BLUE, "dfw")),
        spec=NetworkBindingSpec(
            network=NamespacedReference(name="blue"), location=LocalReference(name="dfw")
        ),
    )


def a_context(status: ConditionStatus = TRUE, reason: str = "Ready") -> NetworkContext:
    context = NetworkContext(
        metadata=meta("blue-dfw", owner_references=[owner_reference(a_network(), NETWORK)]),
        spec=NetworkContextSpec(
            network=LocalReference(name="blue"),
            location=LocalReference(name="dfw"),
            ip_families=["IPv4"],
            network_generation=1,
        ),
    )
    ready = make_condition("Ready", ConditionValue(status, reason, "words"), generation=1, now=NOW)
    new_status = msgspec.structs.replace(context.status, conditions=[ready])
    return msgspec.structs.replace(context, status=new_status)


def a_location(city: str = "DFW", name: str = "dfw") -> LocationBinding:
    return LocationBinding(
        metadata=ObjectMeta(name=name),
        spec=LocationBindingSpec(
            location_ref=LocalReference(name=name),
            location_class_name="datum-managed",
            topology={CITY_CODE_KEY: city},
        ),
    )


def a_subnet(prefix: str = "") -> Subnet:
    subnet = Subnet(
        metadata=meta("blue-dfw-ipv4", finalizers=[labels.SUBNET_FINALIZER]),
        spec=SubnetSpec(
            subnet_class="private",
            network_context=LocalReference(name="blue-dfw"),
            location=LocalReference(name="dfw"),
            ip_family="IPv4",
        ),
    )
    start, _, length = prefix.partition("/")
    if not prefix:
        return subnet
    status = msgspec.structs.replace(subnet.status, start_address=start, prefix_length=int(length))
    return msgspec.structs.replace(subnet, status=status)


NAMES = st.from_regex(r"[a-z]([-a-z]{0,20}[a-z])?", fullmatch=True)


@given(NAMES, NAMES, NAMES, NAMES)
def test_two_pairs_never_share_a_context(a: str, b: str, c: str, d: str) -> None:
    one, other = context_ref(Ref("n", a), b), context_ref(Ref("n", c), d)
    assert (one == other) == ((a, b) == (c, d))
    assert len(one.name) <= 50


@pytest.mark.parametrize(
    ("around", "status", "reason"),
    [
        (BindingInputs(None, a_location(), None), FALSE, "NetworkNotFound"),
        (BindingInputs(a_network(), None, None), FALSE, "LocationNotAvailable"),
        (BindingInputs(a_network(), a_location(), None), UNKNOWN, "NetworkContextNotReady"),
        (
            BindingInputs(a_network(), a_location(), a_context(FALSE, "AddressPoolExhausted")),
            FALSE,
            "NetworkContextNotReady",
        ),
        (BindingInputs(a_network(), a_location(), a_context()), TRUE, "NetworkContextReady"),
        (
            BindingInputs(a_network(deletion_timestamp=NOW), a_location(), a_context()),
            TRUE,
            "NetworkContextReady",
        ),
        (
            BindingInputs(a_network(deletion_timestamp=NOW), a_location(), None),
            FALSE,
            "NetworkNotFound",
        ),
    ],
)
def test_a_binding_reports_what_it_waits_for(
    around: BindingInputs, status: str, reason: str
) -> None:
    verdict = binding_verdict(a_binding(), around)
    assert (verdict.status, verdict.reason) == (status, reason)


def test_the_cause_is_reported_with_its_message() -> None:
    around = BindingInputs(a_network(), a_location(), a_context(FALSE, "AddressPoolExhausted"))
    message = binding_verdict(a_binding(), around).message
    assert message == "NetworkContext blue-dfw: AddressPoolExhausted: words"


def test_a_binding_annotates_the_context_before_it_is_ready() -> None:
    around = BindingInputs(a_network(), a_location(), a_context())
    hold, report = plan_binding(PLANE, a_binding(), around, NOW).actions
    assert isinstance(hold, Patch)
    assert (hold.kind, hold.patch["metadata"]["uid"]) == (NETWORK_CONTEXT, "uid-of-blue-dfw")
    assert isinstance(report, PatchStatus)
    assert report.status["networkContextUid"] == "uid-of-blue-dfw"


def test_a_context_is_deleted_only_at_the_version_observed_without_bindings() -> None:
    context = a_context()
    assert holders_of(context, [a_binding()])
    (delete,) = plan_context_removal(PLANE, context).actions
    assert isinstance(delete, Delete)
    assert (delete.uid, delete.version) == ("uid-of-blue-dfw", "5")


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


def test_a_deployment_receives_prefix_gateway_and_mtu() -> None:
    deployment = a_deployment(attached=False)
    plan = plan_attachment(PLANE, deployment, a_location(), [], None)
    (binding,) = [a.object for a in plan.actions if isinstance(a, Create)]
    assert isinstance(binding, NetworkBinding)
    around = BindingInputs(a_network(), a_location(), a_context())
    ready = make_condition("Ready", binding_verdict(a_binding(), around), generation=1, now=NOW)
    status = msgspec.structs.replace(binding.status, conditions=[ready])
    binding = msgspec.structs.replace(binding, status=status)
    presence = ContextWithSubnets(a_context(), {"blue-dfw-ipv4": a_subnet("10.128.32.0/20")})
    plan = plan_attachment(PLANE, deployment, a_location(), [binding], presence)
    (patch,) = [a for a in plan.actions if isinstance(a, Patch) and a.kind is DEPLOYMENT]
    assert patch.patch["spec"]["networkAttachment"] == {
        "network": "default",
        "namespace": "default",
        "prefixes": [{"family": "IPv4", "prefix": "10.128.32.0/20", "gateway": "10.128.32.1"}],
        "mtu": 1460,
        "location": "dfw",
    }


def test_a_problem_does_not_remove_prefixes() -> None:
    plan = plan_attachment(PLANE, a_deployment(), None, [], None)
    assert [a for a in plan.actions if isinstance(a, Patch)] == []
    fresh = plan_attachment(PLANE, a_deployment(attached=False), None, [], None)
    (patch,) = fresh.actions
    assert isinstance(patch, Patch)
    assert patch.patch["spec"]["networkAttachment"]["problem"]["reason"] == "LocationNotAvailable"


def test_the_old_binding_stays_until_the_rollout_completes() -> None:
    deployment, old = a_deployment(), a_binding("old")
    kept = plan_attachment(PLANE, deployment, a_location(), [old], None)
    assert [a for a in kept.actions if isinstance(a, Delete)] == []
    status = msgspec.structs.replace(
        deployment.status,
        observed_generation=1,
        replicas=1,
        updated_replicas=1,
        desired_replicas=1,
    )
    rolled = msgspec.structs.replace(deployment, status=status)
    (delete,) = [
        a
        for a in plan_attachment(PLANE, rolled, a_location(), [old], None).actions
        if isinstance(a, Delete)
    ]
    assert (delete.kind, delete.ref.name) == (NETWORK_BINDING, "old")


def test_the_workload_planner_keeps_the_attachment() -> None:
    workload = a_workload()
    (made,) = desired_deployments(workload)
    spec = msgspec.structs.replace(made.spec, network_attachment=an_attachment())
    again = plan_workload(PLANE, workload, [msgspec.structs.replace(made, spec=spec)], NOW).actions
    assert [a for a in again if isinstance(a, Patch)] == []


def test_a_city_is_found_case_insensitively_and_the_first_of_two_counts() -> None:
    found = location_for("dfw", [a_location(name="z"), a_location(name="a"), a_location("ORD")])
    assert found is not None
    assert found.metadata.name == "a"
    assert location_for("LHR", [a_location()]) is None


PROJECT = project_plane("shop")
NETWORK_of_networks = Network(
    metadata=ObjectMeta(name="default", namespace="default"),
    spec=NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4"]),
)
OPEN = Namespace(metadata=ObjectMeta(name="default"))
REVOKED = Namespace(metadata=ObjectMeta(name="default", annotations={labels.REVOKED: NOW}))
TERMINATING = Namespace(metadata=ObjectMeta(name="default", deletion_timestamp=NOW))


def test_a_project_without_a_default_network_gets_one() -> None:
    (create,) = plan_default_network(PROJECT, OPEN, None, NETWORK_of_networks).actions
    assert isinstance(create, Create)
    assert create.object == NETWORK_of_networks


@pytest.mark.parametrize(
    ("namespace", "existing"),
    [
        pytest.param(OPEN, NETWORK_of_networks, id="network-exists"),
        pytest.param(REVOKED, None, id="access-revoked"),
        pytest.param(TERMINATING, None, id="namespace-terminating"),
        pytest.param(None, None, id="no-namespace"),
    ],
)
def test_nothing_is_created_where_a_network_exists_or_cannot_be_used(
    namespace: Namespace | None, existing: Network | None
) -> None:
    assert plan_default_network(PROJECT, namespace, existing, NETWORK_of_networks).is_settled
