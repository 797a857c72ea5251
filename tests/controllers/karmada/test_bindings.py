"""Objects of the hub are bound to the clusters that their policies select."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.core import ConfigMap
from datum_compute.api.http import Request, Response
from datum_compute.api.karmada import ResourceBinding, ResourceSelector
from datum_compute.api.kinds import BINDING, CLUSTER, CONFIG_MAP, DEPLOYMENT, NAMESPACE, POLICY
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.planes import HUB
from datum_compute.client.client import Client
from datum_compute.controllers.karmada.bindings import CONTROLLERS
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.planning.karmada.propagated import a_cluster, a_template, city_policies
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes


async def a_hub(planes: InProcessPlanes) -> Client:
    """Return a client of a hub with a deployment and the policy of its city, and no cluster."""
    hub = await planes.create(HUB)
    await hub.create(NAMESPACE, a_namespace("ns-u"))
    await hub.create(DEPLOYMENT, as_new(a_template("DFW")))
    (policy,) = city_policies(a_template("DFW"))
    await hub.create(POLICY, as_new(policy))
    return hub


async def targets(hub: Client) -> list[str]:
    (binding,) = (await hub.list(BINDING)).items
    assert isinstance(binding, ResourceBinding)
    return [cluster.name for cluster in binding.spec.clusters]


def test_a_binding_that_was_edited_or_deleted_is_restored() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        hub = await a_hub(planes)
        await hub.create(CLUSTER, a_cluster("dfw", "DFW"))
        ref = Ref("ns-u", "web-dfw-workloaddeployment")
        async with running(CONTROLLERS, loop, planes, HUB):
            await asyncio.sleep(5)
            await hub.patch(BINDING, ref, {"spec": {"clusters": [{"name": "elsewhere"}]}})
            await asyncio.sleep(5)
            assert await targets(hub) == ["dfw"]
            await hub.patch(BINDING, ref, {"metadata": {"finalizers": None}})
            await hub.delete(BINDING, ref)
            await asyncio.sleep(5)
            assert await targets(hub) == ["dfw"]

    with_planes(test)


def test_only_marked_config_maps_are_bound() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[str]:
        hub = await planes.create(HUB)
        await hub.create(NAMESPACE, a_namespace("ns-u"))
        (policy,) = city_policies(a_template("DFW"))
        selector = ResourceSelector(api_version="v1", kind="ConfigMap")
        spec = replace(policy.spec, resource_selectors=[selector])
        await hub.create(POLICY, as_new(replace(policy, spec=spec)))
        for name, marks in (("marked", {labels.REFERENCED_DATA: "true"}), ("other", {})):
            metadata = ObjectMeta(name=name, namespace="ns-u", labels=marks)
            await hub.create(CONFIG_MAP, ConfigMap(metadata=metadata))
        async with running(CONTROLLERS, loop, planes, HUB):
            await asyncio.sleep(5)
            await hub.create(CLUSTER, a_cluster("dfw", "DFW"))
            await asyncio.sleep(5)
        return [binding.spec.resource.name for binding in (await hub.list(BINDING)).items]

    assert with_planes(test) == ["marked"]


def test_an_object_that_only_a_stale_cache_has_is_not_bound() -> None:
    """The watch of deployments sends no events, so the cache does not see the deletion."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[ResourceBinding]:
        hub = await a_hub(planes)

        async def silence_deployments(request: Request) -> Response | None:
            if request.query.get("watch") and request.path.endswith(DEPLOYMENT.plural):
                await asyncio.Event().wait()
            return None

        policy = (await hub.list(POLICY)).items[0]
        await hub.delete(POLICY, ref_of(policy))
        planes.intercept = silence_deployments
        async with running(CONTROLLERS, loop, planes, HUB):
            await asyncio.sleep(5)
            await hub.delete(DEPLOYMENT, Ref("ns-u", "web-dfw"))
            await hub.create(POLICY, as_new(policy))
            await asyncio.sleep(5)
            return (await hub.list(BINDING)).items

    assert with_planes(test) == []
