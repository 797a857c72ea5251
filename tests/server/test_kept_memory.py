"""The server keeps no memory in proportion to the size of a request after its response."""

from __future__ import annotations

import sys

from datum_compute.api.exchange import Request
from tests.server.granting import RBAC, grant, rule, server_with_ann
from tests.server.running_server import TOKEN, WORKLOADS, Server, workload


class OpenConnection:
    def identify(self, user: str, *, reserved: bool) -> None:
        """Accept every user."""


async def test_an_open_watch_keeps_no_body_and_no_other_headers(server: Server) -> None:
    body, other, peer = b"x" * 100_000, "y" * 100_000, OpenConnection()
    query = {"watch": "1", "other": "z" * 100_000}
    headers = {"authorization": f"Bearer {TOKEN}", "x-other": other}
    held = (body, other, query, headers, peer)
    before = [sys.getrefcount(part) for part in held]
    response = await server.api.dispatch(Request("GET", WORKLOADS, query, headers, body, peer=peer))
    assert response.stream is not None
    assert [sys.getrefcount(part) for part in held] == before


async def test_a_watch_keeps_no_spaces_that_pad_its_token(server: Server) -> None:
    header = f"Bearer {' ' * 50_000}{TOKEN}"
    before = sys.getrefcount(header)
    events = await server.watch(WORKLOADS, headers={"authorization": header})
    assert sys.getrefcount(header) == before
    await server.json("POST", WORKLOADS, workload())
    assert await events.names(1) == [("ADDED", "web")]


async def test_the_watch_of_an_impersonated_user_ends_when_that_user_loses_the_grant() -> None:
    async with server_with_ann() as server:
        await grant(server, rule("list watch", "workloads"))
        await grant(server, rule("get", "workloads"), name="other")
        events = await server.watch(WORKLOADS, headers={"impersonate-user": "ann"})
        await server.json("DELETE", f"{RBAC}/clusterrolebindings/other")
        await server.json("POST", WORKLOADS, workload())
        assert await events.names(1) == [("ADDED", "web")]
        await server.json("DELETE", f"{RBAC}/clusterrolebindings/held")
        assert await events.rest() == []
