"""The Quota gate is not cleared by a claim that only a stale cache still has."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from datum_compute.api import labels
from datum_compute.api.conditions import TRUE, ConditionValue, make_condition
from datum_compute.api.errors import Forbidden, Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CLAIM, NAMESPACE
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import KindInfo, Ref
from datum_compute.api.meta.timestamps import timestamp
from datum_compute.api.planes import PlaneName, cell_plane, encode_cluster_label, project_plane
from datum_compute.api.quota import GRANTED
from datum_compute.controllers.context import Context
from datum_compute.controllers.gates import confirm_grant
from datum_compute.planes.planes import Planes
from datum_compute.planning.quota.claims import ClaimLocation, claim_ref, new_claim
from datum_compute.runtime.cache import NotSynced
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Key
from testkit.builders import an_instance
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL, PROJECT = cell_plane("dfw"), project_plane("alpha")
INSTANCE = an_instance(0)
KEY = Key(CELL, Ref("default", INSTANCE.metadata.name))
LOCATION = ClaimLocation(PROJECT, "default", "alpha", "dfw")
CLAIM_REF = claim_ref(LOCATION, INSTANCE.metadata.name)
NOW_S = 1_000_000.0


async def synced_once(loop: VirtualLoop, planes: InProcessPlanes, plane: PlaneName) -> CachedClient:
    """A cache whose watches ended after the first list: it counts as synced and gets no events."""
    view = CachedClient(plane, planes.client(plane), Random(1))
    kind: KindInfo[Any] = NAMESPACE if plane == CELL else CLAIM
    informer = view.declare(kind)
    watching = loop.create_task(informer.run())
    await informer.first_sync.wait()
    watching.cancel()
    return view


async def a_context(loop: VirtualLoop, planes: InProcessPlanes, granted_s: float) -> Context:
    cell, project = await planes.create(CELL), await planes.create(PROJECT)
    identity = {
        labels.UPSTREAM_CLUSTER: encode_cluster_label("alpha"),
        labels.UPSTREAM_NAMESPACE: "default",
    }
    await cell.create(NAMESPACE, a_namespace("default", **identity))
    await project.create(NAMESPACE, a_namespace("default"))
    claim = await project.create(CLAIM, new_claim(LOCATION, INSTANCE, None))
    verdict = ConditionValue(TRUE, "QuotaAvailable", "")
    granted = make_condition(GRANTED, verdict, generation=1, now=timestamp(granted_s))
    await project.patch_status(
        CLAIM,
        CLAIM_REF,
        {"conditions": [to_json(granted)]},
        version=claim.metadata.resource_version,
    )
    views = {plane: await synced_once(loop, planes, plane) for plane in (CELL, PROJECT)}
    return Context(
        planes=Planes(views.get),
        drivers={},
        unix_s=lambda: NOW_S,
        elapsed_s=loop.time,
        holdings=planes.server.inventory,
        authority="",
    )


async def delete_claim(planes: InProcessPlanes) -> None:
    """Delete the claim as the hub does for a cell that was forced to leave."""
    project = planes.client(PROJECT)
    await project.patch(CLAIM, CLAIM_REF, {"metadata": {"finalizers": None}})
    await project.delete(CLAIM, CLAIM_REF)


def test_a_deleted_claim_clears_no_gate() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        context = await a_context(loop, planes, NOW_S - 60)
        await delete_claim(planes)
        view = context.planes.require(PROJECT)
        assert view.read(CLAIM).get(CLAIM_REF) is not None, (
            "the cache is stale and counts as synced"
        )
        with pytest.raises(NotSynced):
            await confirm_grant(context, KEY, INSTANCE)
        assert view.read(CLAIM).get(CLAIM_REF) is None, "the cache was listed again"

    with_planes(test)


def test_a_claim_that_still_exists_clears_the_gate() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        context = await a_context(loop, planes, NOW_S - 60)
        await confirm_grant(context, KEY, INSTANCE)

    with_planes(test)


def test_while_the_project_is_unreachable_the_cache_decides() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        context = await a_context(loop, planes, NOW_S - 60)

        async def cut(_request: Request) -> Response | None:
            raise Unreachable("the centre is away")

        planes.intercept = cut
        await confirm_grant(context, KEY, INSTANCE)

    with_planes(test)


def test_a_project_that_refuses_the_cell_clears_no_gate() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        context = await a_context(loop, planes, NOW_S - 60)

        async def refuse(_request: Request) -> Response | None:
            raise Forbidden("the cell has left")

        planes.intercept = refuse
        with pytest.raises(Forbidden):
            await confirm_grant(context, KEY, INSTANCE)

    with_planes(test)


def test_a_recent_grant_causes_no_request() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        context = await a_context(loop, planes, NOW_S - 1)

        async def fail(request: Request) -> Response | None:
            raise AssertionError(f"{request.method} {request.path}")

        planes.intercept = fail
        await confirm_grant(context, KEY, INSTANCE)

    with_planes(test)
