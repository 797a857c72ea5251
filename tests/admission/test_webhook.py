"""Webhook: decisions on AdmissionReviews, patches, and malformed reviews."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.admission.queries import AccessQuery, Answers, ListQuery, Query
from datum_compute.admission.review import Requester, decode_review
from datum_compute.admission.rules.workload_references import LOCATIONS
from datum_compute.admission.webhook import Webhook
from datum_compute.api.errors import ApiError, BadRequest, Forbidden, Unreachable
from datum_compute.api.kinds import INSTANCE, INSTANCE_TYPE, WORKLOAD
from datum_compute.api.labels import CHANGED_BY
from datum_compute.api.meta.codec import JsonObject, decode, deep_copy
from datum_compute.api.meta.json_patch import json_patch
from datum_compute.server.verbs.json_patch import apply_json_patch
from testkit.api_server.running_server import location_binding, workload
from tests.admission.reviews import ANN, review


@dataclass
class Surroundings:
    """Answers questions; a right that is not listed is not held."""

    rights: tuple[str, ...] = ("use",)
    trouble: Exception | None = None
    asked: list[tuple[Requester, Query]] = field(default_factory=list)

    async def ask(self, requester: Requester, questions: Sequence[Query]) -> Answers:
        self.asked += [(requester, question) for question in questions]
        if self.trouble is not None:
            raise self.trouble
        known = [location_binding("DFW"), location_binding("ORD")]
        return Answers(
            allowed={q: q.verb in self.rights for q in questions if isinstance(q, AccessQuery)},
            listed={
                q: known if q == LOCATIONS else [] for q in questions if isinstance(q, ListQuery)
            },
        )

    @property
    def webhook(self) -> Webhook:
        return Webhook(self.ask, lambda: 0.0)

    async def validated(self, body: JsonObject) -> JsonObject:
        answer = await self.webhook.validate(decode_review(body))
        assert (answer["apiVersion"], answer["kind"]) == ("admission.k8s.io/v1", "AdmissionReview")
        response: JsonObject = answer["response"]
        assert response["uid"] == body["request"]["uid"]
        return response


def stored(**more: Any) -> JsonObject:
    """As an API server has it: with an identity."""
    made = workload(**more)
    made["metadata"] |= {"namespace": "default", "uid": "1", "creationTimestamp": "now"}
    return made


def in_city(city: str) -> JsonObject:
    made = stored()
    made["spec"]["placements"][0]["cityCodes"] = [city]
    return made


async def test_a_valid_workload_is_allowed_and_queries_contain_the_whole_user() -> None:
    around = Surroundings()
    assert (await around.validated(review(stored())))["allowed"] is True
    (requester,) = {id(who): who for who, _ in around.asked}.values()
    assert (requester.name, requester.uid) == ("ann", "42")
    assert requester.groups == ("dev", "system:authenticated")
    assert requester.extra["scopes"] == ("a", "b")


async def test_a_denial_contains_a_status_with_all_causes() -> None:
    around = Surroundings(rights=())
    response = await around.validated(review(in_city("DFX")))
    assert response["allowed"] is False
    status = response["status"]
    assert (status["code"], status["reason"]) == (422, "Invalid")
    assert {cause["field"] for cause in status["details"]["causes"]} == {
        "spec.placements[0].cityCodes[0]",
        "spec.template.spec.networkInterfaces",
    }
    assert "did you mean DFW" in status["message"]


async def test_schema_and_chain_errors_deny_without_queries() -> None:
    around = Surroundings()
    broken = stored()
    broken["spec"]["template"]["spec"]["runtime"] = {"sandbox": {"containers": []}}
    assert (await around.validated(review(broken)))["allowed"] is False
    twice = stored()
    twice["spec"]["placements"][0]["cityCodes"] = ["DFW", "dfw"]
    assert (await around.validated(review(twice)))["status"]["reason"] == "Invalid"
    assert around.asked == []


async def test_a_change_of_metadata_or_status_is_allowed_without_queries() -> None:
    around = Surroundings(rights=(), trouble=Unreachable("away"))
    old = {**in_city("GONE"), "status": {"replicas": 1}}
    new = deep_copy({**old, "status": {"replicas": 2}})
    new["metadata"]["finalizers"] = []
    assert (await around.validated(review(new, old)))["allowed"] is True
    assert around.asked == []


async def test_a_template_with_a_secret_can_be_changed_by_users_who_can_read_it() -> None:
    old = stored()
    (container,) = old["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    container["envFrom"] = [{"secretRef": {"name": "db"}}]
    changed, scaled = deep_copy(old), deep_copy(old)
    (other,) = changed["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"]
    other["image"] = "spy:1"
    scaled["spec"]["placements"][0]["scaleSettings"] = {"minReplicas": 5}
    response = await Surroundings().validated(review(changed, old))
    assert "which you may not get" in response["status"]["message"]
    assert (await Surroundings().validated(review(scaled, old)))["allowed"] is True
    around = Surroundings(rights=("use", "get"))
    assert (await around.validated(review(changed, old)))["allowed"] is True


async def test_all_of_an_invalid_stored_object_counts_as_new() -> None:
    around = Surroundings(rights=())
    response = await around.validated(review(stored(), {"spec": {"placements": "?"}}))
    assert response["allowed"] is False
    assert [q.verb for _, q in around.asked if isinstance(q, AccessQuery)] == ["use"]


@pytest.mark.parametrize(
    "trouble", [Unreachable("away"), TimeoutError(), Forbidden("no reviews for you")]
)
async def test_a_failed_query_denies_the_write_and_allows_a_retry(
    trouble: Exception,
) -> None:
    response = await Surroundings(trouble=trouble).validated(review(stored()))
    assert response["allowed"] is False
    status = response["status"]
    assert (status["code"], status["reason"]) == (503, "ServiceUnavailable")
    assert status["details"]["retryAfterSeconds"] == 1
    assert "try again" in status["message"]


async def test_instances_can_be_written_only_with_the_verb_control() -> None:
    spec = stored()["spec"]["template"]["spec"]
    instance = {**stored(), "kind": "Instance", "spec": spec}
    for rights, expected in ((("control",), True), (("use",), False)):
        around = Surroundings(rights=rights)
        response = await around.validated(review(instance, kind=INSTANCE))
        assert response["allowed"] is expected


@pytest.mark.parametrize(
    "more",
    [
        {"operation": "DELETE", "object": None, "oldObject": {}},
        {"operation": "CONNECT", "object": None},
        {"subResource": "status"},
        {"resource": {"group": "", "version": "v1", "resource": "pods"}},
        {"resource": {"group": WORKLOAD.group, "version": "v9", "resource": "workloads"}},
    ],
)
async def test_objects_without_rules_are_allowed(more: JsonObject) -> None:
    around = Surroundings(rights=())
    assert (await around.validated(review(stored(), **more)))["allowed"] is True


async def test_a_deprecated_type_causes_a_warning() -> None:
    async def ask(_: Requester, questions: Sequence[Query]) -> Answers:
        lifecycle = {"phase": "Deprecated", "replacementInstanceType": "big"}
        old = {"metadata": {"name": "d1-standard-2"}, "spec": {"lifecycle": lifecycle}}
        return Answers(
            allowed={q: True for q in questions if isinstance(q, AccessQuery)},
            listed={
                q: [location_binding("DFW")] if q == LOCATIONS else [old]
                for q in questions
                if isinstance(q, ListQuery)
            },
        )

    answer = await Webhook(ask, lambda: 0.0).validate(decode_review(review(stored())))
    (warning,) = answer["response"]["warnings"]
    assert "use big instead" in warning


# --- defaults


def mutated(body: JsonObject) -> JsonObject:
    response: JsonObject = Surroundings().webhook.mutate(decode_review(body))["response"]
    return response


async def test_an_offered_type_cannot_be_deleted() -> None:
    spec = {"resources": {"cpu": "1", "memory": "2Gi"}, "lifecycle": {"phase": "Deprecated"}}
    offered = {"metadata": {"name": "old", "uid": "1"}, "spec": spec}

    async def ask(requester: Requester, questions: Sequence[Query]) -> Answers:
        return Answers(listed={q: [offered] for q in questions if isinstance(q, ListQuery)})

    async def verdict(old: JsonObject) -> JsonObject:
        body = review(None, old, kind=INSTANCE_TYPE, operation="DELETE", name="old")
        answer = await Webhook(ask, lambda: 0.0).validate(decode_review(body))
        response: JsonObject = answer["response"]
        return response

    identity = {"apiVersion": INSTANCE_TYPE.api_version, "kind": INSTANCE_TYPE.kind}
    refused = await verdict({**identity, **deep_copy(offered)})
    assert refused["allowed"] is False
    assert "delete it once it is Disabled" in refused["status"]["message"]
    spec["lifecycle"] = {"phase": "Disabled"}
    assert (await verdict({**identity, **deep_copy(offered)}))["allowed"] is True
    assert (await verdict({"spec": "?"}))["allowed"] is True


def test_the_patch_changes_only_the_case_of_cities() -> None:
    sent = in_city("dfw")
    response = mutated(review(sent))
    assert response["patchType"] == "JSONPatch"
    operations = decode(base64.b64decode(response["patch"]))
    path = "/spec/placements/0/cityCodes/0"
    assert {"op": "replace", "path": path, "value": "DFW"} in operations
    assert {operation["path"].split("/")[1] for operation in operations} == {"spec", "metadata"}
    assert apply_json_patch(sent, operations)["spec"] == in_city("DFW")["spec"]
    assert apply_json_patch(sent, operations)["metadata"]["annotations"] == {CHANGED_BY: "ann"}


def by_ann(obj: JsonObject) -> JsonObject:
    return {**obj, "metadata": {**obj["metadata"], "annotations": {CHANGED_BY: "ann"}}}


@pytest.mark.parametrize("obj", [by_ann(in_city("DFW")), {}, {"spec": {"placements": 7}}])
def test_an_object_with_all_defaults_gets_no_patch(obj: JsonObject) -> None:
    assert mutated(review(obj)) == {"uid": "review-1", "allowed": True}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(alphabet="a~/", max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("a~/b", max_size=2), inner),
    max_leaves=8,
)


@given(st.dictionaries(st.text("a~/b", max_size=2), json_values), st.data())
def test_a_patch_converts_one_document_into_the_other(before: JsonObject, data: Any) -> None:
    after = data.draw(st.dictionaries(st.text("a~/b", max_size=2), json_values))
    assert apply_json_patch(before, json_patch(before, after)) == after
    assert json_patch(before, deep_copy(before)) == []


# --- nonsense


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"apiVersion": "admission.k8s.io/v1beta1", "kind": "AdmissionReview", "request": {}},
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"},
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": []},
        review(stored(), uid=""),
        review(stored(), uid=7),
        review(stored(), userInfo="ann"),
        review(stored(), userInfo={**ANN, "groups": "dev"}),
        review(stored(), userInfo={**ANN, "extra": {"a": "b"}}),
        review(stored(), resource={"group": 1}),
        review(None),
        review("text"),  # type: ignore[arg-type]
        review(stored(), operation="UPDATE"),
        review(stored(), operation=None),
    ],
)
def test_an_invalid_review_is_a_bad_request(body: JsonObject) -> None:
    with pytest.raises(BadRequest):
        decode_review(body)


@given(json_values, json_values)
async def test_any_object_gets_a_decision(new: Any, old: Any) -> None:
    body = review({"spec": new, "metadata": old}, {"spec": old, "metadata": new})
    around = Surroundings()
    try:
        assert isinstance((await around.validated(body))["allowed"], bool)
        assert mutated(body)["allowed"] is True
    except ApiError as error:  # pragma: no cover - the name of the failure
        pytest.fail(str(error))
