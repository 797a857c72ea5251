"""Sources are read with their versions, and their changes are mapped to what refers to them."""

from __future__ import annotations

from datum_compute.api.compute.referenced_data import Source, references
from datum_compute.api.core import ConfigMap
from datum_compute.api.errors import Forbidden
from datum_compute.api.http import Request, Response
from datum_compute.api.kinds import CONFIG_MAP, DEPLOYMENT, NAMESPACE, SECRET
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import project_plane
from datum_compute.client.client import Client
from datum_compute.controllers.referenced_data import (
    DEPLOYMENTS_BY_SOURCE,
    observe_sources,
    read_sources,
    source_edges,
    unreadable_kinds,
)
from datum_compute.runtime.controller import Key
from datum_compute.runtime.informer import ObjectChange
from testkit.sim.loop import VirtualLoop
from tests.controllers.federation.test_referenced_objects import a_deployment_with_settings
from tests.controllers.running_controllers import a_synced_view
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

PROJECT = project_plane("alpha")
SETTINGS = Source("ConfigMap", "settings")
WANTED = references(a_deployment_with_settings().spec.template)


def a_config_map(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data={"COLOR": "blue"})


async def a_project(planes: InProcessPlanes) -> Client:
    project = await planes.create(PROJECT)
    await project.create(NAMESPACE, a_namespace("default"))
    await project.create(CONFIG_MAP, a_config_map("settings"))
    await project.create(CONFIG_MAP, a_config_map("unrelated"))
    await project.create(DEPLOYMENT, a_deployment_with_settings())
    return project


def test_a_live_read_returns_an_edit_that_the_cache_has_not_received() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        project = await a_project(planes)
        view = await a_synced_view(loop, planes, PROJECT, CONFIG_MAP, SECRET)

        cached = observe_sources(view, "default", WANTED)
        assert list(cached.present) == [SETTINGS]
        await project.patch(CONFIG_MAP, Ref("default", "settings"), {"data": {"COLOR": "green"}})
        live = await read_sources(view, "default", WANTED)
        assert live.present[SETTINGS].data == {"COLOR": "green"}
        assert cached.present[SETTINGS].data == {"COLOR": "blue"}

    with_planes(test)


def test_a_source_that_may_not_be_read_is_denied_and_not_missing() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> None:
        await a_project(planes)
        view = await a_synced_view(loop, planes, PROJECT, SECRET)

        async def refuse(request: Request) -> Response | None:
            raise Forbidden("config maps are not for this process")

        planes.intercept = refuse
        found = await read_sources(view, "default", WANTED)
        assert not found.present
        assert found.denied == {SETTINGS}
        assert unreadable_kinds(view, WANTED) == ["configmaps"]

    with_planes(test)


def test_a_source_maps_to_the_deployments_that_refer_to_it() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> list[list[Key]]:
        await a_project(planes)
        indexes = (DEPLOYMENTS_BY_SOURCE,)
        view = await a_synced_view(loop, planes, PROJECT, DEPLOYMENT, indexes=indexes)
        (edge,) = [e for e in source_edges(DEPLOYMENTS_BY_SOURCE) if e.kind is CONFIG_MAP]
        assert edge.to_keys is not None
        changes = [ObjectChange(None, a_config_map(name)) for name in ("settings", "unrelated")]
        return [list(edge.to_keys(view, change)) for change in changes]

    assert with_planes(test) == [[Key(PROJECT, Ref("default", "web-dfw"))], []]
