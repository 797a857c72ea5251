"""Garbage collection reaches every kind, roles and bindings among them, and gives nobody the right
to change those."""

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

# No definition comes with the kinds of one test; each kind is an owner once and a dependent once.
NAMESPACED = (ROLE, ROLE_BINDING, SERVICE_ACCOUNT, CONFIG_MAP, SECRET, WIDGET)
WHOLE_PLANE = (CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
EVERY = (*NAMESPACED, *WHOLE_PLANE)
RULES = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]
ROLE_GROUP = "rbac.authorization.k8s.io"
COLON = "of:{}"  # a name that only roles and bindings may have


@dataclass
class Story:
    admin: Client
    manager: Client
    events: list[AuditEvent]

    async def made(self, kind: KindInfo[Any], name: str, *owners: JsonObject) -> JsonObject:
        return await self.admin.create_plain(kind, an_object(kind, name, list(owners)))

    async def found(self, kind: KindInfo[Any], name: str) -> JsonObject | None:
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


def owner_of(obj: JsonObject) -> JsonObject:
    metadata = obj["metadata"]
    names = {"name": metadata["name"], "uid": metadata["uid"], "blockOwnerDeletion": True}
    return {"apiVersion": obj["apiVersion"], "kind": obj["kind"], **names}


def told(story: Callable[[Story], Coroutine[Any, Any, None]]) -> None:
    """On the platform plane, with a kind that users defined, and controllers that are nothing
    but ``manager``; nothing they try may be refused."""
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


def refused(events: list[AuditEvent]) -> list[AuditEvent]:
    return [event for event in events if event.code in (401, 403)]


@pytest.mark.parametrize("policy", ["Background", "Foreground"])
def test_every_kind_takes_its_dependents_of_every_kind_along(policy: str) -> None:
    async def story(here: Story) -> None:
        for kind in EVERY:
            owner = await here.made(kind, "owner")
            dependents = EVERY if kind in WHOLE_PLANE else NAMESPACED
            for dependent in dependents:
                await here.made(dependent, "child", owner_of(owner))
            await here.delete(kind, "owner", policy)
            left = [d.kind for d in dependents if await here.found(d, "child")]
            assert (await here.found(kind, "owner"), left) == (None, []), kind.kind
        assert refused(here.events) == []

    told(story)


def test_orphans_of_every_kind_stay_as_they_were_but_for_their_owner() -> None:
    async def story(here: Story) -> None:
        for kind in EVERY:
            owner = await here.made(kind, "owner")
            dependents = EVERY if kind in WHOLE_PLANE else NAMESPACED
            before = {d.kind: await here.made(d, "child", owner_of(owner)) for d in dependents}
            await here.delete(kind, "owner", "Orphan")
            assert await here.found(kind, "owner") is None, kind.kind
            for dependent in dependents:
                child = await here.found(dependent, "child")
                assert child is not None, (kind.kind, dependent.kind)
                assert "ownerReferences" not in child["metadata"], (kind.kind, dependent.kind)
                rest = {k: v for k, v in before[dependent.kind].items() if k != "metadata"}
                assert {k: v for k, v in child.items() if k != "metadata"} == rest
                await here.admin.delete(dependent, ref(dependent, "child"))
        assert refused(here.events) == []

    told(story)


def test_a_role_whose_name_has_a_colon_is_collected_like_any_other() -> None:
    async def story(here: Story) -> None:
        owner = await here.made(ROLE, COLON.format("owner"))
        for kind in (ROLE, ROLE_BINDING):
            await here.made(kind, COLON.format("child"), owner_of(owner))
        await here.delete(ROLE, COLON.format("owner"), "Foreground")
        for kind in (ROLE, ROLE_BINDING):
            assert await here.found(kind, COLON.format("child")) is None

    told(story)


def test_a_namespace_with_roles_in_it_is_emptied() -> None:
    async def story(here: Story) -> None:
        await here.admin.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="team")))
        for kind in (ROLE, ROLE_BINDING):
            obj = an_object(kind, COLON.format("child"), [])
            obj["metadata"]["namespace"] = "team"
            await here.admin.create_plain(kind, obj)
        await here.delete(NAMESPACE, "team", "Background")
        assert await here.found(NAMESPACE, "team") is None

    told(story)


@pytest.mark.parametrize("kind", [ROLE, ROLE_BINDING, *WHOLE_PLANE], ids=lambda kind: kind.kind)
def test_the_token_of_the_controllers_changes_no_role(kind: KindInfo[Any]) -> None:
    async def story(here: Story) -> None:
        await here.made(kind, "kept")
        patches: list[JsonObject] = [{"rules": []}, {"metadata": {"ownerReferences": None}}]
        for patch in patches:
            with pytest.raises(Forbidden):
                await here.manager.patch(kind, ref(kind, "kept"), patch)
        with pytest.raises(Forbidden):
            await here.manager.create_plain(kind, an_object(kind, "new", []))

    told(story)


def test_who_took_an_owner_away_is_in_the_audit_log() -> None:
    async def story(here: Story) -> None:
        owner = await here.made(ROLE, "owner")
        await here.made(ROLE_BINDING, "child", owner_of(owner))
        await here.delete(ROLE, "owner", "Orphan")
        patched = [e for e in here.events if e.verb == "patch" and e.resource == "rolebindings"]
        assert [(e.user, e.name) for e in patched] == [("system:garbage-collector", "child")]

    told(story)


async def test_the_name_of_the_collector_alone_gives_no_right() -> None:
    users = {"stranger": User(COLLECTOR.name, (), frozenset({"*"}))}
    async with running_server(users=users) as server:
        await server.json("POST", f"{RBAC}{DEFAULT}/roles", role("kept", rule("get", "workloads")))
        headers = {"content-type": MERGE_PATCH}
        patch = {"metadata": {"ownerReferences": None}}
        path = f"{RBAC}{DEFAULT}/roles/kept"
        status = await server.status("PATCH", path, patch, token="stranger", headers=headers)
    assert status["reason"] == "Forbidden"
