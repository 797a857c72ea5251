"""A custom scheduling gate: added to new instances, decided by an object of the plane, and removed
in the pass that records its condition. The gate opens when a ConfigMap named ``grant`` exists."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import FALSE, TRUE, ConditionValue
from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import CONFIG_MAP, INSTANCE
from datum_compute.api.meta.objects import ObjectMeta, Ref, ref_of
from datum_compute.app.platform import EVERYTHING
from datum_compute.controllers.context import Context
from datum_compute.controllers.workload import instance as instance_controller
from datum_compute.planning.rollout import gates
from datum_compute.planning.rollout.gates import Decision
from datum_compute.planning.rollout.slots import is_ready
from datum_compute.runtime.cached_client import CachedClient
from datum_compute.runtime.controller import Key, watches
from datum_compute.runtime.informer import ObjectChange
from tests.journeys.platform import Platform, on_platform

GATE, CONDITION = "Quota", "QuotaGranted"


def decide(context: Context, key: Key, instance: Instance) -> Decision | None:
    """A real gate would keep the pure part in planning/."""
    client = context.planes.require(key.plane)
    if client.read(CONFIG_MAP).get(Ref(instance.metadata.namespace, "grant")) is not None:
        return Decision(GATE, CONDITION, ConditionValue(TRUE, "QuotaAvailable", "granted"))
    return Decision(
        GATE, CONDITION, ConditionValue(FALSE, "QuotaExceeded", "11 of 10"), recheck_s=15
    )


def map_config_map(client: CachedClient, change: ObjectChange[Any]) -> Iterable[Key]:
    found = client.cached(INSTANCE).in_namespace(change.latest.metadata.namespace)
    return [Key(client.plane, ref_of(instance)) for instance in found]


ORIGINAL = instance_controller.CONTROLLER
WATCHING = replace(ORIGINAL, edges=(*ORIGINAL.edges, watches(CONFIG_MAP, map_config_map)))
CONTROLLERS = tuple(
    WATCHING if controller is instance_controller.CONTROLLER else controller
    for controller in EVERYTHING
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
