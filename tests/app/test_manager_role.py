"""The role ``manager`` permits all requests of the controllers."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from datum_compute.api.core import Namespace
from datum_compute.api.kinds import DEFINITION, INSTANCE_TYPE, NAMESPACE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ApiObject, KindInfo, ObjectMeta, Ref
from datum_compute.api.planes import HUB, PLATFORM, cell_plane, project_plane
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.app.platform import PlaneLayout, Platform, PlatformOptions, SecurityOptions
from datum_compute.app.state_credentials import PlaneTokens
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from datum_compute.planes.roles import MANAGER_USER
from datum_compute.server.access.audit import AuditEvent
from datum_compute.server.options import AdmissionOptions
from datum_compute.store.journal import MemoryJournal
from testkit.api_server.definitions import definition
from testkit.builders import a_new_workload
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.controllers.platform.test_instance_types import move_to
from tests.controllers.running_controllers import as_new
from tests.planning.platform.test_instance_types import a_type

PROJECT, CELL = project_plane("default"), cell_plane("dfw")
SETTLE_S = 60
WIDGET = KindInfo("example.com", "v1", "Widget", "widgets", ApiObject, has_status=False)


def a_platform(loop: VirtualLoop, events: list[AuditEvent]) -> Platform:
    ids = iter(range(1, 1_000_000))
    environment = ProcessEnvironment(
        unix_s=lambda: 1_700_000_000 + loop.time(),
        new_uid=lambda: f"uid-{next(ids)}",
        new_suffix=lambda: f"{next(ids):05d}",
        random=Random(1),
    )
    tokens = {plane: f"token-of-{plane}" for plane in (PLATFORM, PROJECT, HUB, CELL)}
    layout = PlaneLayout(
        (PROJECT,), {CELL: SimulatedDriver(MachineTable(), now=environment.unix_s)}
    )
    options = PlatformOptions(
        security=SecurityOptions(audit=events.append),
        admission=AdmissionOptions(deprecation_grace_s=0),
    )
    return Platform(layout, environment, MemoryJournal(), PlaneTokens("manager", tokens), options)


def test_no_request_of_the_manager_is_forbidden_during_the_life_of_a_workload() -> None:
    events: list[AuditEvent] = []

    async def story(loop: VirtualLoop) -> None:
        platform = a_platform(loop, events)
        await platform.load()
        running = loop.create_task(platform.run())
        await platform.ready.wait()
        user = platform.client(PROJECT, f"token-of-{PROJECT}")
        await user.create(WORKLOAD, a_new_workload("web:1", replicas=2))
        await asyncio.sleep(SETTLE_S)
        status = (await user.get(WORKLOAD, Ref("default", "web"))).status
        assert status.ready_replicas == 2
        await user.create(NAMESPACE, Namespace(metadata=ObjectMeta(name="extra")))
        await asyncio.sleep(1)  # the default objects of a namespace are created first
        await user.delete(NAMESPACE, Ref("", "extra"))
        await user.delete(WORKLOAD, Ref("default", "web"))
        await asyncio.sleep(SETTLE_S)
        assert (await user.list(WORKLOAD)).items == []
        assert "extra" not in [n.metadata.name for n in (await user.list(NAMESPACE)).items]
        running.cancel()

    run_virtual(Random(1), story)
    by_manager = [event for event in events if event.user == MANAGER_USER]
    assert {event.plane for event in by_manager} >= {PROJECT, HUB, CELL}
    assert [event for event in events if event.code in (401, 403)] == []


def test_the_manager_may_disable_and_delete_the_copy_of_a_deleted_instance_type() -> None:
    events: list[AuditEvent] = []
    custom = Ref("", "custom")

    async def story(loop: VirtualLoop) -> None:
        platform = a_platform(loop, events)
        await platform.load()
        running = loop.create_task(platform.run())
        await platform.ready.wait()
        operator = platform.client(PLATFORM, f"token-of-{PLATFORM}")
        user = platform.client(PROJECT, f"token-of-{PROJECT}")
        await operator.create(INSTANCE_TYPE, as_new(a_type("custom")))
        await asyncio.sleep(SETTLE_S)
        assert (await user.get(INSTANCE_TYPE, custom)).spec.lifecycle.phase == "Active"
        await move_to(operator, "custom", "Deprecated")
        await move_to(operator, "custom", "Disabled")
        await operator.delete(INSTANCE_TYPE, custom)
        await asyncio.sleep(SETTLE_S)
        names = [t.metadata.name for t in (await user.list(INSTANCE_TYPE)).items]
        assert "custom" not in names
        running.cancel()

    run_virtual(Random(1), story)
    by_manager = [
        (event.verb, event.code)
        for event in events
        if (event.user, event.plane, event.name) == (MANAGER_USER, PROJECT, "custom")
    ]
    assert by_manager == [("create", 201), ("patch", 200), ("patch", 200), ("delete", 200)]


def test_orphans_of_a_custom_kind_lose_their_owner_reference() -> None:
    events: list[AuditEvent] = []

    async def story(loop: VirtualLoop) -> None:
        platform = a_platform(loop, events)
        await platform.load()
        running = loop.create_task(platform.run())
        await platform.ready.wait()
        user = platform.client(PROJECT, f"token-of-{PROJECT}")
        await user.create_plain(DEFINITION, definition())
        await asyncio.sleep(SETTLE_S)
        owner = await user.create_plain(WIDGET, a_widget("owner"))
        names = {key: owner["metadata"][key] for key in ("name", "uid")}
        reference = {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, **names}
        await user.create_plain(WIDGET, a_widget("left", ownerReferences=[reference]))
        await user.delete(WIDGET, Ref("default", "owner"), policy="Orphan")
        await asyncio.sleep(SETTLE_S)
        left = await user.list(WIDGET)
        assert [w.metadata.name for w in left.items] == ["left"]
        assert left.items[0].metadata.owner_references == []
        await user.delete(DEFINITION, Ref("", definition()["metadata"]["name"]))
        await asyncio.sleep(SETTLE_S)
        names_left = [d.metadata.name for d in (await user.list(DEFINITION)).items]
        assert definition()["metadata"]["name"] not in names_left
        running.cancel()

    run_virtual(Random(1), story)
    assert [event for event in events if event.code in (401, 403)] == []


def a_widget(name: str, **metadata: Any) -> JsonObject:
    whole = {"name": name, "namespace": "default", **metadata}
    return {"apiVersion": WIDGET.api_version, "kind": WIDGET.kind, "metadata": whole}
