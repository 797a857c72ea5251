"""Conditions of a Cluster: reachable, replaced, and accepting new work."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from datum_compute.api import labels
from datum_compute.api.conditions import find_condition, is_true
from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request, Response
from datum_compute.api.karmada import Cluster
from datum_compute.api.kinds import CLUSTER, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, cell_plane, path_prefix
from datum_compute.client.client import Client
from datum_compute.client.transport.in_process import InProcessTransport
from datum_compute.controllers.context import CellProbing
from datum_compute.controllers.karmada.clusters import (
    CLUSTER_CONTROLLER,
    PROBE_TIMEOUT_S,
    probe_cell,
)
from datum_compute.planning.federation.unreachable import find_unreachable
from datum_compute.runtime.cached_client import CachedClient
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.controllers.running_controllers import running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL = cell_plane("dfw")
CLOCK_STEP_S = 7200.0


class ReplacedCell:
    """A cell whose requests go to another plane of its name after ``replace``."""

    def __init__(self, loop: VirtualLoop) -> None:
        self._before, self._after = InProcessPlanes(loop), InProcessPlanes(loop)
        self._present = self._before
        self._reconnect = asyncio.Event()

    async def fill(self) -> None:
        """Create objects on both planes; the second has a higher resource version."""
        before, after = await self._before.create(CELL), await self._after.create(CELL)
        await before.create(NAMESPACE, a_namespace("default"))
        await before.create(NAMESPACE, a_namespace("ns-lost"))
        for name in ("kube-system", "kube-public", "default", "ns-new"):
            await after.create(NAMESPACE, a_namespace(name))

    def client(self) -> Client:
        transport = InProcessTransport(self._dispatch)
        return Client(transport, prefix=path_prefix(CELL), token="token", agent="test")

    def replace(self) -> None:
        self._present = self._after
        self._reconnect.set()

    async def _dispatch(self, request: Request) -> Response:
        if request.query.get("watch") and self._present is self._before:
            await self._reconnect.wait()  # the stream ends with the old plane
        return await self._present.server.dispatch(request)


def test_a_cell_that_was_replaced_is_listed_again() -> None:
    async def main(loop: VirtualLoop) -> list[bool]:
        cell = ReplacedCell(loop)
        await cell.fill()
        view = CachedClient(CELL, cell.client(), Random(1))
        informer = view.declare(NAMESPACE)
        running = loop.create_task(informer.run())
        await informer.first_sync.wait()
        await probe_cell(view, 5.0)
        cell.replace()
        await asyncio.sleep(120)
        lost = Ref("", "ns-lost")
        seen = [view.read(NAMESPACE).get(lost) is not None]
        verdict = await probe_cell(view, 5.0)
        assert verdict.status == "True"
        await asyncio.sleep(1)
        seen.append(view.read(NAMESPACE).get(lost) is not None)
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled(), "a relist does not keep the watch from being ended"
        return seen

    assert run_virtual(Random(1), main) == [True, False]


def test_an_unreachable_cell_serves_its_city_after_the_other_cell_was_removed() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        hub, cell = await planes.create(HUB), await planes.create(CELL)
        await cell.create(NAMESPACE, a_namespace("default"))
        reasons: list[str] = []

        async def record_reason() -> None:
            found = await hub.get(CLUSTER, Ref("", "dfw"))
            serving_condition = find_condition(found.status.conditions, "Serving")
            reasons.append(serving_condition.reason if serving_condition else "")

        async def cut(request: Request) -> Response | None:
            if request.path.startswith(path_prefix(CELL)):
                raise Unreachable("the cell is away")
            return None

        for name in ("dfw", "dfw-2"):
            metadata = ObjectMeta(name=name, labels={labels.TOPOLOGY_CITY: "DFW"})
            await hub.create(CLUSTER, Cluster(metadata=metadata))
        async with running(CLUSTER_CONTROLLER, loop, planes, HUB, CELL):
            await asyncio.sleep(15)
            await record_reason()
            planes.intercept = cut
            await hub.delete(CLUSTER, Ref("", "dfw-2"))
            await asyncio.sleep(1)  # less than the time after which the cell counts as not ready
            await record_reason()
        return reasons

    assert with_planes(test) == ["AmbiguousServingLocation", "ServesCity"]


@pytest.mark.parametrize("probe_takes_s", [0.0, PROBE_TIMEOUT_S])
@pytest.mark.parametrize("after_response_s", [0.5, 9.5])
def test_a_cell_is_reported_when_it_has_not_responded_for_the_grace_period(
    probe_takes_s: float, after_response_s: float
) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> float:
        hub, cell = await planes.create(HUB), await planes.create(CELL)
        await cell.create(NAMESPACE, a_namespace("default"))
        await hub.create(CLUSTER, Cluster(metadata=ObjectMeta(name="dfw")))
        last_response_s, is_cut, responded = 0.0, False, asyncio.Event()

        async def answer(request: Request) -> Response | None:
            nonlocal last_response_s
            if request.path.startswith(path_prefix(CELL)) and not request.query.get("watch"):
                if is_cut:
                    await asyncio.sleep(probe_takes_s)
                    raise Unreachable("the cell is away")
                last_response_s = loop.time()
                responded.set()
            return None

        planes.intercept = answer
        async with running(CLUSTER_CONTROLLER, loop, planes, HUB, CELL):
            await asyncio.sleep(25)
            responded.clear()
            await responded.wait()
            await asyncio.sleep(after_response_s)
            is_cut = True
            for _ in range(600):
                await asyncio.sleep(0.1)
                if find_unreachable(await hub.get(CLUSTER, Ref("", "dfw"))) is not None:
                    break
            return loop.time() - last_response_s

    requeue_jitter_s = 2.0
    assert with_planes(test) == pytest.approx(CellProbing().grace_s, abs=requeue_jitter_s)


def test_an_unreachable_cell_is_reported_after_the_clock_is_set_back() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[bool]:
        hub, cell = await planes.create(HUB), await planes.create(CELL)
        await cell.create(NAMESPACE, a_namespace("default"))
        await hub.create(CLUSTER, Cluster(metadata=ObjectMeta(name="dfw")))
        ready: list[bool] = []

        async def look() -> None:
            found = await hub.get(CLUSTER, Ref("", "dfw"))
            ready.append(is_true(found.status.conditions, "Ready"))

        async def cut(request: Request) -> Response | None:
            if request.path.startswith(path_prefix(CELL)):
                raise Unreachable("the cell is away")
            return None

        async with running(CLUSTER_CONTROLLER, loop, planes, HUB, CELL) as clock:
            await asyncio.sleep(15)
            await look()
            planes.intercept = cut
            await asyncio.sleep(15)
            clock.skew_s = -CLOCK_STEP_S
            await asyncio.sleep(60)
            await look()
        return ready

    assert with_planes(test) == [True, False]
