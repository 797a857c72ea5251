"""A follower of the inventory of a plane receives changes of the selected objects only."""

from __future__ import annotations

import asyncio
from contextlib import closing

import pytest

from datum_compute.api.inventory import ChangeFilter, Changes, CommittedChange
from datum_compute.api.planes import PlaneName
from testkit.api_server.running_server import ENOUGH_S, PROJECT, InProcessServer

MAPS = f"{PROJECT}/api/v1/namespaces/default/configmaps"
PLANE = PlaneName("project/demo")


@pytest.fixture
async def server_with_objects(server: InProcessServer) -> None:
    """Three objects: without owner and finalizer, with an owner, and terminating."""
    plain = await server.json("POST", MAPS, config_map("plain"))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "plain"}
    owner["uid"] = plain["metadata"]["uid"]
    await server.json("POST", MAPS, config_map("owned", ownerReferences=[owner]))
    await server.json("POST", MAPS, config_map("ending", finalizers=["example.com/wait"]))
    await server.json("DELETE", f"{MAPS}/ending")


@pytest.mark.usefixtures("server_with_objects")
@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (ChangeFilter(resources=("configmaps",)), ["ending", "owned", "plain"]),
        (ChangeFilter(resources=("secrets",)), []),
        (ChangeFilter(ownership=True), ["ending", "owned"]),
        (ChangeFilter(gone=True), []),
    ],
)
async def test_a_follower_receives_the_selected_existing_objects(
    server: InProcessServer, wanted: ChangeFilter, names: list[str]
) -> None:
    with closing(server.api.inventory(PLANE).changes(wanted)) as changes:
        await server.json("POST", MAPS, config_map("last"))
        await server.json("DELETE", f"{MAPS}/last")
        if not wanted.gone:
            assert [
                change.ref.name for change in await collect_changes(changes, len(names))
            ] == names
            return
        (change,) = await collect_changes(changes, 1)
        assert (change.ref.name, change.gone) == ("last", True)


@pytest.mark.usefixtures("server_with_objects")
async def test_changed_owners_and_deletions_are_received(server: InProcessServer) -> None:
    with closing(server.api.inventory(PLANE).changes(ChangeFilter(ownership=True))) as changes:
        await collect_changes(changes, 2)
        await server.merge(f"{MAPS}/owned", {"metadata": {"labels": {"a": "b"}}})
        await server.merge(f"{MAPS}/owned", {"metadata": {"finalizers": ["example.com/wait"]}})
        await server.json("DELETE", f"{MAPS}/owned")
        (change,) = await collect_changes(changes, 1)
        assert (change.ref.name, change.deletion_started, change.gone) == ("owned", True, False)


def config_map(name: str, **metadata: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


async def collect_changes(changes: Changes, count: int) -> list[CommittedChange]:
    async with asyncio.timeout(ENOUGH_S):
        source = aiter(changes)
        return [await anext(source) for _ in range(count)]
