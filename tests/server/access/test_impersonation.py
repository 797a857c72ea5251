"""Impersonation, and headers that must not change the user (attack pattern A4)."""

from __future__ import annotations

import pytest

from datum_compute.server.access.authentication import User
from testkit.api_server.granting import (
    ANN,
    DEFAULT,
    RBAC,
    grant,
    grant_in,
    role,
    rule,
    server_with_ann,
)
from testkit.api_server.running_server import PROJECT, WORKLOADS, InProcessServer, running_server

WHOAMI = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
EVERYBODY = rule("create", "selfsubjectreviews", group="authentication.k8s.io")


async def test_a_permitted_request_has_the_identity_of_the_other_user() -> None:
    async with server_with_ann() as server:
        headers = {
            "impersonate-user": "ann",
            "impersonate-group": ("devs", "ops"),
            "impersonate-uid": "42",
            "impersonate-extra-team%2fname": "red",
        }
        await grant(server, EVERYBODY)
        found = await server.json("POST", WHOAMI, {}, headers=headers)
        assert found["status"]["userInfo"] == {
            "username": "ann",
            "groups": ["devs", "ops", "system:authenticated"],
            "uid": "42",
            "extra": {"team/name": ["red"]},
        }
        refused = await server.status("GET", WORKLOADS, headers=headers)
        assert 'User "ann" cannot list' in refused["message"]


async def test_an_impersonated_service_account_has_its_groups(server: InProcessServer) -> None:
    headers = {"impersonate-user": "system:serviceaccount:default:bot"}
    status = await server.status("GET", WORKLOADS, headers=headers)
    assert status["code"] == 403
    await server.json("POST", f"{RBAC}{DEFAULT}/roles", role("r", rule("list", "workloads")))
    subject = {"kind": "Group", "name": "system:serviceaccounts:default"}
    bound = {
        "metadata": {"name": "b"},
        "roleRef": {"kind": "Role", "name": "r"},
        "subjects": [subject],
    }
    await server.json("POST", f"{RBAC}{DEFAULT}/rolebindings", bound)
    assert (await server.ask("GET", WORKLOADS, headers=headers)).status == 200


@pytest.mark.parametrize(
    ("headers", "resource"),
    [
        ({"impersonate-user": "root"}, "users"),
        ({"impersonate-user": "bob", "impersonate-group": "system:masters"}, "groups"),
        ({"impersonate-user": "bob", "impersonate-group": ("devs", "system:masters")}, "groups"),
        ({"impersonate-user": "bob", "impersonate-uid": "1"}, "uids"),
        ({"impersonate-user": "bob", "impersonate-extra-scopes": "all"}, "userextras/scopes"),
        ({"impersonate-user": "system:serviceaccount:default:bot"}, "serviceaccounts"),
    ],
)
async def test_every_part_of_the_impersonated_identity_needs_a_permission(
    headers: dict[str, str | tuple[str, ...]], resource: str
) -> None:
    async with server_with_ann() as server:
        await grant(
            server,
            rule("impersonate", "users", group="", names="bob"),
            rule("impersonate", "groups", group="", names="devs"),
        )
        status = await server.status("GET", WORKLOADS, token=ANN, headers=headers)
    assert status["reason"] == "Forbidden"
    assert f'User "ann" cannot impersonate resource "{resource}"' in status["message"]


async def test_permission_to_impersonate_applies_to_its_namespace_and_plane_only() -> None:
    async with server_with_ann() as server:
        await grant_in(server, rule("impersonate", "serviceaccounts", group=""))
        near = {"impersonate-user": "system:serviceaccount:default:bot"}
        far = {"impersonate-user": "system:serviceaccount:kube-system:bot"}
        messages = [
            (await server.status("GET", WORKLOADS, token=ANN, headers=headers))["message"]
            for headers in (near, far)
        ]
        assert 'User "system:serviceaccount:default:bot" cannot list' in messages[0]
        assert 'User "ann" cannot impersonate' in messages[1]
        elsewhere = await server.status("GET", PROJECT + WORKLOADS, token=ANN, headers=near)
        assert 'User "ann" cannot impersonate' in elsewhere["message"]


@pytest.mark.parametrize(
    "headers",
    [
        {"impersonate-group": "system:masters"},
        {"impersonate-user": "", "impersonate-group": "system:masters"},
        {"impersonate-user": "x", "impersonate-everything": "yes"},
    ],
)
async def test_incomplete_or_unknown_impersonation_headers_are_rejected(
    server: InProcessServer, headers: dict[str, str]
) -> None:
    assert (await server.status("GET", WORKLOADS, headers=headers))["code"] == 400


async def test_headers_of_proxies_are_ignored() -> None:
    forwarded = {
        "x-remote-user": "root",
        "x-remote-group": "system:masters",
        "x-remote-extra-a": "b",
        "x-forwarded-user": "root",
        "x-forwarded-email": "root",
        "x-forwarded-client-cert": "Subject=CN=root,O=system:masters",
        "remote-user": "root",
        "x-real-user": "root",
        "ssl-client-cert": "x",
    }
    async with server_with_ann() as server:
        assert (await server.ask("GET", WORKLOADS, token="", headers=forwarded)).status == 401
        status = await server.status("GET", WORKLOADS, token=ANN, headers=forwarded)
        assert 'User "ann" cannot list' in status["message"]


async def test_impersonation_does_not_open_further_planes() -> None:
    users = {"t": User("boss", ("system:masters",), frozenset({"project/demo"}))}
    async with running_server(users=users) as server:
        headers = {"impersonate-user": "root", "impersonate-group": "system:masters"}
        there = await server.ask("GET", PROJECT + WORKLOADS, token="t", headers=headers)
        assert there.status == 200
        assert (await server.ask("GET", WORKLOADS, token="t", headers=headers)).status == 403
