"""Authentication, access to planes, health checks and non-resource paths."""

from __future__ import annotations

import pytest

from datum_compute import __version__
from datum_compute.api.meta.codec import decode
from datum_compute.server.access.authentication import User
from testkit.api_server.running_server import (
    COMPUTE,
    PROJECT,
    TOKEN,
    WORKLOADS,
    InProcessServer,
    running_server,
    workload,
)

SECRET = "s3cret-token-value"
USERS = {SECRET: User("ann", ("system:masters",), frozenset({"project/demo"}))}


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": ""},
        {"authorization": "Bearer"},
        {"authorization": "Bearer "},
        {"authorization": "Bearer wrong-token"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": TOKEN},
        {"authorization": "Bearer \u00ff"},
    ],
)
async def test_a_request_without_a_valid_token_gets_401(
    server: InProcessServer, headers: dict[str, str]
) -> None:
    status = await server.status("GET", WORKLOADS, token="", headers=headers)
    assert (status["code"], status["reason"]) == (401, "Unauthorized")
    assert "wrong-token" not in str(status)


async def test_an_empty_token_is_invalid() -> None:
    async with running_server(users={"": User("empty-token", (), frozenset({"*"}))}) as server:
        headers = {"authorization": "Bearer "}
        assert (await server.ask("GET", "/api", token="", headers=headers)).status == 401


async def test_the_error_of_a_closed_plane_names_user_and_plane() -> None:
    async with running_server(users=USERS) as server:
        allowed = await server.ask("GET", PROJECT + WORKLOADS, token=SECRET)
        assert allowed.status == 200
        status = await server.status("GET", "/planes/hub" + WORKLOADS, token=SECRET)
    assert (status["code"], status["reason"]) == (403, "Forbidden")
    assert status["message"] == (
        'workloads.compute.datumapis.com is forbidden: User "ann" cannot list resource '
        '"workloads" in API group "compute.datumapis.com" in the namespace "default": '
        'the user has no access to plane "hub"'
    )
    assert status["details"] == {"group": "compute.datumapis.com", "kind": "workloads"}
    assert SECRET not in str(status)


async def test_the_error_of_a_closed_plane_does_not_depend_on_its_objects() -> None:
    async with running_server(users=USERS) as server:
        await server.json("POST", "/planes/hub" + WORKLOADS, workload())
        there = await server.ask("GET", f"/planes/hub{WORKLOADS}/web", token=SECRET)
        absent = await server.ask("GET", f"/planes/hub{WORKLOADS}/other", token=SECRET)
        nowhere = await server.ask("GET", f"/planes/cells/none{WORKLOADS}/web", token=SECRET)
        page = await server.ask("GET", "/planes/cells/none/nosuch", token=SECRET)
    assert [r.status for r in (there, absent, nowhere, page)] == [403] * 4


async def test_the_message_of_a_forbidden_request_contains_verb_and_scope() -> None:
    async with running_server(users=USERS) as server:

        async def read_message(method: str, path: str, **query: str) -> str:
            status = await server.status(method, "/planes/hub" + path, token=SECRET, **query)
            message: str = status["message"]
            return message.partition(": the user")[0]

        assert 'User "ann" cannot watch resource "clusters" in API group "cluster.karmada.io"' in (
            await read_message("GET", "/apis/cluster.karmada.io/v1alpha1/clusters", watch="1")
        )
        assert "at the cluster scope" in await read_message("GET", f"{COMPUTE}/workloads")
        assert 'cannot update resource "workloads/status"' in (
            await read_message("PUT", f"{WORKLOADS}/web/status")
        )
        assert (
            await read_message("GET", "/apis")
        ) == 'forbidden: User "ann" cannot get path "/apis"'


async def test_an_unknown_impersonation_header_is_rejected(
    server: InProcessServer,
) -> None:
    headers = {"impersonate-user": "other", "impersonate-role": "admin"}
    assert (await server.status("GET", WORKLOADS, headers=headers))["reason"] == "BadRequest"


async def test_objects_of_one_plane_are_not_served_on_another(server: InProcessServer) -> None:
    await server.json("POST", WORKLOADS, workload())
    await server.json("POST", "/planes/hub" + WORKLOADS, workload(image="hub:1"))
    assert (await server.ask("GET", f"{PROJECT}{WORKLOADS}/web")).status == 404
    hub = await server.json("GET", f"/planes/hub{WORKLOADS}/web")
    container = hub["spec"]["template"]["spec"]["runtime"]["sandbox"]["containers"][0]
    assert container["image"] == "hub:1"


async def test_a_plane_that_does_not_exist_is_404(server: InProcessServer) -> None:
    status = await server.status("GET", f"/planes/cells/none{WORKLOADS}")
    assert (status["code"], status["reason"]) == (404, "NotFound")
    assert "cell/none" in status["message"]


@pytest.mark.parametrize("path", ["/healthz", "/livez", "/readyz"])
async def test_health_answers_without_a_token(server: InProcessServer, path: str) -> None:
    response = await server.ask("GET", path, token="")
    assert (response.status, response.body) == (200, b"ok")


async def test_readyz_returns_503_until_the_platform_is_ready() -> None:
    async with running_server(is_ready=False) as server:
        response = await server.ask("GET", "/readyz", token="")
        assert (response.status, response.body.splitlines()) == (
            503,
            [
                b"[+]ping ok",
                b"[-]platform failed: the platform is starting or stopping",
                b"readyz check failed",
            ],
        )
        assert (await server.ask("GET", "/livez", token="")).status == 200


@pytest.mark.parametrize(
    ("path", "lines"),
    [
        ("/livez", b"[+]ping ok\nlivez check passed\n"),
        ("/readyz", b"[+]ping ok\n[+]platform ok\nreadyz check passed\n"),
    ],
)
async def test_a_verbose_health_check_lists_its_parts(
    server: InProcessServer, path: str, lines: bytes
) -> None:
    response = await server.ask("GET", path, token="", verbose="")
    assert (response.status, response.body) == (200, lines)


async def test_health_of_a_plane_does_not_show_whether_it_exists(server: InProcessServer) -> None:
    known = await server.ask("GET", "/planes/hub/healthz", token="")
    unknown = await server.ask("GET", "/planes/cells/none/healthz", token="")
    assert (known.status, known.body) == (unknown.status, unknown.body)
    assert (await server.ask("GET", "/planes/cells/none/readyz")).status == 404


async def test_health_with_a_wrong_token_is_401(server: InProcessServer) -> None:
    assert (await server.ask("GET", "/healthz", token="wrong")).status == 401


async def test_version_contains_the_releases_of_kubernetes_and_of_the_platform(
    server: InProcessServer,
) -> None:
    version = decode((await server.ask("GET", "/version", token="")).body)
    assert (version["major"], version["minor"]) == ("1", "34")
    assert version["gitVersion"] == f"v1.34.0+datum-{__version__}"


@pytest.mark.parametrize(
    "path",
    [
        "/nosuch",
        "/apis/unknown.example.com",
        "/apis/compute.datumapis.com/v9",
        f"{COMPUTE}/nosuch",
        f"{COMPUTE}/namespaces/default/nosuch",
        "/api/v1/namespaces/default/pods",
        f"{WORKLOADS}/web/status/more",
        f"{WORKLOADS}//web",
        f"{COMPUTE}/workloads/web",
        "/apis/cluster.karmada.io/v1alpha1/namespaces/default/clusters",
        "/api/v1/namespaces/default/finalizers",
        "/apis//v1/x",
        "/openapi/v3/nosuch",
        "/planes/cells/Not_A_Name/api",
    ],
)
async def test_an_unknown_path_is_a_plain_404_page(server: InProcessServer, path: str) -> None:
    response = await server.ask("GET", path)
    assert response.status == 404
    assert response.content_type.startswith("text/plain")
    assert response.body == b"404 page not found\n"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("POST", f"{COMPUTE}/workloads", "GET"),
        ("DELETE", f"{COMPUTE}/workloads", "GET"),
        ("POST", f"{WORKLOADS}/web", "GET, PUT, PATCH, DELETE"),
        ("DELETE", f"{WORKLOADS}/web/status", "GET, PUT, PATCH"),
        ("DELETE", "/api/v1/namespaces", "GET, POST"),
        ("PATCH", "/api/v1/namespaces/default/finalize", "PUT"),
        ("BREW", WORKLOADS, "GET, POST, DELETE"),
    ],
)
async def test_an_unsupported_method_gets_405_with_the_supported_methods(
    server: InProcessServer, method: str, path: str, allowed: str
) -> None:
    response = await server.ask(method, path, workload())
    assert (response.status, decode(response.body)["reason"]) == (405, "MethodNotAllowed")
    assert response.headers["allow"] == allowed
    options = await server.ask("OPTIONS", path)
    assert (options.status, options.headers["allow"]) == (200, allowed)


async def test_discovery_is_read_only(server: InProcessServer) -> None:
    assert (await server.ask("POST", "/apis", {})).status == 405
    assert (await server.ask("OPTIONS", "/apis")).headers["allow"] == "GET, HEAD"


async def test_an_internal_error_is_a_500_without_details(
    server: InProcessServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.clock.now_s = float("inf")  # not a valid date
    status = await server.status("POST", WORKLOADS, workload())
    assert (status["code"], status["reason"]) == (500, "InternalError")
    assert "infinity" not in str(status)
    assert "infinity" in caplog.text
