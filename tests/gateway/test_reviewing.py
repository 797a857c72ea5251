"""Who may ask the gateway of a manager: the API server of the plane is asked, by reviews."""

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
from datum_compute.gateway.authorizer import HOLDS_S, GatewayTarget, RemoteGatewayAuthorizer
from datum_compute.server.access.audit import AuditEvent
from datum_compute.server.access.authentication import User
from testkit.api_server.running_server import TOKEN, InProcessServer, running_server
from testkit.sim.loop import run_virtual
from tests.gateway.made_up import EVE, a_desk
from tests.gateway.made_up import MadeUpCell as NoCell

DEMO = PlaneName("project/demo")
LOG = GatewayTarget(DEMO, "default", "web", "log")


@dataclass
class Door:
    server: InProcessServer
    manager: str = TOKEN
    now_s: float = 0.0
    trail: list[AuditEvent] = field(default_factory=list)

    def reviewer(self) -> RemoteGatewayAuthorizer:
        def client_of(plane: PlaneName) -> Client:
            transport = InProcessTransport(self.server.api.dispatch)
            return Client(transport, prefix=path_prefix(plane), token=self.manager, agent="test")

        return RemoteGatewayAuthorizer(
            client_of, self.server.clock, lambda: self.now_s, self.trail.append
        )

    async def let_in(self) -> str:
        """Eve may read logs; the path of what lets her."""
        return await a_desk(self.server, {}, NoCell(())).let_in("log", "get")


def at_a_door(scenario: Callable[[Door], Coroutine[Any, Any, None]]) -> None:
    async def main(_: object) -> None:
        eve = User("eve", ("system:authenticated",), frozenset({"project/demo"}))
        async with running_server(users={EVE: eve}) as server:
            await scenario(Door(server))

    run_virtual(Random(5), main)


def asked(token: str = EVE, **headers: str) -> Request:
    more = {"authorization": f"Bearer {token}"} if token else {}
    return Request("GET", "/", headers={**more, **headers})


def test_who_may_in_the_project_is_let_in() -> None:
    async def scenario(door: Door) -> None:
        await door.let_in()
        assert await door.reviewer().check(asked(), LOG) == ""

    at_a_door(scenario)


def test_who_may_not_is_named_and_kept_in_the_trail() -> None:
    async def scenario(door: Door) -> None:
        reviewer = door.reviewer()
        with pytest.raises(Forbidden, match='eve cannot get resource "instances/log"') as refused:
            await reviewer.check(asked(), LOG)
        await reviewer.refused(asked(), LOG, refused.value)
        assert [(e.user, e.code, e.subresource) for e in door.trail] == [("eve", 403, "log")]

    at_a_door(scenario)


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (asked("nobody"), Unauthorized),
        (asked(""), Unauthorized),
        (asked("", authorization="Basic eve"), Unauthorized),
        (asked(**{"impersonate-user": "root"}), Forbidden),
    ],
)
def test_whom_nobody_knows_stays_outside(request_: Request, error: type[ApiError]) -> None:
    async def scenario(door: Door) -> None:
        await door.let_in()
        with pytest.raises(error):
            await door.reviewer().check(request_, LOG)

    at_a_door(scenario)


def test_a_yes_holds_for_a_while_and_a_no_not_at_all() -> None:
    async def scenario(door: Door) -> None:
        reviewer = door.reviewer()
        with pytest.raises(Forbidden):
            await reviewer.check(asked(), LOG)
        binding = await door.let_in()
        await reviewer.check(asked(), LOG)
        await door.server.json("DELETE", binding)
        door.now_s += HOLDS_S - 0.1
        await reviewer.check(asked(), LOG)
        with pytest.raises(Forbidden):
            await reviewer.check(asked(), GatewayTarget(DEMO, "default", "other", "log"))
        door.now_s += 0.2
        with pytest.raises(Forbidden):
            await reviewer.check(asked(), LOG)

    at_a_door(scenario)


def test_what_the_gateway_itself_may_not_is_not_called_the_callers_fault() -> None:
    async def scenario(door: Door) -> None:
        door.manager = EVE
        with pytest.raises(ServiceUnavailable, match="the gateway may not ask who you are"):
            await door.reviewer().check(asked(TOKEN), LOG)

    at_a_door(scenario)


def test_the_trail_knows_who_was_let_in_when_nobody_can_be_asked_any_more() -> None:
    async def scenario(door: Door) -> None:
        await door.let_in()
        reviewer = door.reviewer()
        await reviewer.check(asked(), LOG)
        door.manager = "a token that has run out"
        door.now_s += 2 * HOLDS_S
        await reviewer.note(asked(), LOG, code=101, reason="Ended")
        assert [event.user for event in door.trail] == ["eve"]

    at_a_door(scenario)
