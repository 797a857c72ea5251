"""Image checks: pull secrets, cells, and invalid requests."""

from __future__ import annotations

import base64

import pytest

from datum_compute.api.errors import (
    BadRequest,
    Forbidden,
    MethodNotAllowed,
    NotFound,
)
from datum_compute.api.gateway import (
    GatewayReason,
    images_path,
)
from datum_compute.api.planes import path_prefix
from datum_compute.gateway.cells import RemoteCell
from testkit.api_server.running_server import PROJECT
from tests.gateway.gateway_world import (
    DFW,
    EVE,
    FakeCell,
    GatewayWorld,
    build_world,
    reasons_of,
    run_in_world,
)


def test_an_image_check_uses_the_pull_secrets_of_the_project() -> None:
    async def scenario(world: GatewayWorld) -> None:
        config = base64.b64encode(b'{"auths": {}}').decode()
        secret = {
            "metadata": {"name": "pull"},
            "type": "kubernetes.io/dockerconfigjson",
            "data": {".dockerconfigjson": config},
        }
        await world.server.json("POST", f"{PROJECT}/api/v1/namespaces/default/secrets", secret)
        question = {"image": "x.example/web:1", "policy": "Always", "secrets": '["pull", "none"]'}
        found = await world.client().get_raw(images_path("default"), question)
        assert (found["outcome"], found["words"]) == ("found", "x.example/web:1 Always")
        assert world.cell.configs == (b'{"auths": {}}',)
        cell = FakeCell(())
        other = build_world(world.server, {DFW: cell}, cell)
        world.endpoints.add(DFW, RemoteCell("dfw", other.client(prefix=path_prefix(DFW))))
        found = await world.client().get_raw(images_path("default"), {**question, "city": "DFW"})
        assert found["outcome"] == "found"
        assert cell.configs == (b'{"auths": {}}',)
        with pytest.raises(Forbidden, match='cannot create resource "workloads"'):
            await world.client(EVE).get_raw(images_path("default"), question)
        of_simulated_city = {**question, "city": "SIMULATED"}
        with pytest.raises(NotFound) as simulated:
            await world.client().get_raw(images_path("default"), of_simulated_city)
        assert reasons_of(simulated.value) == [GatewayReason.INSTANCES_SIMULATED]

    run_in_world(scenario)


@pytest.mark.parametrize(
    "query",
    [{}, {"image": ""}, {"image": "a", "secrets": "no"}, {"image": "a", "secrets": '["s"]' * 2}],
)
def test_an_invalid_image_check_is_refused(query: dict[str, str]) -> None:
    async def scenario(world: GatewayWorld) -> None:
        with pytest.raises(BadRequest):
            await world.client().get_raw(images_path("default"), query)
        with pytest.raises(MethodNotAllowed):
            await world.client().post_raw(images_path("default"), {"image": "a"})
        cell = world.client(prefix=path_prefix(DFW))
        with pytest.raises(BadRequest):
            await cell.post_raw(images_path("default"), {"image": "a", "configs": ["%"] * 21})

    run_in_world(scenario)


@pytest.mark.parametrize("image", ["../containers", "a\0b", "a b", "/a", "a/../b", "web:1:2", ""])
def test_an_invalid_image_name_is_refused(image: str) -> None:
    async def scenario(world: GatewayWorld) -> None:
        with pytest.raises(BadRequest, match="image must be the name of an image"):
            await world.client().get_raw(images_path("default"), {"image": image})

    run_in_world(scenario)
