"""Access to services: entitlement requests, and the access that a Workload needs."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import admit
from datum_compute.admission.queries import Answers, Write
from datum_compute.admission.rules.services import (
    ENTITLEMENTS,
    ORGANIZATIONS,
    OWN_SERVICES,
    SERVICES,
    check_organization_exists,
    check_project_access,
    check_service_offered,
    query_entitlements,
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
    found = list(check_project_access(write, Answers(listed=listed)))
    return found[0].message if found else ""


@pytest.mark.parametrize(
    ("requests", "text"),
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
    requests: tuple[JsonObject, ...], text: str
) -> None:
    message = refusal(*requests)
    assert message.startswith("Forbidden: ")
    assert text in message


def test_access_that_is_ending_does_not_count() -> None:
    ending = a_request(phase="Active")
    ending["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert "is ending" in refusal(ending)


def test_an_active_entitlement_counts_only_for_its_service() -> None:
    assert refusal(a_request(phase="Active")) == ""
    assert refusal(a_request("storage", phase="Active"))


def test_without_a_compute_service_no_access_is_needed() -> None:
    assert refusal(catalogue=()) == ""


def test_an_existing_workload_can_be_changed_without_access() -> None:
    write = Write(WORKLOAD, "default", in_cities(("DFW",)), in_cities(("IAD",)))
    assert list(query_entitlements(write)) == []
    assert list(check_project_access(write, Answers())) == []


def test_on_the_plane_of_the_catalogue_no_access_is_needed() -> None:
    listed = {SERVICES: (COMPUTE,), OWN_SERVICES: (COMPUTE,), ENTITLEMENTS: ()}
    write = Write(WORKLOAD, "default", in_cities(("DFW",)), None)
    assert list(check_project_access(write, Answers(listed=listed))) == []


@pytest.mark.parametrize(("name", "refused"), [("compute", False), ("storage", True), ("x", True)])
def test_only_published_services_can_be_requested(name: str, refused: bool) -> None:
    write = Write(ENTITLEMENT, "", a_request(name), None)
    answers = Answers(listed={SERVICES: (COMPUTE, DRAFT)})
    assert bool(list(check_service_offered(write, answers))) == refused


# --- projects


def a_project(name: str = "shop") -> JsonObject:
    owner = {"kind": "Organization", "name": "acme"}
    return {"metadata": {"name": name}, "spec": {"ownerRef": owner}}


@pytest.mark.parametrize("name", ["a.b", "Shop", "-a", "a" * 56])
def test_the_name_of_a_project_must_be_valid_in_a_path(name: str) -> None:
    causes = admit(PROJECT, a_project(name), None)[1]
    assert "metadata.name" in [cause.field for cause in causes]
    assert admit(PROJECT, a_project("a" * 55), None)[1] == []


def test_the_organization_label_of_a_project_overwrites_the_sent_one() -> None:
    sent = a_project()
    label = "resourcemanager.miloapis.com/organization-name"
    sent["metadata"]["labels"] = {label: "other", "mine": "1"}
    assert admit(PROJECT, sent, None)[0]["metadata"]["labels"] == {label: "acme", "mine": "1"}


@pytest.mark.parametrize(("there", "refused"), [("acme", False), ("acne", True)])
def test_a_project_needs_an_existing_organization(there: str, refused: bool) -> None:
    answers = Answers(listed={ORGANIZATIONS: [{"metadata": {"name": there}}]})
    found = list(check_organization_exists(Write(PROJECT, "", a_project(), None), answers))
    assert bool(found) == refused
    if refused:
        assert "did you mean acne?" in found[0].message
