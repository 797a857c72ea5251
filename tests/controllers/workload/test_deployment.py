"""A rollout relies on replacements that a driver has observed, not on recorded readiness. Events of
instances that start are coalesced."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import msgspec
import pytest

from datum_compute.api.compute.instance import READY, Instance
from datum_compute.api.compute.workload import ScaleSettings
from datum_compute.api.conditions import FALSE, ConditionValue, Reason, make_condition
from datum_compute.api.http import Request
from datum_compute.api.kinds import DEPLOYMENT, INSTANCE, SERVER
from datum_compute.api.meta.objects import Ref, owner_reference
from datum_compute.app.controllers import build_manager
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.client.client import Client
from datum_compute.controllers.workload.deployment import CONTROLLER
from datum_compute.drivers.driver import NOT_OBSERVED, MachineState, Observation, unknown_state
from datum_compute.planes.bootstrap import ensure_plane
from testkit.builders import NOW, a_deployment, an_instance
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.controllers.running_controllers import as_new, running
from tests.controllers.workload.test_machine import CELL, RUNNING, ScriptedDriver, a_server
from tests.runtime.planes_in_process import InProcessPlanes

SLEEPING = MachineState("Sleeping")
CRASHED = MachineState("Failed", reason="InstanceCrashing")
NOT_READY = MachineState("Running", reason="NotReady")


async def half_rolled_out(client: Client) -> None:
    """One outdated and one updated instance, both recorded as ready."""
    deployment = await client.create(DEPLOYMENT, as_new(a_deployment(replicas=2)))
    for number, image in ((0, "web:0"), (1, "web:1")):
        await create_with_server(client, an_instance(number, image, deployment=deployment))


async def outdated_and_not_ready(client: Client) -> None:
    """Two outdated instances under Parallel, both recorded as not ready."""
    scale = ScaleSettings(min_replicas=2, instance_management_policy="Parallel")
    deployment = await client.create(DEPLOYMENT, as_new(a_deployment(scale=scale)))
    for number in range(2):
        instance = an_instance(number, "web:0", deployment=deployment, ready=False)
        await create_with_server(client, instance)


async def replaced_with_surge(client: Client) -> None:
    """The replacement and the surge instance, both recorded as ready."""
    deployment = await client.create(DEPLOYMENT, as_new(a_deployment()))
    for number in (0, 1):
        await create_with_server(client, an_instance(number, deployment=deployment))
    current = an_instance(0).spec.controller.template_hash
    surge = {"templateHash": current, "ordinals": "1", "created": "1"}
    stored = await client.get(DEPLOYMENT, Ref("default", "web-dfw"))
    version = stored.metadata.resource_version
    await client.patch_status(
        DEPLOYMENT, Ref("default", "web-dfw"), {"surge": surge}, version=version
    )


async def create_with_server(client: Client, instance: Instance) -> None:
    stored = await client.create(INSTANCE, as_new(instance))
    name, version = stored.metadata.name, stored.metadata.resource_version
    status = msgspec.to_builtins(instance.status)
    await client.patch_status(INSTANCE, Ref("default", name), status, version=version)
    server, owner = a_server(), owner_reference(stored, INSTANCE)
    metadata = msgspec.structs.replace(server.metadata, name=name, owner_references=[owner])
    await client.create(SERVER, msgspec.structs.replace(server, metadata=metadata))


def removed_before_and_after(
    prepare: Callable[[Client], Awaitable[None]], before: Observation, confirmed: Observation
) -> tuple[list[str], list[str]]:
    """Return what the controller removes while the driver reports ``before``, and in all."""
    driver = ScriptedDriver(before)

    async def main(loop: VirtualLoop) -> tuple[list[str], list[str]]:
        planes = InProcessPlanes(loop)
        client = await planes.create(CELL)
        await ensure_plane(client, CELL)
        await prepare(client)
        environment = ProcessEnvironment(loop.time, lambda: "uid", lambda: "suffix", Random(1))
        manager = build_manager((CONTROLLER,), {CELL: driver}, environment)
        manager.engage(CELL, client)
        task = loop.create_task(manager.run())
        await manager.wait_for_sync()
        await asyncio.sleep(20)
        early = await list_terminating(client)
        driver.observed = confirmed
        await asyncio.sleep(20)
        late = await list_terminating(client)
        task.cancel()
        return early, late

    return run_virtual(Random(1), main)


async def list_terminating(client: Client) -> list[str]:
    listed = await client.list(INSTANCE, "default")
    return [i.metadata.name for i in listed.items if i.is_terminating]


@pytest.mark.parametrize("confirmed", [RUNNING, SLEEPING], ids=["running", "sleeping"])
@pytest.mark.parametrize(
    "before", [NOT_OBSERVED, None, CRASHED, NOT_READY], ids=["unobserved", "gone", "crashed", "no"]
)
def test_no_instance_is_removed_before_the_driver_has_confirmed_its_replacement(
    before: Observation, confirmed: Observation
) -> None:
    removed = removed_before_and_after(half_rolled_out, before, confirmed)
    assert removed == ([], ["web-dfw-0"])


@pytest.mark.parametrize("before", [NOT_OBSERVED, None, CRASHED], ids=["unobserved", "gone", "no"])
def test_no_surge_instance_is_removed_before_the_driver_has_confirmed_the_others(
    before: Observation,
) -> None:
    removed = removed_before_and_after(replaced_with_surge, before, RUNNING)
    assert removed == ([], ["web-dfw-1"])


@pytest.mark.parametrize("confirmed", [None, CRASHED, NOT_READY], ids=["gone", "crashed", "no"])
@pytest.mark.parametrize(
    "before",
    [NOT_OBSERVED, unknown_state("no answer"), RUNNING],
    ids=["unobserved", "unknown", "recovered"],
)
def test_an_outdated_instance_is_not_broken_before_the_driver_has_observed_it(
    before: Observation, confirmed: Observation
) -> None:
    """It may have recovered while no process could record that."""
    removed = removed_before_and_after(outdated_and_not_ready, before, confirmed)
    assert removed == ([], ["web-dfw-0", "web-dfw-1"])


@pytest.mark.parametrize(
    "scale",
    [
        ScaleSettings(min_replicas=1, instance_management_policy="OrderedReady"),
        ScaleSettings(min_replicas=1, instance_management_policy="Parallel"),
    ],
    ids=["OrderedReady", "Parallel"],
)
def test_a_deployment_coalesces_the_events_of_an_instance_that_starts(scale: ScaleSettings) -> None:
    """Each status of a deployment is copied to the hub and to the project."""

    async def main(loop: VirtualLoop) -> list[float]:
        planes = InProcessPlanes(loop)
        client = await planes.create(CELL)
        await ensure_plane(client, CELL)
        deployment = await client.create(DEPLOYMENT, as_new(a_deployment(scale=scale)))
        await create_with_server(client, an_instance(0, deployment=deployment, ready=False))
        ref, written_s = Ref("default", "web-dfw-0"), list[float]()

        async def record(request: Request) -> None:
            if request.method == "PATCH" and "/workloaddeployments/" in request.path:
                written_s.append(round(loop.time() - started_s, 3))

        async with running(CONTROLLER, loop, planes, CELL):
            await asyncio.sleep(20)
            started_s, planes.intercept = loop.time(), record
            for reason in (Reason.PENDING_QUOTA, Reason.PENDING_PROGRAMMING, Reason.STARTING):
                value = ConditionValue(FALSE, reason, "")
                ready = make_condition(READY, value, generation=1, now=NOW)
                status = {"conditions": [msgspec.to_builtins(ready)]}
                found = await client.get(INSTANCE, ref)
                version = found.metadata.resource_version
                await client.patch_status(INSTANCE, ref, status, version=version)
                await asyncio.sleep(0.006)
            await asyncio.sleep(20)
        return written_s

    first_s, second_s = run_virtual(Random(1), main)
    assert first_s == 0, "the first event is delayed"
    assert second_s >= 0.02, "the other events are not coalesced"
