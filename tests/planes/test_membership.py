"""Engaging the planes of projects in a manager, with and without entitlement."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

import pytest

from datum_compute.api.kinds import NAMESPACE
from datum_compute.api.planes import PlaneName, project_plane
from datum_compute.client.client import Client
from datum_compute.planes.membership import ProjectMembership
from datum_compute.runtime.controller import Controller, Done, Key, Outcome, for_
from datum_compute.runtime.manager import Manager
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

SHOP = project_plane("shop")


async def reconcile(_manager: Manager[Any], _key: Key) -> Outcome:
    return Done()


def manager_with(*, entitled_only: bool) -> Manager[Any]:
    controller: Controller[Any] = Controller(
        "test", "project", reconcile, (for_(NAMESPACE),), entitled_only=entitled_only
    )
    return Manager([controller], lambda manager: manager, Random(1))


@pytest.mark.parametrize("entitled_only", [False, True])
def test_only_a_change_of_an_entitlement_in_use_engages_a_plane_again(entitled_only: bool) -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> list[bool]:
        manager = manager_with(entitled_only=entitled_only)
        client = await planes.create(SHOP)

        async def reach(_plane: PlaneName) -> Client:
            return client

        membership = ProjectMembership(manager, reach)
        assert membership.uses_entitlement is entitled_only
        assert not membership.is_engaged(SHOP)
        engaged_again = []
        before = None
        for entitled in (False, False, True, True, False):
            await membership.engage(SHOP, entitled=entitled)
            assert membership.is_engaged(SHOP)
            after = manager.cached_client(SHOP)
            engaged_again.append(after is not before)
            before = after
            if entitled_only:
                assert membership.is_entitled(SHOP) is entitled
        membership.disengage(SHOP)
        assert not membership.is_engaged(SHOP)
        return engaged_again

    changes = [True, False, True, False, True] if entitled_only else [True, *[False] * 4]
    assert with_planes(test) == changes


def test_concurrent_calls_engage_a_plane_once() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> int:
        manager = manager_with(entitled_only=False)
        client = await planes.create(SHOP)
        engaged: list[object] = []

        async def reach_slowly(_plane: PlaneName) -> Client:
            await asyncio.sleep(1 + len(engaged))
            return client

        membership = ProjectMembership(manager, reach_slowly)

        async def engage() -> None:
            await membership.engage(SHOP, entitled=True)
            engaged.append(manager.cached_client(SHOP))

        await asyncio.gather(engage(), engage())
        return len(set(map(id, engaged)))

    assert with_planes(test) == 1
