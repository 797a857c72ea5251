"""The initial objects of the platform and of a project, and the release of a deleted project."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.kinds import (
    DEPLOYMENT,
    GRANT,
    IP_ALLOCATION,
    LOCATION,
    LOCATION_BINDING,
    NAMESPACE,
    NETWORK,
    REGISTRATION,
    SERVICE_CONFIGURATION,
)
from datum_compute.api.meta.fields import TypedObjectReference
from datum_compute.api.meta.objects import ApiObject, ObjectMeta, Ref
from datum_compute.api.networking.network import IPAllocation, IPAllocationSpec
from datum_compute.api.planes import HUB, PLATFORM, cell_plane, project_plane
from datum_compute.api.quota import DEFAULT_LIMITS, INSTANCES, METRICS
from datum_compute.planes.bootstrap import ensure_plane
from datum_compute.planes.catalogue import (
    cities_of,
    ensure_network,
    ensure_platform,
    ensure_project,
    platform_objects,
    project_objects,
    release_project,
)
from testkit.builders import NOW, a_deployment
from testkit.sim.loop import VirtualLoop
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

SHOP = project_plane("shop")
CELLS = [cell_plane("ord"), cell_plane("dfw")]
DFW = Ref("", "dfw")


def condition_of(obj: Any) -> tuple[str, str, str]:
    (condition,) = obj.status.conditions
    return condition.type, condition.status, condition.reason


# --- the platform


def test_each_city_is_listed_once_and_in_order() -> None:
    assert cities_of(CELLS) == ["DFW", "ORD"]
    assert cities_of([cell_plane("dfw"), cell_plane("dfw")]) == ["DFW"]


def test_the_platform_has_a_location_for_each_city_and_a_registration_for_each_metric() -> None:
    counts = Counter(kind.kind for kind, _ in platform_objects(CELLS))
    assert counts == {
        "Location": 2,
        "ResourceRegistration": len(METRICS),
        "Service": 1,
        "ServiceConfiguration": 1,
    }
    assert REGISTRATION.kind in counts


def test_the_configuration_of_the_service_has_the_configured_limits() -> None:
    objects: dict[str, Any] = {
        kind.kind: obj for kind, obj in platform_objects(CELLS, {INSTANCES.resource_type: 3})
    }
    limits = {
        limit.metric: limit.default_limit
        for limit in objects[SERVICE_CONFIGURATION.kind].spec.quota.limits
    }
    assert limits == {**DEFAULT_LIMITS, INSTANCES.resource_type: 3}


def test_a_location_is_ready_when_it_is_created_and_its_status_is_not_overwritten() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform = await planes.create(PLATFORM)
        await ensure_plane(platform, PLATFORM)
        await ensure_platform(platform, CELLS, NOW, DEFAULT_LIMITS)
        location = await platform.get(LOCATION, DFW)
        assert condition_of(location) == ("Ready", "True", "ServedByCell")
        drained = {"type": "Ready", "status": "False", "reason": "Drained"}
        drained["lastTransitionTime"] = NOW
        status = {"conditions": [drained]}
        version = location.metadata.resource_version
        await platform.patch_status(LOCATION, DFW, status, version=version)
        before = planes.store.version(PLATFORM)
        await ensure_platform(platform, CELLS, NOW, DEFAULT_LIMITS)
        assert planes.store.version(PLATFORM) == before
        assert condition_of(await platform.get(LOCATION, DFW)) == ("Ready", "False", "Drained")

    with_planes(test)


# --- a project


def test_a_project_has_a_network_a_grant_and_a_binding_for_each_city() -> None:
    objects = project_objects(SHOP, CELLS, {INSTANCES.resource_type: 3})
    assert [(kind.kind, obj.metadata.name) for kind, obj in objects] == [
        (NETWORK.kind, "default"),
        (LOCATION_BINDING.kind, "dfw"),
        (LOCATION_BINDING.kind, "ord"),
        (GRANT.kind, "compute-default"),
    ]
    grant: Any = objects[-1][1]
    (allowance,) = grant.spec.allowances
    assert (allowance.resource_type, allowance.buckets[0].amount) == (INSTANCES.resource_type, 3)
    assert grant.spec.consumer_ref.name == "shop"


def test_a_raised_grant_is_kept_and_a_removed_binding_returns() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await planes.create(SHOP)
        await ensure_plane(project, SHOP)
        await ensure_project(project, SHOP, CELLS, NOW)
        assert condition_of(await project.get(LOCATION_BINDING, DFW)) == (
            "Available",
            "True",
            "AllGatesOpen",
        )
        ref = Ref("milo-system", "compute-default")
        bucket = {"resourceType": INSTANCES.resource_type, "buckets": [{"amount": 500}]}
        raised = {"spec": {"allowances": [bucket]}}
        await project.patch(GRANT, ref, raised)
        await project.delete(LOCATION_BINDING, DFW)
        await ensure_project(project, SHOP, CELLS, NOW)
        (allowance,) = (await project.get(GRANT, ref)).spec.allowances
        assert allowance.buckets[0].amount == 500
        assert condition_of(await project.get(LOCATION_BINDING, DFW))[1] == "True"

    with_planes(test)


def test_the_default_network_is_created_with_the_finalizer_that_protects_its_prefix() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await planes.create(SHOP)
        await ensure_plane(project, SHOP)
        await ensure_network(project, lambda _kind, _ref: True)
        assert (await project.list(NETWORK)).items == []
        await ensure_network(project)
        (network,) = (await project.list(NETWORK)).items
        assert network.metadata.finalizers == [labels.NETWORK_FINALIZER]
        assert network.spec.ip_families == ["IPv4"]

    with_planes(test)


# --- a deleted project


def an_allocation(project: str) -> IPAllocation:
    return IPAllocation(
        metadata=ObjectMeta(name=f"of-{project}", labels={labels.HOLDER_PROJECT: project}),
        spec=IPAllocationSpec(
            cidr="10.128.0.0/20",
            pool="10.128.0.0/9",
            project=project,
            holder=TypedObjectReference(kind="Subnet", name="a"),
            holder_uid="uid",
        ),
    )


def test_only_what_belongs_to_the_deleted_project_is_marked_and_deleted() -> None:
    async def test(_loop: VirtualLoop, planes: InProcessPlanes) -> None:
        platform, hub = await planes.create(PLATFORM), await planes.create(HUB)
        for project in ("shop", "other"):
            identity = {labels.UPSTREAM_CLUSTER: f"cluster-{project}"}
            namespace = msgspec.structs.replace(
                a_namespace(f"ns-{project}"),
                metadata=ObjectMeta(name=f"ns-{project}", labels=identity),
            )
            await platform.create(IP_ALLOCATION, an_allocation(project))
            await hub.create(NAMESPACE, namespace)
            metadata = ObjectMeta(name="web-dfw", namespace=f"ns-{project}", labels=identity)
            await hub.create(DEPLOYMENT, msgspec.structs.replace(a_deployment(), metadata=metadata))
        for _ in range(2):
            await release_project(platform, hub, SHOP)
        observed: list[ApiObject] = [
            *(await platform.list(IP_ALLOCATION)).items,
            *(await hub.list(NAMESPACE)).items,
        ]
        marked = {
            obj.metadata.name
            for obj in observed
            if obj.metadata.labels.get(labels.PROJECT_REMOVED) == "true"
        }
        assert marked == {"of-shop", "ns-shop"}
        deployments = (await hub.list(DEPLOYMENT)).items
        assert [d.metadata.namespace for d in deployments] == ["ns-other"]

    with_planes(test)
