"""Who may request what, and what a Workload needs."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import admit
from datum_compute.admission.questions import Answers, Write
from datum_compute.admission.rules.services import (
    ENTITLEMENTS,
    ORGANIZATIONS,
    OWN_SERVICES,
    SERVICES,
    asks_for_access,
    organization_is_there,
    project_has_access,
    service_is_offered,
)
from datum_compute.api.kinds import ENTITLEMENT, PROJECT, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from tests.admission.writes import in_cities

COMPUTE: JsonObject = {"metadata": {"name": "compute"}, "spec": {"phase": "Published"}}
DRAFT: JsonObject = {"metadata": {"name": "storage"}, "spec": {"phase": "Draft"}}


def a_request(name: str = "compute", **status: Any) -> JsonObject:
    return {
        "metadata": {"name": name},
        "spec": {"serviceRef": {"name": name}},
        "status": status,
    }


def ready(reason: str, message: str = "") -> list[JsonObject]:
    return [{"type": "Ready", "status": "False", "reason": reason, "message": message}]


def refusal(*requests: JsonObject, catalogue: tuple[JsonObject, ...] = (COMPUTE,)) -> str:
    listed = {SERVICES: catalogue, OWN_SERVICES: (), ENTITLEMENTS: requests}
    write = Write(WORKLOAD, "default", in_cities(("DFW",)), None)
    found = list(project_has_access(write, Answers(listed=listed)))
    return found[0].message if found else ""


@pytest.mark.parametrize(
    ("requests", "told"),
    [
        ((), "it was not requested. Next: datumctl compute access request"),
        ((a_request(),), "is being activated"),
        (
            (
                a_request(
                    phase="PendingApproval", conditions=ready("EntitlementPendingApproval", "soon")
                ),
            ),
            "waits for approval (soon)",
        ),
        (
            (a_request(phase="Rejected", conditions=ready("ConsumerDenied", "no")),),
            "was denied (no). Next: datumctl compute access renew",
        ),
        (
            (a_request(phase="Rejected", entitledAt="x", conditions=ready("ConsumerDenied")),),
            "was revoked. Next",
        ),
        (
            (a_request(phase="Rejected", entitledAt="x", conditions=ready("ServiceNotPublished")),),
            "not available on this platform",
        ),
    ],
)
def test_a_workload_without_access_is_refused_with_the_reason_and_the_next_step(
    requests: tuple[JsonObject, ...], told: str
) -> None:
    message = refusal(*requests)
    assert message.startswith("Forbidden: ")
    assert told in message


def test_access_that_is_ending_is_no_access() -> None:
    leaving = a_request(phase="Active")
    leaving["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert "is ending" in refusal(leaving)


def test_an_active_request_is_enough_and_those_of_other_services_are_not() -> None:
    assert refusal(a_request(phase="Active")) == ""
    assert refusal(a_request("storage", phase="Active"))


def test_where_nobody_offers_compute_nobody_needs_access() -> None:
    assert refusal(catalogue=()) == ""


def test_what_is_there_may_be_changed_without_access() -> None:
    write = Write(WORKLOAD, "default", in_cities(("DFW",)), in_cities(("IAD",)))
    assert list(asks_for_access(write)) == []
    assert list(project_has_access(write, Answers())) == []


def test_the_plane_of_the_catalogue_itself_asks_nobody() -> None:
    listed = {SERVICES: (COMPUTE,), OWN_SERVICES: (COMPUTE,), ENTITLEMENTS: ()}
    write = Write(WORKLOAD, "default", in_cities(("DFW",)), None)
    assert list(project_has_access(write, Answers(listed=listed))) == []


@pytest.mark.parametrize(("name", "refused"), [("compute", False), ("storage", True), ("x", True)])
def test_only_what_is_published_can_be_requested(name: str, refused: bool) -> None:
    write = Write(ENTITLEMENT, "", a_request(name), None)
    answers = Answers(listed={SERVICES: (COMPUTE, DRAFT)})
    assert bool(list(service_is_offered(write, answers))) == refused


# --- projects


def a_project(name: str = "shop") -> JsonObject:
    owner = {"kind": "Organization", "name": "acme"}
    return {"metadata": {"name": name}, "spec": {"ownerRef": owner}}


@pytest.mark.parametrize("name", ["a.b", "Shop", "-a", "a" * 56])
def test_a_project_has_a_name_that_fits_a_path(name: str) -> None:
    causes = admit(PROJECT, a_project(name), None)[1]
    assert "metadata.name" in [cause.field for cause in causes]
    assert admit(PROJECT, a_project("a" * 55), None)[1] == []


def test_a_project_is_labelled_with_its_organization_whatever_was_sent() -> None:
    sent = a_project()
    label = "resourcemanager.miloapis.com/organization-name"
    sent["metadata"]["labels"] = {label: "other", "mine": "1"}
    assert admit(PROJECT, sent, None)[0]["metadata"]["labels"] == {label: "acme", "mine": "1"}


@pytest.mark.parametrize(("there", "refused"), [("acme", False), ("acne", True)])
def test_a_project_belongs_to_an_organization_that_is_there(there: str, refused: bool) -> None:
    answers = Answers(listed={ORGANIZATIONS: [{"metadata": {"name": there}}]})
    found = list(organization_is_there(Write(PROJECT, "", a_project(), None), answers))
    assert bool(found) == refused
    if refused:
        assert "did you mean acne?" in found[0].message
