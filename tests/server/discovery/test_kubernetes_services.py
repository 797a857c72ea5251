"""Kubernetes Services are served as an empty list with a warning, and cannot be written."""

from __future__ import annotations

import pytest

from datum_compute.api.meta.codec import decode
from testkit.api_server.granting import ANN, grant, rule, server_with_ann
from testkit.api_server.running_server import InProcessServer

ALL = "/api/v1/services"
SERVICES = "/api/v1/namespaces/default/services"
SERVICE = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"}, "spec": {}}


async def test_services_are_an_empty_list_that_kubectl_can_decode(
    server: InProcessServer,
) -> None:
    answer = await server.ask("GET", SERVICES, labelSelector="kubernetes.io/cluster-service=true")
    listed = decode(answer.body)
    assert (answer.status, listed["kind"], listed["apiVersion"]) == (200, "ServiceList", "v1")
    assert listed["items"] == []
    assert "warning" not in answer.headers


@pytest.mark.parametrize("path", [ALL, SERVICES])
async def test_a_list_of_services_has_a_warning_with_the_alternative(
    server: InProcessServer, path: str
) -> None:
    answer = await server.ask("GET", path)
    assert "services.services.miloapis.com" in answer.headers["warning"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", SERVICES),
        ("DELETE", SERVICES),
        ("PUT", f"{SERVICES}/web"),
        ("PATCH", f"{SERVICES}/web"),
        ("DELETE", f"{SERVICES}/web"),
    ],
)
async def test_a_write_is_rejected_with_the_reason(
    server: InProcessServer, method: str, path: str
) -> None:
    status = await server.status(method, path, SERVICE)
    assert (status["code"], status["reason"]) == (405, "MethodNotAllowed")
    assert "Kubernetes Services are not supported" in status["message"]
    assert (await server.json("GET", SERVICES))["items"] == []


async def test_discovery_lists_only_read_verbs(server: InProcessServer) -> None:
    resources = (await server.json("GET", "/api/v1"))["resources"]
    (services,) = [r for r in resources if r["name"].startswith("services")]
    assert services["verbs"] == ["get", "list", "watch"]
    assert (await server.status("GET", f"{SERVICES}/web"))["code"] == 404


async def test_a_request_without_permission_is_forbidden() -> None:
    async with server_with_ann() as server:
        assert (await server.ask("POST", SERVICES, SERVICE, token=ANN)).status == 403
        await grant(server, rule("list", "services", group=""))
        assert (await server.ask("POST", SERVICES, SERVICE, token=ANN)).status == 405
