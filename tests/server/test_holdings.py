"""Who follows what a plane holds hears of what they want, and of nothing else."""

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
async def held(server: InProcessServer) -> None:
    """An object without ties, one with an owner, one that waits for its finalizer."""
    plain = await server.json("POST", MAPS, config_map("plain"))
    owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "plain"}
    owner["uid"] = plain["metadata"]["uid"]
    await server.json("POST", MAPS, config_map("owned", ownerReferences=[owner]))
    await server.json("POST", MAPS, config_map("ending", finalizers=["example.com/wait"]))
    await server.json("DELETE", f"{MAPS}/ending")


@pytest.mark.usefixtures("held")
@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (ChangeFilter(resources=("configmaps",)), ["ending", "owned", "plain"]),
        (ChangeFilter(resources=("secrets",)), []),
        (ChangeFilter(ownership=True), ["ending", "owned"]),
        (ChangeFilter(gone=True), []),
    ],
)
async def test_what_is_there_is_told_to_those_who_want_it(
    server: InProcessServer, wanted: ChangeFilter, names: list[str]
) -> None:
    with closing(server.api.inventory(PLANE).changes(wanted)) as changes:
        await server.json("POST", MAPS, config_map("last"))
        await server.json("DELETE", f"{MAPS}/last")
        if not wanted.gone:
            assert [change.ref.name for change in await taken(changes, len(names))] == names
            return
        (change,) = await taken(changes, 1)
        assert (change.ref.name, change.gone) == ("last", True)


@pytest.mark.usefixtures("held")
async def test_a_change_of_owners_and_a_beginning_end_are_ties(server: InProcessServer) -> None:
    with closing(server.api.inventory(PLANE).changes(ChangeFilter(ownership=True))) as changes:
        await taken(changes, 2)
        await server.merge(f"{MAPS}/owned", {"metadata": {"labels": {"a": "b"}}})
        await server.merge(f"{MAPS}/owned", {"metadata": {"finalizers": ["example.com/wait"]}})
        await server.json("DELETE", f"{MAPS}/owned")
        (change,) = await taken(changes, 1)
        assert (change.ref.name, change.deletion_started, change.gone) == ("owned", True, False)


def config_map(name: str, **metadata: object) -> dict[str, object]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}}


async def taken(changes: Changes, count: int) -> list[CommittedChange]:
    async with asyncio.timeout(ENOUGH_S):
        source = aiter(changes)
        return [await anext(source) for _ in range(count)]
