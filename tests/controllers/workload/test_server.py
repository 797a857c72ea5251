"""Which events wake the provisioner of Servers, and how it finds Servers that are wrong or lost."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any

from msgspec.structs import replace

from datum_compute.api import labels
from datum_compute.api.compute.instance import NETWORK_READY, PROGRAMMED, QUOTA_GRANTED
from datum_compute.api.conditions import FALSE, TRUE, ConditionStatus
from datum_compute.api.kinds import INSTANCE, NAMESPACE, SERVER
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import cell_plane
from datum_compute.controllers.workload.server import (
    AVAILABLE_INSTANCES,
    CONTROLLERS,
    LOST_SERVER_CHECK_S,
    concerns_machine,
    find_available_without_server,
    needs_machine,
)
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Key
from datum_compute.runtime.event_recorder import EventRequest
from testkit.builders import a_gated_instance, a_server, an_instance, refused_by_quota
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL = cell_plane("dfw")
REF = Ref("default", "web-dfw-0")

CLEAR: dict[str, ConditionStatus] = {NETWORK_READY: TRUE, QUOTA_GRANTED: TRUE}


def test_the_provisioner_reconciles_when_gates_are_removed_and_ignores_its_own_status() -> None:
    ready = an_instance(0)
    assert concerns_machine(a_gated_instance(CLEAR), ready)
    assert not concerns_machine(an_instance(0, ready=False), ready)
    assert not concerns_machine(a_gated_instance(), a_gated_instance(CLEAR))
    assert concerns_machine(ready, an_instance(0, terminating=True))


def test_a_new_gated_instance_needs_no_machine_unless_a_problem_was_reported() -> None:
    assert not needs_machine(a_gated_instance())
    assert needs_machine(refused_by_quota(an_instance(0)))
    assert needs_machine(an_instance(0, ready=False))
    failed = a_gated_instance({PROGRAMMED: FALSE})
    conditions = [replace(c, reason="PendingQuota") for c in failed.status.conditions]
    stale = replace(failed, status=replace(failed.status, conditions=conditions))
    assert needs_machine(stale), "the report may have to be revoked after a restart"


def test_a_server_of_no_instance_is_reported_and_stays() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[list[str], list[str]]:
        cell = await planes.create(CELL)
        await cell.create(NAMESPACE, a_namespace("default"))
        await cell.create(INSTANCE, as_new(an_instance(0)))
        edited = {labels.INSTANCE_UID: "other"}
        await cell.create(SERVER, as_new(a_server(), name="extra", labels=edited))
        events: list[EventRequest] = []
        async with running(CONTROLLERS, loop, planes, CELL, events=events):
            await asyncio.sleep(5)
        reported = [e.object.name for e in events if e.reason == "AmbiguousOwner"]
        return reported, [server.metadata.name for server in (await cell.list(SERVER)).items]

    reported, servers = with_planes(test)
    assert reported == ["extra"]
    assert servers == ["extra", "web-dfw-0"]


def test_the_periodic_check_yields_available_instances_without_a_server() -> None:
    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> tuple[Key, float]:
        cell = await planes.create(CELL)
        await cell.create(NAMESPACE, a_namespace("default"))
        for number, is_ready in enumerate((True, True, False)):
            instance = as_new(an_instance(number, ready=is_ready))
            await cell.create(INSTANCE, instance, with_status=True)
        await cell.create(SERVER, as_new(a_server()))
        view = CachedClient(CELL, cell, Random(1))
        informers = (view.declare(INSTANCE), view.declare(SERVER))
        informers[0].cache.add_index(AVAILABLE_INSTANCES)
        running_informers = [loop.create_task(informer.run()) for informer in informers]
        for informer in informers:
            await informer.first_sync.wait()
        started_s = loop.time()
        unused: Any = None
        key = await anext(find_available_without_server(unused, view))
        for task in running_informers:
            task.cancel()
        return key, loop.time() - started_s

    key, waited_s = with_planes(test)
    assert key == Key(CELL, Ref("default", "web-dfw-1"))
    assert waited_s <= LOST_SERVER_CHECK_S + 1.0
