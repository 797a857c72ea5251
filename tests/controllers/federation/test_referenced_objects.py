"""Hub copies of ConfigMaps are restored from their source and deleted before their deployment."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE
from datum_compute.api.meta.codec import from_json, to_json
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, federation_namespace, project_plane
from datum_compute.client.client import Client
from datum_compute.controllers.federation.referenced_objects import (
    SOURCE_COPY_CONTROLLERS,
    SOURCE_RESOLUTION_CONTROLLER,
)
from testkit.builders import a_deployment
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

PROJECT = project_plane("alpha")
CONTROLLERS = (*SOURCE_COPY_CONTROLLERS, SOURCE_RESOLUTION_CONTROLLER)
WEB, SETTINGS = Ref("default", "web-dfw"), Ref("default", "settings")


def a_deployment_with_settings() -> WorkloadDeployment:
    """Return a deployment whose container reads its environment from a ConfigMap."""
    deployment = a_deployment(finalizers=())
    document = to_json(deployment.spec)
    (container,) = document["template"]["spec"]["runtime"]["sandbox"]["containers"]
    container["envFrom"] = [{"configMapRef": {"name": SETTINGS.name}}]
    return as_new(replace(deployment, spec=from_json(document, type(deployment.spec))))


async def a_project_with_settings(planes: InProcessPlanes) -> tuple[Client, Client, Ref]:
    """Return clients of hub and project, and the ref of the copy on the hub."""
    hub, project = await planes.create(HUB), await planes.create(PROJECT)
    namespace = await project.create(NAMESPACE, a_namespace("default"))
    metadata = ObjectMeta(name=SETTINGS.name, namespace=SETTINGS.namespace)
    await project.create(CONFIG_MAP, ConfigMap(metadata=metadata, data={"COLOR": "blue"}))
    await project.create(DEPLOYMENT, a_deployment_with_settings())
    return hub, project, Ref(federation_namespace(namespace.metadata.uid), SETTINGS.name)


def test_an_edited_copy_is_restored_from_its_source() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub, _, copy = await a_project_with_settings(planes)
        async with running(CONTROLLERS, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
            await hub.patch(CONFIG_MAP, copy, {"data": {"COLOR": "red"}})
            await asyncio.sleep(5)
            assert (await hub.get(CONFIG_MAP, copy)).data == {"COLOR": "blue"}

    with_planes(test)


def test_a_deleted_deployment_is_gone_after_the_copies_of_its_sources_are_gone() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub, project, copy = await a_project_with_settings(planes)
        async with running(CONTROLLERS, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
            await hub.patch(CONFIG_MAP, copy, {"metadata": {"finalizers": ["example.com/held"]}})
            await project.delete(DEPLOYMENT, WEB)
            await asyncio.sleep(5)
            held = (await project.get(DEPLOYMENT, WEB)).metadata.finalizers
            assert labels.REFERENCED_DATA_FINALIZER in held
            await hub.patch(CONFIG_MAP, copy, {"metadata": {"finalizers": None}})
            await asyncio.sleep(5)
            assert (await project.list(DEPLOYMENT)).items == []

    with_planes(test)
