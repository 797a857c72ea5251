"""RemoteGatewayAuthorizer: reviews by the API server of the plane, cache, and audit log."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

from datum_compute.api.errors import ApiError, Forbidden, ServiceUnavailable, Unauthorized
from datum_compute.api.http import Request
from datum_compute.api.planes import PlaneName, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.gateway.authorizer import ALLOWED_CACHE_S, GatewayTarget, RemoteGatewayAuthorizer
from datum_compute.server.access.audit import AuditEvent
from datum_compute.server.access.authentication import User
from testkit.api_server.running_server import TOKEN, InProcessServer, running_server
from testkit.sim.loop import run_virtual
from tests.gateway.gateway_world import EVE, FakeCell, build_world

DEMO = PlaneName("project/demo")
LOG = GatewayTarget(DEMO, "default", "web", "log")


@dataclass
class AuthorizerWorld:
    server: InProcessServer
    manager: str = TOKEN
    now_s: float = 0.0
    audit_log: list[AuditEvent] = field(default_factory=list)

    def authorizer(self) -> RemoteGatewayAuthorizer:
        def client_of(plane: PlaneName) -> Client:
            transport = InProcessTransport(self.server.api.dispatch)
            return Client(transport, prefix=path_prefix(plane), token=self.manager, agent="test")

        return RemoteGatewayAuthorizer(
            client_of, self.server.clock, lambda: self.now_s, self.audit_log.append
        )

    async def grant_eve(self) -> str:
        """Grant Eve the logs. Return the path of the RoleBinding."""
        return await build_world(self.server, {}, FakeCell(())).grant_eve("log", "get")


def run_scenario(scenario: Callable[[AuthorizerWorld], Coroutine[Any, Any, None]]) -> None:
    async def main(_: object) -> None:
        eve = User("eve", ("system:authenticated",), frozenset({"project/demo"}))
        async with running_server(users={EVE: eve}) as server:
            await scenario(AuthorizerWorld(server))

    run_virtual(Random(5), main)


def a_request(token: str = EVE, **headers: str) -> Request:
    more = {"authorization": f"Bearer {token}"} if token else {}
    return Request("GET", "/", headers={**more, **headers})


def test_a_user_with_a_role_in_the_project_is_authorized() -> None:
    async def scenario(world: AuthorizerWorld) -> None:
        await world.grant_eve()
        assert await world.authorizer().authorize(a_request(), LOG) == ""

    run_scenario(scenario)


def test_a_denied_user_is_named_in_the_audit_log() -> None:
    async def scenario(world: AuthorizerWorld) -> None:
        authorizer = world.authorizer()
        with pytest.raises(Forbidden, match='eve cannot get resource "instances/log"') as refused:
            await authorizer.authorize(a_request(), LOG)
        await authorizer.record_denial(a_request(), LOG, refused.value)
        assert [(e.user, e.code, e.subresource) for e in world.audit_log] == [("eve", 403, "log")]

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (a_request("unknown"), Unauthorized),
        (a_request(""), Unauthorized),
        (a_request("", authorization="Basic eve"), Unauthorized),
        (a_request(**{"impersonate-user": "root"}), Forbidden),
    ],
)
def test_unauthenticated_and_impersonating_requests_are_refused(
    request_: Request, error: type[ApiError]
) -> None:
    async def scenario(world: AuthorizerWorld) -> None:
        await world.grant_eve()
        with pytest.raises(error):
            await world.authorizer().authorize(request_, LOG)

    run_scenario(scenario)


def test_permissions_are_cached_for_a_while_and_denials_are_not() -> None:
    async def scenario(world: AuthorizerWorld) -> None:
        authorizer = world.authorizer()
        with pytest.raises(Forbidden):
            await authorizer.authorize(a_request(), LOG)
        binding = await world.grant_eve()
        await authorizer.authorize(a_request(), LOG)
        await world.server.json("DELETE", binding)
        world.now_s += ALLOWED_CACHE_S - 0.1
        await authorizer.authorize(a_request(), LOG)
        with pytest.raises(Forbidden):
            await authorizer.authorize(a_request(), GatewayTarget(DEMO, "default", "other", "log"))
        world.now_s += 0.2
        with pytest.raises(Forbidden):
            await authorizer.authorize(a_request(), LOG)

    run_scenario(scenario)


def test_a_missing_permission_of_the_gateway_itself_is_not_reported_as_forbidden() -> None:
    async def scenario(world: AuthorizerWorld) -> None:
        world.manager = EVE
        with pytest.raises(ServiceUnavailable, match="the gateway may not create the reviews"):
            await world.authorizer().authorize(a_request(TOKEN), LOG)

    run_scenario(scenario)


def test_the_audit_log_names_an_authorized_user_when_the_api_server_refuses_reviews() -> None:
    async def scenario(world: AuthorizerWorld) -> None:
        await world.grant_eve()
        authorizer = world.authorizer()
        await authorizer.authorize(a_request(), LOG)
        world.manager = "an expired token"
        world.now_s += 2 * ALLOWED_CACHE_S
        await authorizer.record(a_request(), LOG, code=101, reason="Ended")
        assert [event.user for event in world.audit_log] == ["eve"]

    run_scenario(scenario)
