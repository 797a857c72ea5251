"""The attachment of a deployment to its network: binding, prefixes, problems."""

from __future__ import annotations

import msgspec

from datum_compute.api.conditions import (
    make_condition,
)
from datum_compute.api.kinds import (
    DEPLOYMENT,
    NETWORK_BINDING,
)
from datum_compute.api.networking.network import (
    NetworkBinding,
)
from datum_compute.planning.network.attachment import (
    ContextWithSubnets,
    location_for,
    plan_attachment,
)
from datum_compute.planning.network.networks import (
    BindingInputs,
    binding_verdict,
)
from datum_compute.planning.plan import Create, Delete, Patch
from testkit.builders import NOW, a_deployment
from tests.planning.network.network_objects import (
    PLANE,
    a_binding,
    a_context,
    a_location,
    a_network,
    a_subnet,
)


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


def test_a_city_is_found_case_insensitively_and_the_first_of_two_counts() -> None:
    found = location_for("dfw", [a_location(name="z"), a_location(name="a"), a_location("ORD")])
    assert found is not None
    assert found.metadata.name == "a"
    assert location_for("LHR", [a_location()]) is None
