"""Which changes wake the instance controller, and the quota gate of an unknown project."""

from __future__ import annotations

import asyncio

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
    Reason,
    find_condition,
    with_condition,
)
from datum_compute.api.kinds import INSTANCE, NAMESPACE
from datum_compute.api.meta.objects import Ref
from datum_compute.api.planes import cell_plane
from datum_compute.controllers.workload.instance import CONTROLLER, concerns_readiness
from datum_compute.planning.rollout.gates import observed_ready
from testkit.builders import NOW, a_gated_instance, an_instance
from testkit.sim.loop import VirtualLoop
from tests.controllers.running_controllers import as_new, running
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
    assert concerns_readiness(ready, an_instance(0, terminating=True))


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
