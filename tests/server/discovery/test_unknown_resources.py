"""Resources that are not served are "not found" for users that may read discovery."""

from __future__ import annotations

import pytest

from testkit.api_server.granting import ANN, ensure_first_roles, grant, rule, server_with_ann
from testkit.api_server.running_server import COMPUTE, WORKLOADS, InProcessServer, workload

DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
async def test_an_unknown_resource_is_not_found_rather_than_forbidden(method: str) -> None:
    async with server_with_ann() as server:
        await ensure_first_roles(server, "platform")
        assert (await server.ask(method, DEPLOYMENTS, {}, token=ANN)).status == 404
        assert (await server.ask(method, WORKLOADS, workload(), token=ANN)).status in (403, 405)


@pytest.mark.parametrize("method", ["OPTIONS", "TRACE", "PUT", "PATCH"])
async def test_the_error_of_an_unsupported_method_lists_the_supported_ones(method: str) -> None:
    async with server_with_ann() as server:
        assert (await server.ask(method, WORKLOADS, {}, token=ANN)).status == 403
        await grant(server, rule("list", "workloads"))
        answer = await server.ask(method, WORKLOADS, {}, token=ANN)
        assert answer.status == (200 if method == "OPTIONS" else 405)
        assert answer.headers["allow"] == "GET, POST, DELETE"
        assert (await server.ask("POST", WORKLOADS, workload(), token=ANN)).status == 403


async def test_an_unknown_resource_is_forbidden_for_users_without_permissions() -> None:
    async with server_with_ann() as server:
        assert (await server.ask("POST", DEPLOYMENTS, {}, token=ANN)).status == 403


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH"])
async def test_the_error_of_an_unknown_subresource_lists_the_existing_ones(
    server: InProcessServer, method: str
) -> None:
    await server.json("POST", WORKLOADS, workload())
    status = await server.status(method, f"{WORKLOADS}/web/scale", {})
    assert (status["code"], status["reason"]) == (404, "NotFound")
    assert '"web" has no "scale"' in status["message"]
    assert "datumctl compute scale" in status["message"]
    assert status["message"].endswith("of this kind: status")


@pytest.mark.parametrize("path", [f"{WORKLOADS}/web/status/more", f"{COMPUTE}/nothing/x/y"])
async def test_longer_paths_are_plain_404_pages(server: InProcessServer, path: str) -> None:
    answer = await server.ask("GET", path)
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
