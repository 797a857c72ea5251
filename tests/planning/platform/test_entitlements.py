"""States of an entitlement, the objects that it creates, and their deletion."""

from __future__ import annotations

from dataclasses import replace as with_fields
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api import labels
from datum_compute.api.conditions import Condition
from datum_compute.api.kinds import CONSUMER, ENTITLEMENT, GRANT, LOCATION_BINDING
from datum_compute.api.meta.codec import decode_as, encode, to_json
from datum_compute.api.meta.fields import LocalReference
from datum_compute.api.meta.json_patch import apply_merge_patch
from datum_compute.api.meta.objects import ApiObject, ObjectMeta, owner_reference
from datum_compute.api.networking.location import Location, LocationSpec, LocationStatus
from datum_compute.api.planes import PLATFORM, cell_plane, project_plane
from datum_compute.api.services import (
    ServiceConfiguration,
    ServiceConsumer,
    ServiceConsumerStatus,
    ServiceEntitlement,
    ServiceEntitlementSpec,
    ServiceEntitlementStatus,
    consumer_name,
    grant_name,
)
from datum_compute.planes.catalogue import platform_objects
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Plan
from datum_compute.planning.platform.entitlements import EntitlementInputs, plan_entitlement
from tests.planning.platform.test_services import BEFORE, NOW, a_consumer, a_service

PLANE = project_plane("shop")


def an_entitlement(
    *, entitled: bool = False, reason: str = "", terminating: bool = False, guarded: bool = True
) -> ServiceEntitlement:
    ready = [Condition(type="Ready", status="False", reason=reason)] if reason else []
    return ServiceEntitlement(
        metadata=ObjectMeta(
            name="compute",
            uid="e-1",
            generation=1,
            resource_version="3",
            finalizers=[labels.ENTITLEMENT_FINALIZER] if guarded else [],
            deletion_timestamp=NOW if terminating else None,
        ),
        spec=ServiceEntitlementSpec(service_ref=LocalReference(name="compute")),
        status=ServiceEntitlementStatus(
            entitled_at=BEFORE if entitled else None, conditions=list(ready)
        ),
    )


def make_condition(phase: str, reason: str, **spec: Any) -> ServiceConsumer:
    ready = Condition(type="Ready", status="True", reason=reason, message="so it is")
    status = ServiceConsumerStatus(phase=phase, conditions=[ready])  # type: ignore[arg-type]
    return msgspec.structs.replace(a_consumer(**spec), status=status)


def a_location(name: str, *, ready: bool = True, class_: str = "datum-managed") -> Location:
    status = "True" if ready else "False"
    return Location(
        metadata=ObjectMeta(name=name),
        spec=LocationSpec(
            location_class_name=class_,  # type: ignore[arg-type]
            topology={"topology.datum.net/city-code": name.upper()},
        ),
        status=LocationStatus(
            conditions=[Condition(type="Ready", status=status, reason="Served")]  # type: ignore[arg-type]
        ),
    )


def the_configuration() -> ServiceConfiguration:
    objects = [obj for _, obj in platform_objects([cell_plane("dfw")])]
    return next(obj for obj in objects if isinstance(obj, ServiceConfiguration))


def asked(**fields: Any) -> EntitlementInputs:
    usual: dict[str, Any] = {
        "plane": PLANE,
        "entitlement": an_entitlement(),
        "service": a_service(),
        "configuration": the_configuration(),
        "consumer": None,
        "locations": [a_location("dfw")],
    }
    return EntitlementInputs(**{**usual, **fields})


def phase_of(plan: Plan) -> tuple[str, str, str]:
    (report,) = [action for action in plan.actions if isinstance(action, PatchStatus)]
    ready = next(c for c in report.status["conditions"] if c["type"] == "Ready")
    return report.status["phase"], ready["reason"], report.status.get("entitledAt", "")


def test_the_finalizer_is_added_first() -> None:
    plan = plan_entitlement(asked(entitlement=an_entitlement(guarded=False)), NOW)
    (guard,) = plan.actions
    assert isinstance(guard, Patch)


def test_the_consumer_is_created_on_the_platform_first() -> None:
    (made,) = plan_entitlement(asked(), NOW).actions
    assert isinstance(made, Create)
    assert (made.plane, made.kind) == (PLATFORM, CONSUMER)
    assert made.object.metadata.name == consumer_name("compute.datumapis.com", "shop")


@pytest.mark.parametrize(
    ("requested", "expected"),
    [
        (
            asked(consumer=make_condition("PendingApproval", "EntitlementPendingApproval")),
            ("PendingApproval", "EntitlementPendingApproval", ""),
        ),
        (
            asked(consumer=make_condition("Denied", "ConsumerDenied")),
            ("Rejected", "ConsumerDenied", ""),
        ),
        (
            asked(consumer=make_condition("Active", "ConsumerApproved")),
            ("Active", "ConsumerApproved", NOW),
        ),
        (
            asked(consumer=make_condition("Active", "ConsumerApproved", suspended=True)),
            ("Rejected", "EntitlementRejected", ""),
        ),
        (asked(service=None), ("Rejected", "ServiceNotPublished", "")),
        (asked(service=a_service(phase="Draft")), ("Rejected", "ServiceNotPublished", "")),
        (
            asked(entitlement=an_entitlement(entitled=True, reason="EntitlementActive")),
            ("Rejected", "ConsumerDenied", ""),
        ),
    ],
)
def test_each_state_has_its_own_reason(
    requested: EntitlementInputs, expected: tuple[str, str, str]
) -> None:
    assert phase_of(plan_entitlement(requested, NOW)) == expected


def test_an_undecided_consumer_is_not_reported() -> None:
    plan = plan_entitlement(asked(consumer=a_consumer()), NOW)
    assert not [action for action in plan.actions if isinstance(action, PatchStatus)]


def test_an_active_entitlement_creates_a_grant_for_each_limit_and_a_binding_for_each_location() -> (
    None
):
    requested = asked(
        consumer=make_condition("Active", "EntitlementActive"),
        locations=[a_location("dfw"), a_location("mine", class_="self-managed")],
    )
    made = [a.object for a in plan_entitlement(requested, NOW).actions if isinstance(a, Create)]
    assert {obj.metadata.owner_references[0].uid for obj in made} == {"e-1"}
    names = [obj.metadata.name for obj in made]
    assert "dfw" in names
    assert "mine" not in names
    assert grant_name("compute", "shop", "instances") in names
    assert len(names) == 5


def test_a_deleted_entitlement_waits_for_its_consumer_and_then_deletes_what_it_owns() -> None:
    leaving = asked(entitlement=an_entitlement(terminating=True))
    first = plan_entitlement(with_fields(leaving, consumer=a_consumer()), NOW)
    assert [type(action).__name__ for action in first.actions] == ["Delete", "Wait"]
    settled = a_settled_request()
    others = [_disowned(grant) for grant in settled.grants]
    last = plan_entitlement(
        with_fields(leaving, grants=(*settled.grants, *others), bindings=settled.bindings), NOW
    )
    gone = [action for action in last.actions if isinstance(action, Delete)]
    assert [action.kind for action in gone] == [GRANT] * 4 + [LOCATION_BINDING]
    assert isinstance(last.actions[-1], Patch)


@pytest.mark.parametrize(
    ("mode", "consumer", "kept"),
    [
        ("GatedByProvider", a_consumer("Denied"), False),
        ("SelfService", a_consumer("Denied"), True),
        ("GatedByProvider", a_consumer(suspended=True), True),
        ("SelfService", a_consumer(), False),
    ],
)
def test_a_denial_or_suspension_outlives_its_request(
    mode: str, consumer: ServiceConsumer, kept: bool
) -> None:
    leaving = asked(
        entitlement=an_entitlement(terminating=True), service=a_service(mode), consumer=consumer
    )
    deleted = [a for a in plan_entitlement(leaving, NOW).actions if isinstance(a, Delete)]
    assert (not deleted) == kept


def _disowned(obj: Any) -> Any:
    metadata = msgspec.structs.replace(obj.metadata, name="other", owner_references=[])
    return msgspec.structs.replace(obj, metadata=metadata)


# --- plans are applied to values until nothing changes


def a_settled_request(*steps: EntitlementInputs) -> EntitlementInputs:
    requested = asked(consumer=make_condition("Active", "EntitlementActive"))
    return after(requested)


def after(requested: EntitlementInputs, passes: int = 6) -> EntitlementInputs:
    for _ in range(passes):
        plan = plan_entitlement(requested, NOW)
        for action in plan.actions:
            requested = _done(requested, action)
    return requested


def _done(requested: EntitlementInputs, action: Any) -> EntitlementInputs:
    match action:
        case Create(kind=kind, object=obj) if kind is GRANT:
            return with_fields(requested, grants=(*requested.grants, _stored(obj)))
        case Create(kind=kind, object=obj) if kind is LOCATION_BINDING:
            return with_fields(requested, bindings=(*requested.bindings, _stored(obj)))
        case PatchStatus(kind=kind, status=status) if kind is ENTITLEMENT:
            changed = _with_status(requested.entitlement, status)
            return with_fields(requested, entitlement=changed)
        case PatchStatus(kind=kind, ref=ref, status=status) if kind is LOCATION_BINDING:
            bindings = tuple(
                _with_status(b, status) if b.metadata.name == ref.name else b
                for b in requested.bindings
            )
            return with_fields(requested, bindings=bindings)
        case _:
            return requested


def _stored(obj: Any) -> Any:
    metadata = msgspec.structs.replace(obj.metadata, uid="u", resource_version="1", generation=1)
    return msgspec.structs.replace(obj, metadata=metadata)


def _with_status(obj: Any, status: Any) -> Any:
    new = apply_merge_patch(to_json(obj.status), status)
    return msgspec.structs.replace(obj, status=decode_as(encode(new), type(obj.status)))


@given(
    phase=st.sampled_from(
        [("Active", "EntitlementActive"), ("Denied", "ConsumerDenied"), ("PendingApproval", "x")]
    ),
    entitled=st.booleans(),
    suspended=st.booleans(),
    locations=st.lists(st.tuples(st.sampled_from(["dfw", "iad"]), st.booleans()), max_size=2),
)
def test_a_settled_entitlement_writes_nothing(
    phase: tuple[str, str], entitled: bool, suspended: bool, locations: list[tuple[str, bool]]
) -> None:
    requested = asked(
        entitlement=an_entitlement(entitled=entitled),
        consumer=make_condition(*phase, suspended=suspended),
        locations=[a_location(name, ready=ready) for name, ready in dict(locations).items()],
    )
    settled = after(requested)
    assert plan_entitlement(settled, "2027-01-01T00:00:00Z").actions == ()
    if entitled:
        assert settled.entitlement.status.entitled_at == BEFORE


def test_owned_means_controlled() -> None:
    owner = owner_reference(an_entitlement(), ENTITLEMENT)
    loose = msgspec.structs.replace(owner, controller=False)
    objects: list[ApiObject] = [
        Location(
            metadata=ObjectMeta(name=name, owner_references=[reference]),
            spec=LocationSpec(location_class_name="datum-managed", topology={}),
        )
        for name, reference in (("mine", owner), ("other", loose))
    ]
    assert [obj.metadata.name for obj in asked().select_owned(objects)] == ["mine"]
