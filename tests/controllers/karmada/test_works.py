"""A namespace that reaches a cell after its Work was deleted is removed, unless it is in use."""

from __future__ import annotations

import asyncio
from random import Random

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.core import Namespace
from datum_compute.api.karmada import Cluster
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, cell_plane, execution_namespace, work_name
from datum_compute.app.controllers import build_manager
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.controllers.karmada import works as execution
from testkit.builders import a_deployment
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL = cell_plane("dfw")
NAME = "ns-u"
COPY = Namespace(
    metadata=ObjectMeta(
        name=NAME,
        labels={labels.MANAGED: "true"},
        annotations={
            labels.WORK_NAMESPACE: execution_namespace("dfw"),
            labels.WORK_NAME: work_name(NAMESPACE, Ref("", NAME)),
        },
    )
)


@pytest.mark.parametrize(
    ("has_source", "has_deployment", "stays"),
    [(False, False, False), (True, False, True), (False, True, True)],
)
def test_a_namespace_without_a_work(has_source: bool, has_deployment: bool, stays: bool) -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        hub, cell = await planes.create(HUB), await planes.create(CELL)
        await hub.create(CLUSTER, Cluster(metadata=ObjectMeta(name="dfw")))
        await cell.create(NAMESPACE, COPY)
        if has_source:
            await hub.create(NAMESPACE, a_namespace(NAME))
        if has_deployment:
            metadata = ObjectMeta(name="web", namespace=NAME)
            await cell.create(
                DEPLOYMENT, msgspec.structs.replace(a_deployment(), metadata=metadata)
            )
        environment = ProcessEnvironment(
            loop.time, lambda: "uid", lambda: "suffix", Random(1), loop.time
        )
        manager = build_manager([execution.EXECUTION_CONTROLLER], {}, environment)
        for plane in (HUB, CELL):
            manager.engage(plane, planes.client(plane))
        running = loop.create_task(manager.run())
        await asyncio.sleep(5)
        found = await cell.list(NAMESPACE)
        running.cancel()
        await asyncio.wait([running])
        return [n for n in found.items if n.metadata.name == NAME and not n.is_terminating] != []

    assert with_planes(test) is stays
