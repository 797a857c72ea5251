"""Hub namespaces and policies are deleted after their source, but not while it is unknown."""

from __future__ import annotations

import asyncio

from datum_compute.api import labels
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import CLUSTER_POLICY, DEPLOYMENT, NAMESPACE, POLICY
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import (
    HUB,
    encode_cluster_label,
    project_plane,
)
from datum_compute.client.client import Client
from datum_compute.controllers.federation.hub_namespaces import (
    NAMESPACE_CONTROLLER,
    POLICY_CONTROLLER,
)
from testkit.builders import a_deployment
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

PROJECT = project_plane("alpha")
IDENTITY = {
    labels.UPSTREAM_CLUSTER: encode_cluster_label("alpha"),
    labels.UPSTREAM_NAMESPACE: "default",
}


async def is_kept(hub: Client, name: str) -> bool:
    """Return False if the namespace is gone or terminating: no namespace controller runs."""
    try:
        return not (await hub.get(NAMESPACE, Ref("", name))).is_terminating
    except NotFound:
        return False


def test_a_hub_namespace_without_a_source_is_deleted_after_its_copies() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub, project = await planes.create(HUB), await planes.create(PROJECT)
        await project.create(NAMESPACE, a_namespace("default"))
        await hub.create(NAMESPACE, a_namespace("ns-gone", **IDENTITY))
        copy = as_new(
            a_deployment(finalizers=("example.com/held",)),
            namespace="ns-gone",
            annotations={labels.SOURCE_GENERATION: "1"},
        )
        await hub.create(DEPLOYMENT, copy)
        ref = Ref("ns-gone", copy.metadata.name)
        async with running(NAMESPACE_CONTROLLER, loop, planes, HUB, PROJECT):
            await asyncio.sleep(5)
            assert (await hub.get(DEPLOYMENT, ref)).is_terminating
            assert await is_kept(hub, "ns-gone")
            await hub.patch(DEPLOYMENT, ref, {"metadata": {"finalizers": None}})
            await asyncio.sleep(5)
            assert not await is_kept(hub, "ns-gone")

    with_planes(test)


def test_a_hub_namespace_stays_while_its_project_cannot_be_read() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> bool:
        hub = await planes.create(HUB)
        await hub.create(NAMESPACE, a_namespace("ns-gone", **IDENTITY))
        async with running(NAMESPACE_CONTROLLER, loop, planes, HUB):
            await asyncio.sleep(60)
        return await is_kept(hub, "ns-gone")

    assert with_planes(test)


def test_the_policies_of_a_hub_namespace_name_the_cities_of_its_deployments() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub = await planes.create(HUB)
        await hub.create(NAMESPACE, a_namespace("ns-u", **IDENTITY))
        for city in ("DFW", "LHR"):
            deployment = a_deployment(city=city, name=f"web-{city.lower()}", finalizers=())
            await hub.create(DEPLOYMENT, as_new(deployment, namespace="ns-u"))
        async with running(POLICY_CONTROLLER, loop, planes, HUB):
            await asyncio.sleep(5)
            policies = [policy.metadata.name for policy in (await hub.list(POLICY)).items]
            assert policies == ["city-dfw", "city-lhr"]
            await hub.get(CLUSTER_POLICY, Ref("", "ns-u"))
            await hub.delete(DEPLOYMENT, Ref("ns-u", "web-lhr"))
            await asyncio.sleep(5)
            policies = [policy.metadata.name for policy in (await hub.list(POLICY)).items]
            assert policies == ["city-dfw"]

    with_planes(test)
