"""Networks of a project: which events reconcile their bindings and contexts."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.conditions import is_true
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import (
    LOCATION_BINDING,
    NETWORK,
    NETWORK_BINDING,
    NETWORK_CONTEXT,
    SUBNET,
)
from datum_compute.api.meta.fields import LocalReference, NamespacedReference
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.networking.network import (
    NetworkBinding,
    NetworkBindingSpec,
    NetworkContext,
    NetworkContextSpec,
)
from datum_compute.api.planes import HUB, PLATFORM
from datum_compute.client.client import Client
from datum_compute.controllers.network.networks import BINDING_CONTROLLER
from datum_compute.planning.network.subnets import prefix_of
from testkit.builders import NOW, a_location_binding
from testkit.sim.loop import VirtualLoop
from tests.controllers.network.network_project import (
    NETWORK_CONTROLLERS,
    PROJECT,
    a_network_project,
)
from tests.controllers.running_controllers import is_reconciled, running
from tests.runtime.planes_in_process import InProcessPlanes, with_planes

WEB_BINDING = Ref("default", "web")


async def a_project(planes: InProcessPlanes) -> Client:
    """Return a client of a project with a location."""
    project = await a_network_project(planes)
    await project.create(LOCATION_BINDING, a_location_binding())
    return project


def test_a_binding_is_ready_after_its_context_has_a_subnet_and_both_go_with_the_binding() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project(planes)
        async with running(NETWORK_CONTROLLERS, loop, planes, PLATFORM, HUB, PROJECT):
            await asyncio.sleep(5)
            default = await project.get(NETWORK, Ref("default", "default"))
            assert default.spec.ip_families == ["IPv4"]
            await project.create(NETWORK_BINDING, a_binding())
            await asyncio.sleep(10)
            binding = await project.get(NETWORK_BINDING, WEB_BINDING)
            assert is_true(binding.status.conditions, "Ready")
            (subnet,) = (await project.list(SUBNET)).items
            assert prefix_of(subnet)
            (context,) = (await project.list(NETWORK_CONTEXT)).items
            assert is_true(context.status.conditions, "Ready")
            assert is_true(subnet.status.conditions, "Ready")
            await project.delete(NETWORK_BINDING, WEB_BINDING)
            await asyncio.sleep(10)
            assert (await project.list(NETWORK_CONTEXT)).items == []

    with_planes(test)


def test_a_context_is_deleted_after_a_list_that_still_contained_its_last_binding() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project(planes)
        async with running(NETWORK_CONTROLLERS, loop, planes, PLATFORM, HUB, PROJECT):
            await project.create(NETWORK_BINDING, a_binding())
            await asyncio.sleep(10)
            assert len((await project.list(NETWORK_CONTEXT)).items) == 1
            lists: list[Response] = []

            async def replay_first_list(request: Request, response: Response) -> Response:
                if request.method != "GET" or not request.path.endswith("/networkbindings"):
                    return response
                lists.append(response)
                return lists[0]

            planes.afterwards = replay_first_list
            assert len((await project.list(NETWORK_BINDING)).items) == 1
            await project.delete(NETWORK_BINDING, WEB_BINDING)
            await asyncio.sleep(1)
            assert len(lists) == 2
            planes.afterwards = None
            await asyncio.sleep(10)
            assert (await project.list(NETWORK_CONTEXT)).items == []

    with_planes(test)


def a_binding() -> NetworkBinding:
    metadata = ObjectMeta(name="web", namespace="default")
    spec = NetworkBindingSpec(
        network=NamespacedReference(name="default"), location=LocalReference(name="dfw")
    )
    return NetworkBinding(metadata=metadata, spec=spec)


def test_bindings_are_not_woken_by_holders_of_their_context() -> None:
    spec = NetworkContextSpec(network=LocalReference(name="n"), location=LocalReference(name="l"))
    context = NetworkContext(metadata=ObjectMeta(name="n-l", namespace="default"), spec=spec)
    held = replace(context.metadata, annotations={labels.LAST_HOLDER: "web"})

    def wakes(new: NetworkContext) -> bool:
        return is_reconciled(BINDING_CONTROLLER, NETWORK_CONTEXT, context, new)

    assert not wakes(replace(context, metadata=held))
    assert wakes(replace(context, spec=replace(spec, mtu=1400)))
    going = replace(context.metadata, deletion_timestamp=NOW)
    assert wakes(replace(context, metadata=going))
