"""Watches end when their user loses the permission (attack pattern A6)."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from testkit.api_server.granting import (
    ANN,
    DEFAULT,
    RBAC,
    cluster_role,
    grant,
    grant_in,
    rule,
    server_with_ann,
)
from testkit.api_server.running_server import PROJECT, WORKLOADS, Events, InProcessServer, workload

WATCHES = rule("list watch", "workloads")


async def open_watch(server: InProcessServer, prefix: str = "") -> Events:
    return await server.watch(prefix + WORKLOADS, token=ANN)


async def unbind(server: InProcessServer) -> None:
    await server.json("DELETE", f"{RBAC}/clusterrolebindings/held")


async def remove_role(server: InProcessServer) -> None:
    await server.json("DELETE", f"{RBAC}/clusterroles/held")


async def narrow_role(server: InProcessServer) -> None:
    narrower = cluster_role("held", rule("list", "workloads"))
    await server.json("PUT", f"{RBAC}/clusterroles/held", narrower)


@pytest.mark.parametrize("take_away", [unbind, remove_role, narrow_role])
async def test_a_watch_ends_when_its_user_loses_the_permission(
    take_away: Callable[[InProcessServer], Coroutine[Any, Any, None]],
) -> None:
    async with server_with_ann() as server:
        await grant(server, WATCHES)
        events = await open_watch(server)
        await take_away(server)
        assert await events.rest() == []
        assert (await server.ask("GET", WORKLOADS, token=ANN, watch="1")).status == 403


async def test_no_event_after_the_revocation_is_sent() -> None:
    async with server_with_ann() as server:
        await grant(server, WATCHES)
        events = await open_watch(server)
        await unbind(server)
        await server.json("POST", WORKLOADS, workload("secret-plan"))
        assert await events.rest() == []


async def test_other_changes_of_roles_leave_a_watch_open() -> None:
    async with server_with_ann() as server:
        await grant(server, WATCHES)
        await grant_in(server, WATCHES, name="also")
        events = await open_watch(server)
        await unbind(server)  # a binding in the namespace still grants it
        await server.json("POST", f"{RBAC}/clusterroles", cluster_role("another"))
        await server.json("POST", WORKLOADS, workload())
        assert await events.names(1) == [("ADDED", "web")]
        await server.json("DELETE", f"{RBAC}{DEFAULT}/rolebindings/also")
        assert await events.rest() == []


async def test_watches_of_other_planes_and_users_stay_open() -> None:
    async with server_with_ann() as server:
        await grant(server, WATCHES)
        await grant(server, WATCHES, prefix=PROJECT)
        here, there = await open_watch(server), await open_watch(server, PROJECT)
        of_root = await server.watch(WORKLOADS)
        await unbind(server)
        assert await here.rest() == []
        await server.json("POST", PROJECT + WORKLOADS, workload())
        await server.json("POST", WORKLOADS, workload())
        assert await there.names(1) == [("ADDED", "web")]
        assert await of_root.names(1) == [("ADDED", "web")]
