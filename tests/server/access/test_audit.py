"""The audit log: recorded requests and fields, and values that are never recorded."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from msgspec.structs import fields

from datum_compute.api.http import Duplex, Response
from datum_compute.server.access.audit import (
    REQUEST_ID_HEADER,
    AuditContext,
    AuditEvent,
    Auditor,
    discard,
)
from datum_compute.server.access.authentication import User
from datum_compute.server.access.service_accounts import TokenSigner
from datum_compute.server.encoding.list_body import ListBody
from testkit.api_server.granting import ANN, grant, rule
from testkit.api_server.running_server import (
    TOKEN,
    WORKLOADS,
    InProcessServer,
    running_server,
    workload,
)

CANARY = "c4n4ry-value"
SECRETS = "/api/v1/namespaces/default/secrets"


@asynccontextmanager
async def server_with_audit_log(
    **options: Any,
) -> AsyncIterator[tuple[InProcessServer, list[AuditEvent]]]:
    events: list[AuditEvent] = []
    users = {ANN: User("ann", (), frozenset({"platform"}))}
    async with running_server(users=users, audit=events.append, **options) as server:
        events.clear()
        yield server, events


def summarize(event: AuditEvent) -> tuple[str, str, str, str, int]:
    return (event.user, event.verb, event.resource, event.name, event.code)


async def test_every_write_is_one_event_and_reads_are_none() -> None:
    async with server_with_audit_log() as (server, events):
        await server.json("POST", WORKLOADS, workload())
        await server.json("GET", f"{WORKLOADS}/web")
        await server.json("GET", WORKLOADS)
        await server.watch(WORKLOADS)
        await server.merge(f"{WORKLOADS}/web", {"metadata": {"labels": {"a": "b"}}})
        await server.json("DELETE", f"{WORKLOADS}/web")
        await server.status("DELETE", f"{WORKLOADS}/web")
    assert [summarize(event) for event in events] == [
        ("root", "create", "workloads", "web", 201),
        ("root", "patch", "workloads", "web", 200),
        ("root", "delete", "workloads", "web", 200),
        ("root", "delete", "workloads", "web", 404),
    ]
    assert (events[-1].plane, events[-1].namespace) == ("platform", "default")
    assert [event.reason for event in events] == ["", "", "", "NotFound"]


async def test_rejected_requests_are_recorded_with_the_user() -> None:
    async with server_with_audit_log() as (server, events):
        await server.status("GET", WORKLOADS, token=ANN)
        await server.status("GET", WORKLOADS, token="wrong")
        await server.status("GET", "/apis", token=ANN)
        headers = {"impersonate-user": "root"}
        await server.status("GET", WORKLOADS, token=ANN, headers=headers)
    assert [(e.user, e.code, e.reason) for e in events] == [
        ("ann", 403, "Forbidden"),
        ("", 401, "Unauthorized"),
        ("ann", 403, "Forbidden"),
        ("ann", 403, "Forbidden"),
    ]
    assert events[2].path == "/apis"


async def test_an_impersonated_request_is_recorded_with_both_users() -> None:
    async with server_with_audit_log() as (server, events):
        headers = {"impersonate-user": "ann", "impersonate-group": "system:masters"}
        await server.json("POST", WORKLOADS, workload(), headers=headers)
    assert [(e.user, e.impersonated_user) for e in events] == [("root", "ann")]


async def test_issued_tokens_are_recorded_and_reviews_are_not() -> None:
    signer = TokenSigner(ec.generate_private_key(ec.SECP256R1()))
    async with server_with_audit_log(signer=signer) as (server, events):
        await server.json("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
        accounts = "/api/v1/namespaces/default/serviceaccounts"
        await server.json("POST", accounts, {"metadata": {"name": "bot"}})
        answer = await server.json("POST", f"{accounts}/bot/token", {})
    assert [(e.resource, e.subresource, e.name) for e in events] == [
        ("serviceaccounts", "", "bot"),
        ("serviceaccounts", "token", "bot"),
    ]
    assert answer["status"]["token"] not in everything(events)


async def test_reads_of_secrets_are_recorded_without_values() -> None:
    encoded = b64encode(CANARY.encode()).decode()
    async with server_with_audit_log() as (server, events):
        secret = {"metadata": {"name": "s"}, "data": {"key": encoded}}
        await server.json("POST", SECRETS, secret)
        await server.json("GET", f"{SECRETS}/s")
        await server.json("GET", SECRETS, labelSelector="")
        await server.watch(SECRETS)
        await server.status("POST", SECRETS, {**secret, "nonsense": CANARY, "metadata": CANARY})
    assert [e.verb for e in events] == ["create", "get", "list", "watch", "create"]
    assert CANARY not in everything(events)
    assert encoded not in everything(events)
    assert TOKEN not in everything(events)


async def test_a_generated_name_is_recorded_also_for_a_table_response() -> None:
    async with server_with_audit_log() as (server, events):
        obj = workload()
        obj["metadata"] = {"generateName": "web-"}
        await server.json("POST", WORKLOADS, obj)
        table = {"accept": "application/json;as=Table;g=meta.k8s.io;v=v1"}
        await server.json("POST", WORKLOADS, workload("shown"), headers=table)
    assert events[0].name.startswith("web-s")
    assert events[1].code == 201


async def test_a_response_has_a_request_id_and_that_of_the_client_is_ignored() -> None:
    async with server_with_audit_log() as (server, events):
        headers = {"audit-id": "chosen by the sender"}
        first = await server.ask("POST", WORKLOADS, workload(), headers=headers)
        second = await server.ask("GET", "/healthz", token="")
    assert events[0].request_id == first.headers["audit-id"] != second.headers["audit-id"]
    assert first.headers["audit-id"] != headers["audit-id"]


async def test_long_user_names_are_truncated() -> None:
    async with server_with_audit_log() as (server, events):
        await server.status("GET", f"{WORKLOADS}/{'x' * 60_000}", token="wrong")
        await server.status("GET", f"/{'y' * 60_000}", token=ANN)
    assert all(len(e.name) <= 512 and len(e.path) <= 512 for e in events)


async def test_requests_with_a_grant_are_recorded() -> None:
    async with server_with_audit_log() as (server, events):
        network = rule("use", "networks", group="networking.datumapis.com")
        await grant(server, rule("create", "workloads"), network)
        await server.json("POST", WORKLOADS, workload(), token=ANN)
    assert [summarize(e)[:4] for e in events] == [
        ("root", "create", "clusterroles", "held"),
        ("root", "create", "clusterrolebindings", "held"),
        ("ann", "create", "workloads", "web"),
    ]


def everything(events: list[AuditEvent]) -> str:
    return str([[getattr(event, field.name) for field in fields(event)] for event in events])


def test_the_response_keeps_every_field() -> None:
    async def relay(_connection: Duplex) -> None:
        """Represent the handler of an upgraded connection."""

    response = Response(101, switched=relay, created="web", pieces=ListBody(b"[", [b"1"]))
    auditor = Auditor(discard, lambda: 1.0)
    finished = auditor.finish(AuditContext("request-1", 1.0), response)
    assert finished.headers == {REQUEST_ID_HEADER: "request-1"}
    changed = {
        name
        for name in Response.__struct_fields__
        if getattr(finished, name) != getattr(response, name)
    }
    assert changed == {"headers"}
