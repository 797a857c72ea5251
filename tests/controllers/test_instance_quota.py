"""The claim and the size of an instance are found by its namespace and its instance type."""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.compute.instance import RuntimeResources
from datum_compute.api.kinds import INSTANCE_TYPE, NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import cell_plane, encode_cluster_label, project_plane
from datum_compute.controllers.instance_quota import map_claim, observe_claim_location, size_on
from datum_compute.planning.quota.claims import ClaimLocation, InstanceSize, new_claim
from datum_compute.runtime.controller import Key
from datum_compute.runtime.informer import ObjectChange
from testkit.builders import an_instance
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import a_context, a_synced_view, as_new
from tests.planning.platform.test_instance_types import a_type
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL, PROJECT = cell_plane("dfw"), project_plane("alpha")
LOCATION = ClaimLocation(PROJECT, "default", "alpha", "dfw")
IDENTITY = {
    labels.UPSTREAM_CLUSTER: encode_cluster_label("alpha"),
    labels.UPSTREAM_NAMESPACE: "default",
}


def test_the_claim_is_in_the_project_that_the_labels_of_the_namespace_name() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[ClaimLocation | None]:
        cell = await planes.create(CELL)
        await cell.create(NAMESPACE, a_namespace("ns-u", **IDENTITY))
        await cell.create(NAMESPACE, a_namespace("local"))
        context = a_context(loop, planes, await a_synced_view(loop, planes, CELL, NAMESPACE))
        keys = [Key(CELL, Ref(name, "web-dfw-0")) for name in ("ns-u", "local", "absent")]
        single = dataclasses.replace(context, single_project="solo")
        found = [observe_claim_location(context, key) for key in keys]
        return [*found, observe_claim_location(single, keys[1])]

    in_single_cluster = ClaimLocation(project_plane("solo"), "local", "solo", "dfw")
    assert with_planes(test) == [LOCATION, None, None, in_single_cluster]


def test_the_size_of_an_instance_is_that_of_its_type_on_its_plane() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[InstanceSize | None]:
        cell = await planes.create(CELL)
        await cell.create(INSTANCE_TYPE, as_new(a_type("custom")))
        context = a_context(loop, planes, await a_synced_view(loop, planes, CELL, INSTANCE_TYPE))
        sizes = []
        for name in ("datumcloud/custom", "datumcloud/absent"):
            runtime = replace(
                an_instance(0).spec.runtime, resources=RuntimeResources(instance_type=name)
            )
            instance = replace(an_instance(0), spec=replace(an_instance(0).spec, runtime=runtime))
            size = size_on(context, Key(CELL, Ref("default", "web-dfw-0")), instance)
            sizes.append(size)
        return sizes

    small, unknown = with_planes(test)
    assert small is not None
    assert unknown is None


def test_a_claim_maps_to_its_instance_and_a_claim_of_a_workload_to_none() -> None:
    claim = new_claim(LOCATION, an_instance(0), None)
    unused: Any = None
    (key,) = map_claim(unused, ObjectChange(None, claim))
    assert key == Key(CELL, Ref("default", "web-dfw-0"))
    other = replace(claim, metadata=replace(claim.metadata, name="workload-web", labels={}))
    assert list(map_claim(unused, ObjectChange(None, other))) == []
