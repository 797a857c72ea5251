"""The instance controller: the changes that it reconciles, and its scheduling gates."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Iterable
from typing import Any

import pytest
from msgspec.structs import replace

from datum_compute.api.compute.instance import (
    NETWORK_READY,
    PROGRAMMED,
    QUOTA_GRANTED,
    READY,
    Instance,
)
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    ConditionStatus,
    ConditionValue,
    Reason,
    find_condition,
    with_condition,
)
from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, INSTANCE, NAMESPACE
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.api.planes import cell_plane
from datum_compute.app.platform import EVERYTHING
from datum_compute.controllers.context import Context
from datum_compute.controllers.workload import instance as instance_controller
from datum_compute.controllers.workload.instance import CONTROLLER, concerns_readiness
from datum_compute.planning.rollout import gates
from datum_compute.planning.rollout.gates import Decision, observed_ready
from datum_compute.planning.rollout.slots import is_ready
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Key, watches
from datum_compute.runtime.informer import ObjectChange
from testkit.builders import NOW, a_gated_instance, an_instance
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
from tests.journeys.platform import Platform, on_platform
from tests.runtime.planes_in_process import InProcessPlanes, a_namespace, with_planes

CELL = cell_plane("dfw")

CLEAR: dict[str, ConditionStatus] = {NETWORK_READY: TRUE, QUOTA_GRANTED: TRUE}


def without(found: Instance, type_: str) -> Instance:
    kept = [c for c in found.status.conditions if c.type != type_]
    return replace(found, status=replace(found.status, conditions=kept))


def test_recording_that_all_gates_are_clear_causes_no_reconcile() -> None:
    assert not concerns_readiness(a_gated_instance(), a_gated_instance(CLEAR))
    assert concerns_readiness(a_gated_instance(), a_gated_instance({**CLEAR, QUOTA_GRANTED: FALSE}))
    assert concerns_readiness(a_gated_instance(), a_gated_instance(CLEAR, "example.com/unknown"))


def test_an_instance_without_gates_is_reconciled_if_ready_is_not_current() -> None:
    made = an_instance(0)
    conditions = with_condition(made.status.conditions, observed_ready(made, NOW))
    ready = replace(made, status=replace(made.status, conditions=conditions))
    assert not concerns_readiness(a_gated_instance(CLEAR), ready)
    assert concerns_readiness(ready, without(ready, PROGRAMMED))
    assert concerns_readiness(ready, without(ready, READY))


def test_ready_of_a_terminating_instance_is_written_once() -> None:
    """The provisioner writes it together with Available until it removes its finalizer."""
    running = an_instance(0)
    assert not concerns_readiness(running, an_instance(0, terminating=True))
    assert concerns_readiness(running, an_instance(0, terminating=True, finalizers=("a.b/c",)))


def test_an_instance_in_a_namespace_of_no_project_keeps_its_quota_gate() -> None:
    """No claim can be found for it, so nothing is known about its quota."""

    async def test(loop: VirtualLoop, planes: InProcessPlanes) -> Instance:
        cell = await planes.create(CELL)
        await cell.create(NAMESPACE, a_namespace("default"))
        await cell.create(INSTANCE, as_new(a_gated_instance()))
        async with running(CONTROLLER, loop, planes, CELL):
            await asyncio.sleep(10)
        return await cell.get(INSTANCE, Ref("default", "web-dfw-0"))

    found = with_planes(test)
    assert "Quota" in [gate.name for gate in found.spec.controller.scheduling_gates]
    decided = find_condition(found.status.conditions, QUOTA_GRANTED)
    assert decided is not None
    assert (decided.status, decided.reason) == (FALSE, Reason.QUOTA_PROJECT_ID_UNRESOLVABLE)


# --- a custom gate: added to new instances, decided by an object of the plane, and removed in the
# pass that records its condition


GATE, CONDITION = "Quota", "QuotaGranted"


def decide(context: Context, key: Key, instance: Instance) -> Decision | None:
    """Open the gate while a ConfigMap named ``grant`` exists."""
    client = context.planes.require(key.plane)
    if client.read(CONFIG_MAP).get(Ref(instance.metadata.namespace, "grant")) is not None:
        return Decision(GATE, CONDITION, ConditionValue(TRUE, "QuotaAvailable", "granted"))
    return Decision(
        GATE, CONDITION, ConditionValue(FALSE, "QuotaExceeded", "11 of 10"), recheck_s=15
    )


def map_config_map(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    found = client.read_unsynced(INSTANCE).list_in_namespace(change.latest.metadata.namespace)
    return [Key(client.plane, ref_of(instance)) for instance in found]


WATCHING = dataclasses.replace(
    CONTROLLER, edges=(*CONTROLLER.edges, watches(CONFIG_MAP, map_config_map))
)
CONTROLLERS = tuple(
    WATCHING if controller is CONTROLLER else controller for controller in EVERYTHING
)


@pytest.fixture
def gated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "INITIAL_GATES", ((GATE, lambda _: True),))
    monkeypatch.setattr(instance_controller, "DECIDERS", (decide,))


async def grant(platform: Platform) -> None:
    namespace = (await platform.instances())[0].metadata.namespace
    await platform.cell.create(
        CONFIG_MAP, ConfigMap(metadata=ObjectMeta(name="grant", namespace=namespace))
    )


@pytest.mark.usefixtures("gated")
def test_a_running_instance_stays_ready_when_the_grant_is_deleted() -> None:
    async def story(platform: Platform) -> bool:
        await platform.deploy()
        await platform.until_reason("QuotaNotGranted")
        await grant(platform)
        await platform.until_ready("web:1")
        namespace = (await platform.instances())[0].metadata.namespace
        await platform.cell.delete(CONFIG_MAP, Ref(namespace, "grant"))
        await asyncio.sleep(60)
        (instance,) = await platform.instances()
        return is_ready(instance)

    assert on_platform(story, controllers=CONTROLLERS)
