"""Garbage collection deletes objects of every kind, but permits no changes of roles."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest

from datum_compute.api.core import Namespace
from datum_compute.api.errors import Forbidden, NotFound
from datum_compute.api.http import MERGE_PATCH
from datum_compute.api.kinds import (
    CLUSTER_ROLE,
    CLUSTER_ROLE_BINDING,
    CONFIG_MAP,
    DEFINITION,
    NAMESPACE,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE_ACCOUNT,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import PLATFORM
from datum_compute.client.client import Client
from datum_compute.server.access.audit import AuditEvent
from datum_compute.server.access.authentication import User
from datum_compute.server.inventory import COLLECTOR
from testkit.api_server.definitions import definition
from testkit.api_server.granting import DEFAULT, RBAC, role, rule
from testkit.api_server.running_server import running_server
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.app.test_manager_role import SETTLE_S, WIDGET, a_platform

# Each kind is an owner once and a dependent once.
NAMESPACED = (ROLE, ROLE_BINDING, SERVICE_ACCOUNT, CONFIG_MAP, SECRET, WIDGET)
WHOLE_PLANE = (CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
EVERY = (*NAMESPACED, *WHOLE_PLANE)
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
ROLE_GROUP = "rbac.authorization.k8s.io"
COLON = "of:{}"  # only roles and bindings may have such a name


@dataclass
class Story:
    admin: Client
    manager: Client
    events: list[AuditEvent]

    async def create(self, kind: KindInfo[Any], name: str, *owners: JsonObject) -> JsonObject:
        return await self.admin.create_plain(kind, an_object(kind, name, list(owners)))

    async def get(self, kind: KindInfo[Any], name: str) -> JsonObject | None:
        try:
            return await self.admin.get_plain(kind, ref(kind, name))
        except NotFound:
            return None

    async def delete(self, kind: KindInfo[Any], name: str, policy: str) -> None:
        await self.admin.delete(kind, ref(kind, name), policy=policy)
        await asyncio.sleep(SETTLE_S)


def ref(kind: KindInfo[Any], name: str) -> Ref:
    return Ref("default" if kind.namespaced else "", name)


def an_object(kind: KindInfo[Any], name: str, owners: list[JsonObject]) -> JsonObject:
    metadata: JsonObject = {"name": name, "ownerReferences": owners}
    if kind.namespaced:
        metadata["namespace"] = "default"
    obj: JsonObject = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}
    if kind in (ROLE, CLUSTER_ROLE):
        obj["rules"] = RULES
    if kind in (ROLE_BINDING, CLUSTER_ROLE_BINDING):
        obj["roleRef"] = {"apiGroup": ROLE_GROUP, "kind": "ClusterRole", "name": "project-viewer"}
        obj["subjects"] = [{"apiGroup": ROLE_GROUP, "kind": "User", "name": "ann"}]
    return obj


def owner_reference(obj: JsonObject) -> JsonObject:
    metadata = obj["metadata"]
    names = {"name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": True}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **names}


def run_on_platform_plane(story: Callable[[Story], Coroutine[Any, Any, None]]) -> None:
    """Run a story on a platform plane with a custom kind and controllers with the role manager."""
    events: list[AuditEvent] = []

    async def main(loop: VirtualLoop) -> None:
        platform = a_platform(loop, events)
        await platform.load()
        running = loop.create_task(platform.run())
        await platform.ready.wait()
        admin = platform.client(PLATFORM, f"token-of-{PLATFORM}")
        await admin.create_plain(DEFINITION, definition())
        await asyncio.sleep(SETTLE_S)
        await story(Story(admin, platform.client(PLATFORM, "manager"), events))
        running.cancel()

    run_virtual(Random(1), main)


def rejected_requests(events: list[AuditEvent]) -> list[AuditEvent]:
    return [event for event in events if event.code in (401, 403)]


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_deleting_an_owner_deletes_dependents_of_every_kind(policy: str) -> None:
    async def story(here: Story) -> None:
        for kind in EVERY:
            owner = await here.create(kind, "owner")
            dependents = EVERY if kind in WHOLE_PLANE else NAMESPACED
            for dependent in dependents:
                await here.create(dependent, "child", owner_reference(owner))
            await here.delete(kind, "owner", policy)
            left = [d.kind for d in dependents if await here.get(d, "child")]
            assert (await here.get(kind, "owner"), left) == (None, []), kind.kind
        assert rejected_requests(here.events) == []

    run_on_platform_plane(story)


def test_orphans_of_every_kind_change_only_their_owner_references() -> None:
    async def story(here: Story) -> None:
        for kind in EVERY:
            owner = await here.create(kind, "owner")
            dependents = EVERY if kind in WHOLE_PLANE else NAMESPACED
            before = {
                d.kind: await here.create(d, "child", owner_reference(owner)) for d in dependents
            }
            await here.delete(kind, "owner", "Orphan")
            assert await here.get(kind, "owner") is None, kind.kind
            for dependent in dependents:
                child = await here.get(dependent, "child")
                assert child is not None, (kind.kind, dependent.kind)
                assert "ownerReferences" not in child["metadata"], (kind.kind, dependent.kind)
                rest = {k: v for k, v in before[dependent.kind].items() if k != "metadata"}
                assert {k: v for k, v in child.items() if k != "metadata"} == rest
                await here.admin.delete(dependent, ref(dependent, "child"))
        assert rejected_requests(here.events) == []

    run_on_platform_plane(story)


def test_a_role_whose_name_has_a_colon_is_collected() -> None:
    async def story(here: Story) -> None:
        owner = await here.create(ROLE, COLON.format("owner"))
        for kind in (ROLE, ROLE_BINDING):
            await here.create(kind, COLON.format("child"), owner_reference(owner))
        await here.delete(ROLE, COLON.format("owner"), "Foreground")
        for kind in (ROLE, ROLE_BINDING):
            assert await here.get(kind, COLON.format("child")) is None

    run_on_platform_plane(story)


def test_deleting_a_namespace_deletes_its_roles() -> None:
    async def story(here: Story) -> None:
        await here.admin.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="team")))
        for kind in (ROLE, ROLE_BINDING):
            obj = an_object(kind, COLON.format("child"), [])
            obj["metadata"]["namespace"] = "team"
            await here.admin.create_plain(kind, obj)
        await here.delete(NAMESPACE, "team", "Background")
        assert await here.get(NAMESPACE, "team") is None

    run_on_platform_plane(story)


@pytest.mark.parametrize("kind", [ROLE, ROLE_BINDING, *WHOLE_PLANE], ids=lambda kind: kind.kind)
def test_the_token_of_the_controllers_cannot_change_roles(kind: KindInfo[Any]) -> None:
    async def story(here: Story) -> None:
        await here.create(kind, "kept")
        patches: list[JsonObject] = [{"rules": []}, {"metadata": {"ownerReferences": None}}]
        for patch in patches:
            with pytest.raises(Forbidden):
                await here.manager.patch(kind, ref(kind, "kept"), patch)
        with pytest.raises(Forbidden):
            await here.manager.create_plain(kind, an_object(kind, "new", []))

    run_on_platform_plane(story)


def test_the_audit_log_names_the_collector_that_removed_an_owner() -> None:
    async def story(here: Story) -> None:
        owner = await here.create(ROLE, "owner")
        await here.create(ROLE_BINDING, "child", owner_reference(owner))
        await here.delete(ROLE, "owner", "Orphan")
        patched = [e for e in here.events if e.verb == "patch" and e.resource == "rolebindings"]
        assert [(e.user, e.name) for e in patched] == [("system:garbage-collector", "child")]

    run_on_platform_plane(story)


async def test_the_user_name_of_the_collector_grants_no_permission() -> None:
    users = {"same-name": User(COLLECTOR.name, (), frozenset({"*"}))}
    async with running_server(users=users) as server:
        await server.json("POST", f"{RBAC}{DEFAULT}/roles", role("kept", rule("get", "workloads")))
        headers = {"content-type": MERGE_PATCH}
        patch = {"metadata": {"ownerReferences": None}}
        path = f"{RBAC}{DEFAULT}/roles/kept"
        status = await server.status("PATCH", path, patch, token="same-name", headers=headers)
    assert status["reason"] == "Forbidden"
