"""A Server is mapped to its Instance after any edit, and a lost machine is noticed.

An Instance stays Available for at most AVAILABLE_S after its machine is gone.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from datum_compute.api import labels
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.server import Server
from datum_compute.api.conditions import find_condition
from datum_compute.api.kinds import EVENT, INSTANCE, SERVER
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ref_of
from datum_compute.app.platform import EVERYTHING
from datum_compute.controllers.context import Context
from datum_compute.planning.rollout.server import instance_tag
from datum_compute.planning.rollout.slots import is_ready
from datum_compute.runtime.controller import Controller, reads
from testkit.sim.provider import Provider
from tests.journeys.platform import CELL, Platform, on_platform

AVAILABLE_S = 5.0

NO_TAG: JsonObject = {"spec": {"tags": None}}
NO_EVIDENCE: JsonObject = {
    "metadata": {"labels": {labels.INSTANCE_UID: None}, "ownerReferences": None},
    "spec": {"tags": None},
}
RELEASED: JsonObject = {"metadata": {"finalizers": None}}


def _provider(platform: Platform) -> Provider:
    return platform.host.providers[CELL]


def _is_available(instance: Instance) -> bool:
    found = find_condition(instance.status.conditions, "Available")
    return found is not None and found.status == "True"


async def _only_server(platform: Platform) -> Server:
    (server,) = await platform.servers()
    return server


async def _edit(platform: Platform, server: Server, patch: JsonObject) -> None:
    await platform.host.operator(CELL).patch(SERVER, ref_of(server), patch)


async def _restored_tags(platform: Platform, patch: JsonObject) -> tuple[bool, bool, bool]:
    """Edit the only Server and return whether its tag, its labels and its owner are restored."""
    await platform.deploy()
    await platform.until_ready("web:1")
    before = await _only_server(platform)
    await _edit(platform, before, patch)
    await asyncio.sleep(AVAILABLE_S)
    after = await _only_server(platform)
    assert after.metadata.uid == before.metadata.uid, "the machine is kept"
    assert [is_ready(i) for i in await platform.instances()] == [True]
    return (
        after.spec.tags == before.spec.tags,
        after.metadata.labels == before.metadata.labels,
        after.metadata.owner_references == before.metadata.owner_references,
    )


@pytest.mark.parametrize("edit", [NO_TAG, NO_EVIDENCE], ids=["tag", "all references"])
def test_removed_references_of_a_server_are_restored(edit: JsonObject) -> None:
    assert on_platform(lambda p: _restored_tags(p, edit)) == (True, True, True)


def test_a_tag_edited_to_another_instance_is_restored_without_an_outage() -> None:
    async def story(platform: Platform) -> list[str]:
        await platform.deploy(replicas=2)
        await platform.until_ready("web:1", 2)
        first, second = await platform.instances()
        servers = {s.metadata.name: s for s in await platform.servers()}
        server = servers[first.metadata.name]
        hijack: JsonObject = {"spec": {"tags": {labels.INSTANCE_TAG: instance_tag(second)}}}
        await _edit(platform, server, hijack)
        await asyncio.sleep(AVAILABLE_S)
        after = {s.metadata.name: s for s in await platform.servers()}
        assert {n: s.spec.tags for n, s in after.items()} == {
            n: s.spec.tags for n, s in servers.items()
        }
        assert {n: s.metadata.uid for n, s in after.items()} == {
            n: s.metadata.uid for n, s in servers.items()
        }
        assert all(is_ready(i) for i in await platform.instances())
        events = (await platform.cell.list_plain(EVENT)).items
        return [e["involvedObject"]["name"] for e in events if e["reason"] == "AmbiguousOwner"]

    names = on_platform(story)
    assert names
    assert len(set(names)) == 1


async def _replaced(platform: Platform, edit: JsonObject) -> bool:
    """Edit and delete the only Server at once; return whether it is replaced in time."""
    await platform.deploy()
    await platform.until_ready("web:1")
    server = await _only_server(platform)
    await _edit(platform, server, edit)
    await platform.host.operator(CELL).delete(SERVER, ref_of(server))
    await asyncio.sleep(AVAILABLE_S)
    found = await platform.servers()
    return bool(found) and server.metadata.uid not in [s.metadata.uid for s in found]


@pytest.mark.parametrize(
    "edit", [NO_TAG, NO_EVIDENCE, RELEASED], ids=["tag", "all references", "finalizer"]
)
def test_a_deleted_server_is_replaced_after_a_part_of_it_was_removed(edit: JsonObject) -> None:
    assert on_platform(lambda p: _replaced(p, edit))


def _without_server_events(controller: Controller[Context]) -> Controller[Context]:
    """Return the provisioner without the events of Servers."""
    if controller.name != "provisioner":
        return controller
    edges = tuple(reads(SERVER) if edge.kind is SERVER else edge for edge in controller.edges)
    return replace(controller, edges=edges)


def test_an_instance_whose_server_is_gone_is_found_without_an_event() -> None:
    async def story(platform: Platform) -> bool:
        await platform.deploy()

        async def has_server() -> bool:
            return bool(await platform.servers())

        await platform.until(has_server, "a server")
        (instance,) = await platform.instances()
        good = {"type": "Available", "status": "True", "reason": "Available", "message": ""}
        good["lastTransitionTime"] = instance.metadata.creation_timestamp or ""
        await platform.host.operator(CELL).patch_status(
            INSTANCE, ref_of(instance), {"conditions": [good]}, version=""
        )
        server = await _only_server(platform)
        await _edit(platform, server, RELEASED)
        await platform.host.operator(CELL).delete(SERVER, ref_of(server))
        await asyncio.sleep(AVAILABLE_S)
        (instance,) = await platform.instances()
        return _is_available(instance)

    controllers = tuple(_without_server_events(c) for c in EVERYTHING)
    assert not on_platform(story, controllers=controllers)


def test_an_instance_is_not_available_while_its_server_is_being_removed() -> None:
    """The machine may stop at any moment, and its end cannot be predicted."""

    async def story(platform: Platform) -> tuple[bool, str]:
        await platform.deploy()
        await platform.until_ready("web:1")
        _provider(platform).stop_s = 60.0
        _provider(platform).remove_s = 60.0
        await platform.cell.delete(SERVER, ref_of(await _only_server(platform)))
        await asyncio.sleep(AVAILABLE_S)
        (instance,) = await platform.instances()
        found = find_condition(instance.status.conditions, "Available")
        assert found is not None
        return is_ready(instance), f"{found.status}/{found.reason}"

    assert on_platform(story) == (False, "False/Stopping")


def test_an_instance_whose_machine_is_gone_without_an_event_is_not_available_for_long() -> None:
    async def story(platform: Platform) -> bool:
        await platform.deploy()
        await platform.until_ready("web:1")
        provider = _provider(platform)
        provider.machines.clear()
        provider.lie = "never-there"  # the machine stays lost, and observations report it as absent
        await asyncio.sleep(AVAILABLE_S)
        (instance,) = await platform.instances()
        return _is_available(instance)

    assert not on_platform(story)


def test_a_lost_machine_is_reported_before_the_next_one_is_started() -> None:
    """Another machine of the name must be removed first, which takes a while."""

    async def story(platform: Platform) -> bool:
        await platform.deploy()
        await platform.until_ready("web:1")
        provider = _provider(platform)
        ((machine_id, machine),) = provider.machines.items()
        provider.remove_s = 40.0
        provider.machines[f"{machine_id}-twin"] = machine
        del provider.machines[machine_id]
        await asyncio.sleep(AVAILABLE_S)
        (instance,) = await platform.instances()
        return _is_available(instance)

    assert not on_platform(story)


def test_checking_for_machines_writes_nothing_while_nothing_changes() -> None:
    async def story(platform: Platform) -> int:
        await platform.deploy(replicas=3)
        await platform.until_ready("web:1", 3)
        await asyncio.sleep(60)
        before = [c for c in platform.writes if c.plane == CELL]
        await asyncio.sleep(1200)
        kinds = (INSTANCE.resource, SERVER.resource)
        after = [c for c in platform.writes if c.plane == CELL][len(before) :]
        return len([c for c in after if c.key.resource in kinds])

    assert on_platform(story) == 0
