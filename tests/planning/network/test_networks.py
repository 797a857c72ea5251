"""Bindings and contexts of a network; the default network of a project."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
)
from datum_compute.api.core import Namespace
from datum_compute.api.kinds import (
    NETWORK_CONTEXT,
)
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.networking.network import (
    Network,
    NetworkIpam,
    NetworkSpec,
)
from datum_compute.planning.network.networks import (
    BindingInputs,
    binding_verdict,
    context_ref,
    holders_of,
    plan_binding,
    plan_context_removal,
    plan_default_network,
)
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus
from testkit.builders import NOW
from tests.planning.network.network_objects import (
    PLANE,
    a_binding,
    a_context,
    a_location,
    a_network,
)

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


DEFAULT_NETWORK = Network(
    metadata=ObjectMeta(name="default", namespace="default"),
    spec=NetworkSpec(ipam=NetworkIpam(mode="Auto"), ip_families=["IPv4"]),
)
OPEN = Namespace(metadata=ObjectMeta(name="default"))
REVOKED = Namespace(metadata=ObjectMeta(name="default", annotations={labels.REVOKED: NOW}))
TERMINATING = Namespace(metadata=ObjectMeta(name="default", deletion_timestamp=NOW))


def test_a_project_without_a_default_network_gets_one() -> None:
    (create,) = plan_default_network(PLANE, OPEN, None, DEFAULT_NETWORK).actions
    assert isinstance(create, Create)
    assert create.object == DEFAULT_NETWORK


@pytest.mark.parametrize(
    ("namespace", "existing"),
    [
        pytest.param(OPEN, DEFAULT_NETWORK, id="network-exists"),
        pytest.param(REVOKED, None, id="access-revoked"),
        pytest.param(TERMINATING, None, id="namespace-terminating"),
        pytest.param(None, None, id="no-namespace"),
    ],
)
def test_nothing_is_created_where_a_network_exists_or_cannot_be_used(
    namespace: Namespace | None, existing: Network | None
) -> None:
    assert plan_default_network(PLANE, namespace, existing, DEFAULT_NETWORK).is_settled
