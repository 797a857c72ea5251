"""The grants and location bindings of an entitlement: creation, updates and removal."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.kinds import ENTITLEMENT, GRANT, LOCATION_BINDING
from datum_compute.api.meta.objects import owner_reference
from datum_compute.api.networking.location import Location, LocationBinding
from datum_compute.api.quota import Allowance, GrantedBucket, ResourceGrant
from datum_compute.api.services import ServiceConfiguration, ServiceEntitlement, grant_name
from datum_compute.planning.plan import Action, Create, Delete, Patch, PatchStatus
from datum_compute.planning.platform.provisioned_objects import (
    plan_bindings,
    plan_grant_removal,
    plan_grants,
)
from tests.planning.platform.test_entitlements import (
    PLANE,
    a_location,
    an_entitlement,
    the_configuration,
)
from tests.planning.platform.test_services import NOW

OWNER: ServiceEntitlement = an_entitlement()
INSTANCES = grant_name("compute", "shop", "instances")


def stored(obj: Any, *, version: str = "4") -> Any:
    metadata = msgspec.structs.replace(
        obj.metadata, uid=f"uid-{obj.metadata.name}", resource_version=version, generation=1
    )
    return msgspec.structs.replace(obj, metadata=metadata)


def without_owner(obj: Any) -> Any:
    metadata = msgspec.structs.replace(obj.metadata, owner_references=[])
    return msgspec.structs.replace(obj, metadata=metadata)


# --- grants


def with_instance_limit(amount: int) -> ServiceConfiguration:
    configuration = the_configuration()
    limits = [
        msgspec.structs.replace(limit, default_limit=amount) if limit.name == "instances" else limit
        for limit in configuration.spec.quota.limits
    ]
    quota = msgspec.structs.replace(configuration.spec.quota, limits=limits)
    spec = msgspec.structs.replace(configuration.spec, quota=quota)
    return msgspec.structs.replace(configuration, spec=spec)


def instance_grant(default: int = 10) -> ResourceGrant:
    """Return the stored grant of instances, created with this default."""
    created = [
        a.object
        for a in plan_grants(PLANE, OWNER, with_instance_limit(default), [])
        if isinstance(a, Create)
    ]
    grant: ResourceGrant = stored(next(g for g in created if g.metadata.name == INSTANCES))
    return grant


def set_by_operator(grant: ResourceGrant, amount: int) -> ResourceGrant:
    (allowance,) = grant.spec.allowances
    changed = Allowance(
        resource_type=allowance.resource_type, buckets=[GrantedBucket(amount=amount)]
    )
    spec = msgspec.structs.replace(grant.spec, allowances=[changed])
    return msgspec.structs.replace(grant, spec=spec)


def changes_of(actions: list[Action], name: str) -> list[Action]:
    return [a for a in actions if isinstance(a, Patch | Delete) and a.ref.name == name]


def test_each_limit_of_projects_gets_a_grant_with_its_default() -> None:
    grant = instance_grant(10)
    assert grant.spec.allowances[0].buckets[0].amount == 10
    assert grant.spec.consumer_ref.name == "shop"
    assert grant.metadata.annotations == {labels.DEFAULT_LIMIT: "10"}
    assert grant.metadata.labels == {labels.ENTITLEMENT: "compute", labels.LIMIT: "instances"}


def test_a_limit_of_another_consumer_gets_no_grant() -> None:
    configuration = the_configuration()
    limits = [
        msgspec.structs.replace(
            limit, consumer_type=msgspec.structs.replace(limit.consumer_type, kind="Organization")
        )
        for limit in configuration.spec.quota.limits
    ]
    quota = msgspec.structs.replace(configuration.spec.quota, limits=limits)
    spec = msgspec.structs.replace(configuration.spec, quota=quota)
    configuration = msgspec.structs.replace(configuration, spec=spec)
    assert plan_grants(PLANE, OWNER, configuration, []) == []


@pytest.mark.parametrize(
    ("grant", "updated"),
    [
        pytest.param(instance_grant(10), True, id="default-amount"),
        pytest.param(set_by_operator(instance_grant(10), 3), False, id="changed-by-operator"),
        pytest.param(without_owner(instance_grant(10)), False, id="of-another-owner"),
        pytest.param(instance_grant(20), False, id="up-to-date"),
    ],
)
def test_a_new_default_updates_grants_that_no_operator_changed(
    grant: ResourceGrant, updated: bool
) -> None:
    actions = plan_grants(PLANE, OWNER, with_instance_limit(20), [grant])
    assert len(changes_of(actions, INSTANCES)) == updated
    assert not [a for a in actions if isinstance(a, Create) and a.object.metadata.name == INSTANCES]


def test_the_grant_of_a_deleted_entitlement_is_deleted_at_the_observed_version() -> None:
    removal = plan_grant_removal(PLANE, instance_grant())
    assert isinstance(removal, Delete)
    assert (removal.kind, removal.uid, removal.version) == (GRANT, f"uid-{INSTANCES}", "4")


def test_a_grant_that_an_operator_changed_is_kept_without_its_owner() -> None:
    removal = plan_grant_removal(PLANE, set_by_operator(instance_grant(), 3))
    assert isinstance(removal, Patch)
    assert removal.patch == {"metadata": {"resourceVersion": "4", "ownerReferences": []}}


# --- location bindings


def a_binding(location: Location) -> LocationBinding:
    (create,) = plan_bindings(PLANE, OWNER, the_configuration(), [location], [], NOW)
    assert isinstance(create, Create)
    binding: LocationBinding = stored(create.object)
    return binding


def bindings_of(*locations: Location) -> list[LocationBinding]:
    return [a_binding(location) for location in locations]


def plan(locations: list[Location], observed: list[LocationBinding]) -> list[Action]:
    return plan_bindings(PLANE, OWNER, the_configuration(), locations, observed, NOW)


def terminating(obj: Any) -> Any:
    metadata = msgspec.structs.replace(obj.metadata, deletion_timestamp=NOW)
    return msgspec.structs.replace(obj, metadata=metadata)


def test_a_binding_describes_its_location_and_is_owned_by_the_entitlement() -> None:
    binding = a_binding(a_location("dfw"))
    assert binding.metadata.owner_references == [owner_reference(OWNER, ENTITLEMENT)]
    assert binding.spec.location_ref.name == "dfw"
    assert binding.spec.display_name == "DFW"
    assert binding.spec.location_class_name == "datum-managed"


def test_bindings_are_created_in_the_order_of_their_locations() -> None:
    created = plan([a_location("iad"), a_location("dfw")], [])
    names = [a.object.metadata.name for a in created if isinstance(a, Create)]
    assert names == ["dfw", "iad"]


@pytest.mark.parametrize(
    "location",
    [
        pytest.param(a_location("dfw", class_="self-managed"), id="class-not-supported"),
        pytest.param(terminating(a_location("dfw")), id="terminating"),
    ],
)
def test_a_location_that_is_not_offered_gets_no_binding(location: Location) -> None:
    assert plan([location], []) == []


@pytest.mark.parametrize(
    ("location", "status", "reason"),
    [
        (a_location("dfw"), "True", "AllGatesOpen"),
        (a_location("dfw", class_="self-managed"), "False", "LocationClassNotSupported"),
        (a_location("dfw", ready=False), "False", "LocationNotReady"),
    ],
)
def test_the_availability_of_a_binding_follows_its_location(
    location: Location, status: str, reason: str
) -> None:
    actions = plan([location], bindings_of(a_location("dfw")))
    (report,) = [a for a in actions if isinstance(a, PatchStatus)]
    (condition,) = report.status["conditions"]
    assert (condition["type"], condition["status"]) == ("Available", status)
    assert condition["reason"] == reason


def test_a_changed_city_is_copied_to_the_binding() -> None:
    (binding,) = bindings_of(a_location("dfw"))
    moved = a_location("dfw")
    topology = {"topology.datum.net/city-code": "IAD"}
    moved = msgspec.structs.replace(
        moved, spec=msgspec.structs.replace(moved.spec, topology=topology)
    )
    (patch,) = [a for a in plan([moved], [binding]) if isinstance(a, Patch)]
    assert patch.patch["spec"] == {"displayName": "IAD", "topology": topology}


def test_the_binding_of_a_deleted_location_is_deleted() -> None:
    dfw, iad = bindings_of(a_location("dfw"), a_location("iad"))
    (removal,) = [a for a in plan([a_location("iad")], [dfw, iad]) if isinstance(a, Delete)]
    assert (removal.kind, removal.ref.name, removal.uid) == (LOCATION_BINDING, "dfw", "uid-dfw")


@pytest.mark.parametrize(
    "change", [pytest.param(without_owner, id="foreign"), pytest.param(terminating, id="deleted")]
)
@pytest.mark.parametrize(
    "locations", [pytest.param([], id="no-location"), pytest.param([a_location("dfw")], id="same")]
)
def test_foreign_and_terminating_bindings_are_not_changed(
    locations: list[Location], change: Any
) -> None:
    (binding,) = bindings_of(a_location("dfw"))
    assert plan(locations, [change(binding)]) == []
