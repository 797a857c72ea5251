"""A deployment gets a binding of its network, and the prefixes of the bound context."""

from __future__ import annotations

import asyncio

from datum_compute.api import labels
from datum_compute.api.kinds import (
    DEPLOYMENT,
    LOCATION_BINDING,
    NETWORK_BINDING,
    NETWORK_CONTEXT,
    SUBNET,
)
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.api.planes import HUB, PLATFORM
from datum_compute.client.client import Client
from datum_compute.controllers.network.attachment import CONTROLLER
from datum_compute.planning.network.subnets import prefix_of
from testkit.builders import a_deployment, a_location_binding
from testkit.sim.loop import VirtualLoop
from tests.controllers.network.network_project import (
    NETWORK_CONTROLLERS,
    PROJECT,
    a_network_project,
)
from tests.controllers.running_controllers import as_new, running
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

WEB = Ref("default", "web-dfw")


async def a_project(planes: InProcessPlanes) -> Client:
    """Return a client of a project with a deployment in DFW and no location yet."""
    project = await a_network_project(planes)
    deployment = a_deployment(finalizers=(), attached=False)
    await project.create(DEPLOYMENT, as_new(deployment, labels={labels.CITY_CODE: "DFW"}))
    return project


def test_a_deployment_is_attached_as_soon_as_the_project_may_use_its_location() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project(planes)
        async with running(
            (CONTROLLER, *NETWORK_CONTROLLERS), loop, planes, PLATFORM, HUB, PROJECT
        ):
            await asyncio.sleep(5)
            assert (await project.list(NETWORK_BINDING)).items == []
            await project.create(LOCATION_BINDING, a_location_binding())
            await asyncio.sleep(10)
            attachment = (await project.get(DEPLOYMENT, WEB)).spec.network_attachment
            assert attachment is not None
            (subnet,) = (await project.list(SUBNET)).items
            assert [prefix.prefix for prefix in attachment.prefixes] == [prefix_of(subnet)]

    with_planes(test)


def test_a_changed_context_changes_the_attachment_of_its_deployments() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> int:
        project = await a_project(planes)
        await project.create(LOCATION_BINDING, a_location_binding())
        async with running(NETWORK_CONTROLLERS, loop, planes, PLATFORM, HUB, PROJECT):
            async with running(CONTROLLER, loop, planes, PROJECT):
                await asyncio.sleep(10)
            (context,) = (await project.list(NETWORK_CONTEXT)).items
        async with running(CONTROLLER, loop, planes, PROJECT):
            await asyncio.sleep(5)
            await project.patch(NETWORK_CONTEXT, ref_of(context), {"spec": {"mtu": 1400}})
            await asyncio.sleep(5)
        attachment = (await project.get(DEPLOYMENT, WEB)).spec.network_attachment
        assert attachment is not None
        return attachment.mtu

    assert with_planes(test) == 1400
