"""Tokens of service accounts: their permissions, audiences and expiry."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec

from datum_compute.api.meta.codec import JsonObject, decode, encode
from datum_compute.server.access.service_accounts import TokenSigner
from testkit.api_server.granting import (
    RBAC,
    cluster_binding,
    cluster_role,
    grant,
    rule,
)
from testkit.api_server.running_server import (
    PROJECT,
    WORKLOADS,
    InProcessServer,
    causes,
    namespace,
    running_server,
)

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
BOT: JsonObject = {"kind": "ServiceAccount", "name": "bot", "namespace": "default"}


@pytest.fixture
async def issuing() -> AsyncIterator[InProcessServer]:
    """A server with a key, and the account bot, which may list workloads."""
    signer = TokenSigner(ec.generate_private_key(ec.SECP256R1()))
    async with running_server(signer=signer) as server:
        await server.json("POST", ACCOUNTS, account("bot"))
        role = cluster_role("lists", rule("list watch", "workloads"))
        await server.json("POST", f"{RBAC}/clusterroles", role)
        bound = cluster_binding("lists", "lists", BOT)
        await server.json("POST", f"{RBAC}/clusterrolebindings", bound)
        yield server


def account(name: str) -> JsonObject:
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}}


async def issue_token(server: InProcessServer, *, prefix: str = "", **spec: Any) -> str:
    path = f"{prefix}{ACCOUNTS}/bot/token"
    answer = await server.json("POST", path, {"spec": spec})
    token: str = answer["status"]["token"]
    return token


def decode_parts(token: str) -> list[JsonObject]:
    return [decode(base64.urlsafe_b64decode(part + "==")) for part in token.split(".")[:2]]


async def test_a_token_authenticates_its_account(issuing: InProcessServer) -> None:
    answer = await issuing.json("POST", f"{ACCOUNTS}/bot/token", {"spec": {}})
    assert (answer["kind"], answer["apiVersion"]) == ("TokenRequest", "authentication.k8s.io/v1")
    assert answer["status"]["expirationTimestamp"] == "2023-11-14T23:13:20Z"
    token = answer["status"]["token"]
    head, claims = decode_parts(token)
    assert head["alg"] == "ES256"
    assert claims["exp"] - claims["iat"] == 3600
    assert (await issuing.ask("GET", WORKLOADS, token=token)).status == 200
    assert (await issuing.ask("DELETE", WORKLOADS, token=token)).status == 403
    await grant(issuing, rule("create", "selfsubjectreviews", group="*"), name="who")
    path = f"{RBAC}/clusterrolebindings"
    await issuing.json("POST", path, cluster_binding("w", "who", BOT))
    user = (await issuing.json("POST", WHOAMI, {}, token=token))["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:bot"
    assert user["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    assert user["extra"]["authentication.kubernetes.io/credential-id"] == [f"JTI={claims['jti']}"]


async def test_a_token_is_invalid_after_its_expiry(issuing: InProcessServer) -> None:
    token = await issue_token(issuing, expirationSeconds=600)
    issuing.clock.now_s += 599
    assert (await issuing.ask("GET", WORKLOADS, token=token)).status == 200
    issuing.clock.now_s += 1
    assert (await issuing.ask("GET", WORKLOADS, token=token)).status == 401


async def test_a_watch_ends_when_its_token_expires(issuing: InProcessServer) -> None:
    token = await issue_token(issuing, expirationSeconds=600)
    issuing.clock.now_s += 599.95
    events = await issuing.watch(WORKLOADS, token=token)
    assert await events.rest() == []


async def test_a_token_is_invalid_after_its_account_is_recreated(
    issuing: InProcessServer,
) -> None:
    token = await issue_token(issuing)
    events = await issuing.watch(WORKLOADS, token=token)
    await issuing.json("DELETE", f"{ACCOUNTS}/bot")
    assert await events.rest() == []
    assert (await issuing.ask("GET", WORKLOADS, token=token)).status == 401
    await issuing.json("POST", ACCOUNTS, account("bot"))
    assert (await issuing.ask("GET", WORKLOADS, token=token)).status == 401
    assert (await issuing.ask("GET", WORKLOADS, token=await issue_token(issuing))).status == 200


async def test_a_token_is_valid_on_its_plane_only(issuing: InProcessServer) -> None:
    token = await issue_token(issuing)
    await issuing.json("POST", f"{PROJECT}{ACCOUNTS}", account("bot"))
    await grant(issuing, rule("*", "*", group="*"), prefix=PROJECT)
    path = f"{PROJECT}{RBAC}/clusterrolebindings"
    await issuing.json("POST", path, cluster_binding("b", "held", BOT))
    assert (await issuing.ask("GET", PROJECT + WORKLOADS, token=token)).status == 403
    there = await issue_token(issuing, prefix=PROJECT)
    assert (await issuing.ask("GET", PROJECT + WORKLOADS, token=there)).status == 200
    assert (await issuing.ask("GET", WORKLOADS, token=there)).status == 403
    await issuing.store.delete_plane("project/demo")
    await issuing.store.create_plane("project/demo")
    assert (await issuing.ask("GET", PROJECT + WORKLOADS, token=there)).status == 401


async def test_a_token_for_another_audience_is_rejected(
    issuing: InProcessServer,
) -> None:
    token = await issue_token(issuing, audiences=["vault"])
    assert (await issuing.ask("GET", WORKLOADS, token=token)).status == 401
    path = "/apis/authentication.k8s.io/v1/tokenreviews"
    review = {"spec": {"token": token, "audiences": ["vault", "other"]}}
    status = (await issuing.json("POST", path, review))["status"]
    assert (status["authenticated"], status["audiences"]) == (True, ["vault"])
    status = (await issuing.json("POST", path, {"spec": {"token": token}}))["status"]
    assert status["authenticated"] is False


def forge_variants(token: str, **claims: Any) -> str:
    head, _body, signature = token.split(".")
    content = encode({**decode_parts(token)[1], **claims})
    return f"{head}.{base64.urlsafe_b64encode(content).rstrip(b'=').decode()}.{signature}"


async def test_a_changed_token_is_rejected(issuing: InProcessServer) -> None:
    token = await issue_token(issuing)
    head, body, signature = token.split(".")
    other = TokenSigner(ec.generate_private_key(ec.SECP256R1())).sign(decode_parts(token)[1])
    unsigned = base64.urlsafe_b64encode(encode({"alg": "none"})).rstrip(b"=").decode()
    for bad in (
        forge_variants(token, exp=9_999_999_999),
        forge_variants(token, sub="system:serviceaccount:kube-system:boss"),
        other,
        f"{unsigned}.{body}.",
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{body}.{signature}=",
        f"{head}.{body}.{signature[:-2]}",
        f"{head}.{body}.{'A' * len(signature)}",
        f"{head}.{body}.{signature}.x",
        f"{head}.ÿ.{signature}",
        token + "A",
    ):
        assert (await issuing.ask("GET", WORKLOADS, token=bad)).status == 401, bad


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"expirationSeconds": 599}, "spec.expirationSeconds"),
        ({"expirationSeconds": 86401}, "spec.expirationSeconds"),
        ({"expirationSeconds": -1}, "spec.expirationSeconds"),
        ({"boundObjectRef": {"kind": "Pod", "name": "x"}}, "spec.boundObjectRef"),
        ({"audiences": [""]}, "spec.audiences"),
        ({"audiences": 3}, "spec.audiences"),
    ],
)
async def test_an_invalid_token_request_is_rejected(
    issuing: InProcessServer, spec: JsonObject, field: str
) -> None:
    status = await issuing.status("POST", f"{ACCOUNTS}/bot/token", {"spec": spec})
    assert status["code"] == 422
    assert field in causes(status)


async def test_a_missing_account_gets_no_token(issuing: InProcessServer) -> None:
    assert (await issuing.ask("POST", f"{ACCOUNTS}/none/token", {})).status == 404
    assert (await issuing.ask("GET", f"{ACCOUNTS}/bot/token")).status == 405


async def test_a_terminating_account_gets_no_token(issuing: InProcessServer) -> None:
    await issuing.merge(f"{ACCOUNTS}/bot", {"metadata": {"finalizers": ["a.example/b"]}})
    await issuing.json("DELETE", f"{ACCOUNTS}/bot")
    assert (await issuing.ask("POST", f"{ACCOUNTS}/bot/token", {})).status == 409


async def test_a_dry_run_issues_no_token(issuing: InProcessServer) -> None:
    answer = await issuing.json("POST", f"{ACCOUNTS}/bot/token", {}, dryRun="All")
    assert answer["status"]["token"] == ""


async def test_the_error_of_a_server_without_a_signing_key_states_that(
    server: InProcessServer,
) -> None:
    await server.json("POST", ACCOUNTS, account("bot"))
    status = await server.status("POST", f"{ACCOUNTS}/bot/token", {})
    assert (status["code"], "no key" in status["message"]) == (405, True)


async def test_tokens_are_invalid_after_the_namespace_is_deleted(
    issuing: InProcessServer,
) -> None:
    await issuing.json("POST", "/api/v1/namespaces", namespace("short"))
    path = "/api/v1/namespaces/short/serviceaccounts"
    await issuing.json("POST", path, account("bot"))
    token = (await issuing.json("POST", f"{path}/bot/token", {}))["status"]["token"]
    assert (await issuing.ask("GET", WORKLOADS, token=token)).status == 403
    await issuing.json("DELETE", path)
    assert (await issuing.ask("GET", WORKLOADS, token=token)).status == 401
