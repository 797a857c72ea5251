"""Access reviews, self subject reviews and token reviews."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.planes import PlaneName
from datum_compute.server.access.authentication import User
from datum_compute.server.virtual import reviews
from datum_compute.server.virtual.reviews import GROUPS_MAX
from testkit.api_server.granting import (
    ANN,
    DEFAULT,
    ensure_first_roles,
    grant,
    grant_in,
    paths,
    rule,
    server_with_ann,
)
from testkit.api_server.running_server import (
    PROJECT,
    TOKEN,
    InProcessServer,
    causes,
    running_server,
)

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
SELF = f"{AUTHORIZATION}/selfsubjectaccessreviews"
OTHERS = f"{AUTHORIZATION}/subjectaccessreviews"
RULES = f"{AUTHORIZATION}/selfsubjectrulesreviews"
WHOAMI = f"{AUTHENTICATION}/selfsubjectreviews"
TOKENS = f"{AUTHENTICATION}/tokenreviews"
REVIEWS = rule("create", "*", group="authorization.k8s.io")


def resource_attributes(resource: str, verb: str = "list", **more: str) -> JsonObject:
    attributes = {"group": "compute.datumapis.com", "resource": resource, "verb": verb, **more}
    return {"resourceAttributes": attributes}


async def is_allowed(server: InProcessServer, path: str, spec: JsonObject, **more: Any) -> bool:
    answer = await server.json("POST", path, {"spec": spec}, **more)
    allowed = answer["status"]["allowed"]
    assert isinstance(allowed, bool)
    return allowed


async def test_every_user_can_create_self_reviews() -> None:
    users = {ANN: User("ann", ("devs",), frozenset({"project/demo"}))}
    async with running_server(users=users) as server:
        await ensure_first_roles(server, "project/demo")
        assert not await is_allowed(
            server, PROJECT + SELF, resource_attributes("workloads"), token=ANN
        )
        found = await server.json("POST", PROJECT + WHOAMI, {}, token=ANN)
        assert found["status"]["userInfo"] == {
            "username": "ann",
            "groups": ["devs", "system:authenticated"],
        }
        refused = await server.ask(
            "POST", PROJECT + OTHERS, {"spec": resource_attributes("x")}, token=ANN
        )
        assert refused.status == 403


async def test_a_self_review_has_the_result_of_the_authorizer() -> None:
    async with server_with_ann() as server:
        await grant(server, REVIEWS, paths("get", "/apis/*"))
        await grant_in(server, rule("list", "workloads"), name="near")
        assert await is_allowed(
            server, SELF, resource_attributes("workloads", namespace="default"), token=ANN
        )
        assert not await is_allowed(
            server, SELF, resource_attributes("workloads", namespace="other"), token=ANN
        )
        assert not await is_allowed(server, SELF, resource_attributes("workloads"), token=ANN)
        assert not await is_allowed(
            server,
            SELF,
            resource_attributes("workloads", namespace="default", subresource="status"),
            token=ANN,
        )
        for path, expected in (("/apis/x", True), ("/api", False)):
            spec = {"nonResourceAttributes": {"path": path, "verb": "get"}}
            assert await is_allowed(server, SELF, spec, token=ANN) is expected


async def test_a_review_of_another_user_uses_its_name_and_groups() -> None:
    async with server_with_ann() as server:
        await grant(server, rule("list", "workloads"))
        assert await is_allowed(server, OTHERS, {**resource_attributes("workloads"), "user": "ann"})
        assert not await is_allowed(
            server, OTHERS, {**resource_attributes("workloads"), "user": "bob"}
        )
        masters = {**resource_attributes("workloads"), "groups": ["system:masters"]}
        assert await is_allowed(server, OTHERS, masters)
        status = await server.status("POST", OTHERS, {"spec": resource_attributes("workloads")})
        assert causes(status) == {"spec.user": "FieldValueRequired"}


async def test_a_local_review_is_restricted_to_its_namespace() -> None:
    async with server_with_ann() as server:
        await grant_in(server, rule("list", "workloads"))
        path = f"{AUTHORIZATION}{DEFAULT}/localsubjectaccessreviews"
        near = {**resource_attributes("workloads", namespace="default"), "user": "ann"}
        assert await is_allowed(server, path, near)
        far = {**resource_attributes("workloads", namespace="other"), "user": "ann"}
        status = await server.status("POST", path, {"spec": far})
        assert causes(status) == {"spec.resourceAttributes.namespace": "FieldValueInvalid"}


@pytest.mark.parametrize(
    "spec",
    [
        {},
        {"resourceAttributes": {}, "nonResourceAttributes": {"path": "/", "verb": "get"}},
        {"nonResourceAttributes": {"verb": "get"}},
    ],
)
async def test_a_review_needs_exactly_one_of_resource_and_path(
    server: InProcessServer, spec: JsonObject
) -> None:
    status = await server.status("POST", SELF, {"spec": spec})
    assert (status["code"], status["reason"]) == (422, "Invalid")


@pytest.mark.parametrize(
    "body", [{"spec": []}, {"spec": {"resourceAttributes": "x"}}, {"kind": "Pod"}, [], 3]
)
async def test_an_invalid_review_is_rejected(server: InProcessServer, body: Any) -> None:
    assert (await server.status("POST", SELF, body))["code"] in (400, 422)


async def test_the_rules_of_the_caller_are_listed() -> None:
    async with server_with_ann() as server:
        await grant(server, REVIEWS, paths("get", "/apis/*"))
        await grant_in(server, rule("list get", "workloads", names="web"), name="near")
        answer = await server.json("POST", RULES, {"spec": {"namespace": "default"}}, token=ANN)
        status = answer["status"]
        assert status["incomplete"] is False
        assert status["nonResourceRules"] == [{"verbs": ["get"], "nonResourceURLs": ["/apis/*"]}]
        assert {
            "verbs": ["get", "list"],
            "apiGroups": ["compute.datumapis.com"],
            "resources": ["workloads"],
            "resourceNames": ["web"],
        } in status["resourceRules"]
        elsewhere = await server.json("POST", RULES, {"spec": {"namespace": "x"}}, token=ANN)
        assert len(elsewhere["status"]["resourceRules"]) == 1
        status = await server.status("POST", RULES, {"spec": {}}, token=ANN)
        assert causes(status) == {"spec.namespace": "FieldValueRequired"}


async def test_a_token_review_contains_the_user_and_not_the_token(
    server: InProcessServer,
) -> None:
    response = await server.ask("POST", TOKENS, {"spec": {"token": TOKEN}})
    assert response.status == 201
    assert TOKEN.encode() not in response.body
    status = (await server.json("POST", TOKENS, {"spec": {"token": TOKEN}}))["status"]
    assert (status["authenticated"], status["user"]["username"]) == (True, "root")
    for spec in ({"token": "wrong"}, {"token": TOKEN, "audiences": ["vault"]}):
        answer = await server.json("POST", TOKENS, {"spec": spec})
        assert answer["status"]["authenticated"] is False
        assert "user" not in answer["status"]


async def test_a_token_of_another_plane_is_not_authenticated() -> None:
    users = {ANN: User("ann", (), frozenset({"hub"}))}
    async with running_server(users=users) as server:
        review = {"spec": {"token": ANN}}
        here = await server.json("POST", TOKENS, review)
        unknown = await server.json("POST", TOKENS, {"spec": {"token": "no-such-token"}})
        assert here["status"] == unknown["status"]
        hub = await server.json("POST", f"/planes/hub{TOKENS}", review)
        assert hub["status"]["authenticated"] is True


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_reviews_can_only_be_created(server: InProcessServer, method: str) -> None:
    for path in (SELF, f"{SELF}/x", f"{AUTHORIZATION}/localsubjectaccessreviews"):
        assert (await server.ask(method, path, {})).status == 405
    assert (await server.ask("POST", f"{SELF}/x", {})).status == 405


async def test_reviews_are_discovered_with_the_verb_create_only(server: InProcessServer) -> None:
    listed = (await server.json("GET", AUTHORIZATION))["resources"]
    assert {resource["name"] for resource in listed} == {
        "localsubjectaccessreviews",
        "selfsubjectaccessreviews",
        "selfsubjectrulesreviews",
        "subjectaccessreviews",
    }
    assert all(resource["verbs"] == ["create"] for resource in listed)
    document = await server.json("GET", "/openapi/v3/apis/authorization.k8s.io/v1")
    assert list(document["paths"][SELF]) == ["post", "parameters"]


async def test_a_review_accepts_a_limited_number_of_groups_and_is_not_cached() -> None:
    async with server_with_ann() as server:
        groups = [f"g{number}" for number in range(GROUPS_MAX + 1)]
        status = await server.status(
            "POST", OTHERS, {"spec": {**resource_attributes("x"), "groups": groups}}
        )
        assert causes(status) == {"spec.groups": "FieldValueTooMany"}
        assert not await is_allowed(
            server, OTHERS, {**resource_attributes("x"), "groups": groups[:-1]}
        )
        await grant(server, REVIEWS)
        assert not await is_allowed(
            server, OTHERS, {**resource_attributes("x"), "user": "bob"}, token=ANN
        )
        assert not await is_allowed(server, SELF, resource_attributes("made-up"), token=ANN)
        roles = server.api.authorizer.roles(PlaneName("platform"))
        assert roles is not None
        cached = [(key[0], key[5]) for key in roles._allowed_names]
        assert sorted(cached) == [
            ("ann", "selfsubjectaccessreviews"),
            ("ann", "subjectaccessreviews"),
        ]


async def test_a_rules_review_with_too_many_rules_is_incomplete(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with server_with_ann() as server:
        await grant(server, REVIEWS, *(rule("get", f"r{number}") for number in range(20)))
        spec = {"spec": {"namespace": "default"}}
        assert not (await server.json("POST", RULES, spec, token=ANN))["status"]["incomplete"]
        monkeypatch.setattr(reviews, "RULE_VALUES_MAX", 3 * 10)
        status = (await server.json("POST", RULES, spec, token=ANN))["status"]
        assert status["incomplete"]
        assert len(status["resourceRules"]) == 10
