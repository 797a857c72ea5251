"""Attacks on the isolation of planes, on terminals and on logs (A1, A3, A9)."""

from __future__ import annotations

import logging

import pytest

from datum_compute.api.http import JSON_PATCH, MERGE_PATCH
from datum_compute.api.meta.codec import decode
from datum_compute.api.planes import PlaneName
from datum_compute.planes.roles import admin_user
from datum_compute.server.access.authentication import User
from testkit.api_server.granting import ensure_first_roles
from testkit.api_server.running_server import (
    COMPUTE,
    WORKLOADS,
    InProcessServer,
    give_cities,
    namespace,
    running_server,
    workload,
)

PROJECTS = "/apis/resourcemanager.miloapis.com/v1alpha1/projects"
OURS, THEIRS = f"{PROJECTS}/demo/control-plane", f"{PROJECTS}/victim/control-plane"
MINE = "token-of-demo"
CANARY = "canary"


async def prepare_projects(server: InProcessServer) -> None:
    """Create two projects with their roles, and an object with a canary in the other one."""
    await server.store.create_plane("project/victim")
    await server.json("POST", f"{THEIRS}/api/v1/namespaces", namespace("default"))
    await give_cities(server, THEIRS)
    for plane in ("project/demo", "project/victim", "hub", "platform", "cell/dfw"):
        await ensure_first_roles(server, plane)
    await server.json("POST", THEIRS + WORKLOADS, workload(CANARY))
    await server.json("POST", "/planes/hub" + WORKLOADS, workload(CANARY))


USERS = {MINE: User(admin_user(PlaneName("project/demo")), (), frozenset({"project/demo"}))}

EVERY_WAY = [
    ("GET", f"{WORKLOADS}/{CANARY}"),
    ("HEAD", f"{WORKLOADS}/{CANARY}"),
    ("GET", WORKLOADS),
    ("GET", f"{WORKLOADS}?watch=1"),
    ("GET", f"{COMPUTE}/workloads"),
    ("GET", f"{COMPUTE}/workloads?watch=1"),
    ("GET", f"{WORKLOADS}/{CANARY}/status"),
    ("PUT", f"{WORKLOADS}/{CANARY}"),
    ("PUT", f"{WORKLOADS}/{CANARY}/status"),
    ("PATCH", f"{WORKLOADS}/{CANARY}"),
    ("PATCH", f"{WORKLOADS}/{CANARY}/status"),
    ("POST", WORKLOADS),
    ("DELETE", f"{WORKLOADS}/{CANARY}"),
    ("DELETE", WORKLOADS),
    ("GET", "/api/v1/namespaces"),
    ("DELETE", "/api/v1/namespaces/default"),
    ("PUT", "/api/v1/namespaces/default/finalize"),
    ("POST", "/api/v1/namespaces/default/serviceaccounts/default/token"),
    ("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"),
    ("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews"),
    ("POST", "/apis/authentication.k8s.io/v1/tokenreviews"),
    ("POST", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"),
    ("GET", "/api"),
    ("GET", "/apis"),
    ("GET", "/openapi/v3"),
    ("GET", "/nosuch"),
    ("OPTIONS", WORKLOADS),
    ("BREW", WORKLOADS),
]


@pytest.mark.parametrize("prefix", [THEIRS, "/planes/hub", "/planes/cells/dfw", ""])
async def test_a_token_of_one_plane_is_rejected_on_another_for_every_verb(prefix: str) -> None:
    async with running_server(users=USERS) as server:
        await prepare_projects(server)
        versions = {plane: server.store.version(plane) for plane in server.store.planes()}
        for method, target in EVERY_WAY:
            path, _, query = target.partition("?")
            for content_type in ("application/json", MERGE_PATCH, JSON_PATCH):
                response = await server.ask(
                    method,
                    prefix + path,
                    {},
                    token=MINE,
                    headers={"content-type": content_type},
                    **({"watch": "1"} if query else {}),
                )
                assert response.status == 403, (method, target)
                assert response.stream is None
                if CANARY not in path:
                    assert CANARY.encode() not in response.body
        assert versions == {plane: server.store.version(plane) for plane in server.store.planes()}


async def test_the_errors_of_an_existing_and_a_missing_plane_are_equal() -> None:
    async with running_server(users=USERS) as server:
        await prepare_projects(server)
        nowhere = f"{PROJECTS}/absent/control-plane"
        for method, target in EVERY_WAY:
            path = target.partition("?")[0]
            known = await server.ask(method, THEIRS + path, {}, token=MINE)
            unknown = await server.ask(method, nowhere + path, {}, token=MINE)
            assert known.status == unknown.status == 403
            assert known.body.replace(b"victim", b"absent") == unknown.body


@pytest.mark.parametrize(
    "path",
    [
        f"{OURS}/../../victim/control-plane{WORKLOADS}",
        f"{OURS}/..{WORKLOADS}",
        f"{OURS}/../../../../../..{WORKLOADS}",
        f"{OURS}/planes/hub{WORKLOADS}",
        f"{OURS}//planes/hub{WORKLOADS}",
        f"{OURS}{THEIRS}{WORKLOADS}",
        f"{PROJECTS}/demo/../victim/control-plane{WORKLOADS}",
        f"{PROJECTS}/demo%2F..%2Fvictim/control-plane{WORKLOADS}",
        f"{PROJECTS}/demo\x00/control-plane{WORKLOADS}",
        f"{PROJECTS}/DEMO/control-plane{WORKLOADS}",
        f"{PROJECTS}/Victim/control-plane{WORKLOADS}",
        f"{PROJECTS}/victim /control-plane{WORKLOADS}",
        f"{PROJECTS}/victim./control-plane{WORKLOADS}",
        f"{PROJECTS}/{'v' * 5000}/control-plane{WORKLOADS}",
        f"{PROJECTS}//victim/control-plane{WORKLOADS}",
        f"/.{OURS}/{WORKLOADS}",
        f"//planes/hub{WORKLOADS}",
        f"/planes/HUB{WORKLOADS}",
        f"/planes/hub%2f{WORKLOADS}",
        f"/planes/cells/../hub{WORKLOADS}",
        f"/planes/hubs{WORKLOADS}",
        f"{OURS}{COMPUTE}/namespaces/..%2Fvictim/workloads",
        f"{OURS}{COMPUTE}/namespaces/../workloads/{CANARY}",
        f"{OURS}{COMPUTE}/namespaces/default/workloads/..%2F{CANARY}",
        f"{OURS}{WORKLOADS}/{CANARY}",
        f"{OURS};plane=victim{WORKLOADS}",
    ],
)
async def test_encoded_and_relative_paths_do_not_reach_another_plane(path: str) -> None:
    async with running_server(users=USERS) as server:
        await prepare_projects(server)
        response = await server.ask("GET", path, token=MINE)
        assert response.status in (400, 403, 404) or decode(response.body)["items"] == []
        if CANARY not in path:
            assert CANARY.encode() not in response.body


async def test_query_parameters_do_not_select_a_plane() -> None:
    async with running_server(users=USERS) as server:
        await prepare_projects(server)
        listed = await server.json(
            "GET", OURS + WORKLOADS, token=MINE, plane="project/victim", namespace="x"
        )
        assert listed["items"] == []
        page = await server.json("GET", THEIRS + WORKLOADS, limit="1")
        token = page["metadata"].get("continue", "")
        version = page["metadata"]["resourceVersion"]
        for query in ({"continue": token}, {"resourceVersion": version}, {"labelSelector": "a"}):
            response = await server.ask("GET", OURS + WORKLOADS, token=MINE, **query)
            assert CANARY.encode() not in response.body


HOSTILE = "x\r\nHTTP 200 OK\x1b]0;owned\x07\x1b[2J\u009b31m\u202egnp"


async def test_control_characters_in_user_names_are_escaped_in_errors_and_logs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with running_server(users=USERS) as server:
        await prepare_projects(server)
        answers = [
            await server.ask("GET", f"{OURS}{WORKLOADS}/{HOSTILE}", token=MINE),
            await server.ask("GET", f"{THEIRS}{WORKLOADS}/{HOSTILE}", token=MINE),
            await server.ask("GET", f"/{HOSTILE}", token=MINE),
            await server.ask("GET", OURS + WORKLOADS, token=MINE, fieldSelector=f"a={HOSTILE}"),
            await server.ask("POST", OURS + WORKLOADS, workload(HOSTILE), token=MINE),
            await server.ask("BREW\x1b", OURS + WORKLOADS, token=MINE),
        ]
        server.clock.now_s = float("inf")
        await server.ask("POST", f"{OURS}{WORKLOADS}", workload(HOSTILE), token=MINE)
        for answer in answers:
            assert answer.status >= 400
            status = decode(answer.body)
            texts = [
                status["message"],
                *(c["message"] for c in status.get("details", {}).get("causes", ())),
            ]
            assert all(text.isprintable() for text in texts), texts
            for value in answer.headers.values():
                assert value.isprintable()
    for record in caplog.records:
        assert record.getMessage().isprintable()
