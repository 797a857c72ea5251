"""Works of the embedded hub: namespaces that outlive their Work, and copies in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.core import ConfigMap, Namespace
from datum_compute.api.http import Request
from datum_compute.api.karmada import Cluster, Work, WorkloadTemplate, WorkSpec
from datum_compute.api.kinds import CLUSTER, CONFIG_MAP, DEPLOYMENT, NAMESPACE, WORK
from datum_compute.api.meta.codec import to_json
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, Ref, ref_of
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


@asynccontextmanager
async def running_execution(loop: VirtualLoop, planes: InProcessPlanes) -> AsyncIterator[None]:
    environment = ProcessEnvironment(
        loop.time, lambda: "uid", lambda: "suffix", Random(1), loop.time
    )
    manager = build_manager([execution.EXECUTION_CONTROLLER], {}, environment)
    for plane in (HUB, CELL):
        manager.engage(plane, planes.client(plane))
    running = loop.create_task(manager.run())
    try:
        yield
    finally:
        running.cancel()
        await asyncio.wait([running])


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
        async with running_execution(loop, planes):
            await asyncio.sleep(5)
            found = await cell.list(NAMESPACE)
        return [n for n in found.items if n.metadata.name == NAME and not n.is_terminating] != []

    assert with_planes(test) is stays


def a_work(kind: KindInfo[Any], obj: ApiObject) -> Work:
    name = work_name(kind, Ref(obj.metadata.namespace, obj.metadata.name))
    manifest = {**to_json(obj), "apiVersion": kind.api_version, "kind": kind.kind}
    return Work(
        metadata=ObjectMeta(
            name=name,
            namespace=execution_namespace("dfw"),
            finalizers=[labels.EXECUTION_FINALIZER],
        ),
        spec=WorkSpec(workload=WorkloadTemplate(manifests=[manifest])),
    )


def test_nothing_is_created_in_a_namespace_that_is_about_to_be_deleted() -> None:
    """It would be deleted with the namespace, and instances in it would start for nothing."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], list[str]]:
        hub, cell = await planes.create(HUB), await planes.create(CELL)
        await hub.create(CLUSTER, Cluster(metadata=ObjectMeta(name="dfw")))
        await hub.create(NAMESPACE, a_namespace(execution_namespace("dfw")))
        of_namespace = await hub.create(WORK, a_work(NAMESPACE, a_namespace(NAME)))
        held = asyncio.Event()

        async def delay_deletion(request: Request) -> None:
            if request.method == "DELETE" and request.path.endswith(f"/namespaces/{NAME}"):
                await held.wait()

        planes.intercept = delay_deletion
        async with running_execution(loop, planes):
            await asyncio.sleep(5)
            await hub.delete(WORK, ref_of(of_namespace))
            config = ConfigMap(metadata=ObjectMeta(name="settings", namespace=NAME))
            await hub.create(WORK, a_work(CONFIG_MAP, config))
            await asyncio.sleep(5)
            before = await cell.list(CONFIG_MAP, namespace=NAME)
            held.set()
            await asyncio.sleep(5)
            await cell.finalize_namespace(await cell.get(NAMESPACE, Ref("", NAME)))
            await asyncio.sleep(60)
            await hub.create(WORK, a_work(NAMESPACE, a_namespace(NAME)))
            await asyncio.sleep(60)
            after = await cell.list(CONFIG_MAP, namespace=NAME)
        return [c.metadata.name for c in before.items], [c.metadata.name for c in after.items]

    before, after = with_planes(test)
    assert "settings" not in before
    assert "settings" in after
