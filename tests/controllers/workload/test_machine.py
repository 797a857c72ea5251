"""The machine controller records what the driver observes, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from random import Random
from typing import TypeVar

import pytest

from datum_compute.api import labels
from datum_compute.api.compute.instance import Container
from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.compute.server import Server, ServerSpec, ServerStatus
from datum_compute.api.errors import NotFound
from datum_compute.api.kinds import SERVER
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import cell_plane
from datum_compute.app.controllers import build_manager
from datum_compute.app.environment import ProcessEnvironment
from datum_compute.client.client import Client
from datum_compute.controllers.workload.machine import CONTROLLER
from datum_compute.drivers.driver import (
    NO_DATA,
    NOT_OBSERVED,
    MachineData,
    MachineState,
    Observation,
    TransientError,
    unknown_state,
)
from datum_compute.planes.bootstrap import ensure_plane
from testkit import builders
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.controllers.running_controllers import is_reconciled
from tests.runtime.planes_in_process import InProcessPlanes

CELL = cell_plane("dfw")
REF = Ref("default", "web-0")
RUNNING = MachineState("Running", started_at="2026-01-01T00:00:00Z", addresses=("10.0.0.9",))
UNKNOWN = unknown_state("the engine does not respond")
T = TypeVar("T")


class ScriptedDriver:
    """A driver that reports the value of ``observed``."""

    is_simulated = True

    def __init__(self, observed: Observation) -> None:
        self.observed = observed
        self.started = 0
        self.removed = 0
        self.changed: asyncio.Queue[str] = asyncio.Queue()

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        self.started += 1

    async def remove(self, machine_id: str) -> None:
        self.removed += 1

    async def observe(self, machine_id: str) -> Observation:
        return self.observed

    async def machines(self, name: str = "") -> list[str]:
        return []

    async def sleep(self, machine_id: str, mode: SleepMode) -> None: ...

    async def suspend(self, machine_id: str) -> None: ...

    async def resume(self, machine_id: str) -> None: ...

    async def wake(self, machine_id: str) -> float:
        return 0.0

    async def changes(self) -> AsyncIterator[str]:
        while True:
            yield await self.changed.get()


def a_server(status: ServerStatus | None = None) -> Server:
    return Server(
        metadata=ObjectMeta(
            name=REF.name, namespace=REF.namespace, finalizers=[labels.DRIVER_FINALIZER]
        ),
        spec=ServerSpec(
            instance_type="d1",
            template_hash="hash",
            containers=[Container(name="app", image="web:1")],
        ),
        status=status or ServerStatus(),
    )


def beside(driver: ScriptedDriver, story: Callable[[Client], Awaitable[T]]) -> T:
    """Run the controller with the driver and one Server."""

    async def main(loop: VirtualLoop) -> T:
        planes = InProcessPlanes(loop)
        client = await planes.create(CELL)
        await ensure_plane(client, CELL)
        await client.create(SERVER, a_server())
        environment = ProcessEnvironment(loop.time, lambda: "uid", lambda: "suffix", Random(1))
        manager = build_manager((CONTROLLER,), {CELL: driver}, environment)
        manager.engage(CELL, client)
        running = loop.create_task(manager.run())
        await manager.wait_for_sync()
        await asyncio.sleep(5)
        try:
            return await story(client)
        finally:
            running.cancel()

    return run_virtual(Random(1), main)


def test_a_machine_that_is_not_observed_keeps_its_record_until_it_is() -> None:
    driver = ScriptedDriver(RUNNING)

    async def story(client: Client) -> None:
        before = await client.get(SERVER, REF)
        assert before.status.phase == "Running"
        driver.observed = NOT_OBSERVED
        driver.changed.put_nowait(f"{REF}/{before.metadata.uid}")
        await asyncio.sleep(20)
        assert await client.get(SERVER, REF) == before, "nothing was written"
        driver.observed = MachineState("Running", reason="NotReady", addresses=("10.0.0.9",))
        await asyncio.sleep(5)
        after = await client.get(SERVER, REF)
        assert (after.status.phase, after.status.reason) == ("Running", "NotReady")
        assert (driver.started, driver.removed) == (0, 0)

    beside(driver, story)


def test_a_machine_that_is_unknown_keeps_its_addresses_and_recovers() -> None:
    driver = ScriptedDriver(RUNNING)

    async def story(client: Client) -> None:
        before = (await client.get(SERVER, REF)).status
        driver.observed = UNKNOWN
        driver.changed.put_nowait(f"{REF}/{(await client.get(SERVER, REF)).metadata.uid}")
        await asyncio.sleep(5)
        lost = (await client.get(SERVER, REF)).status
        assert (lost.phase, lost.reason) == ("Unknown", "NotObserved")
        assert (lost.addresses, lost.started_at) == (before.addresses, before.started_at)
        driver.observed = RUNNING
        await asyncio.sleep(15)
        assert (await client.get(SERVER, REF)).status == before

    beside(driver, story)


def test_a_server_without_a_machine_does_not_become_unknown() -> None:
    """It has no record to invalidate. The machine is started when the driver reports none."""
    driver = ScriptedDriver(UNKNOWN)

    async def story(client: Client) -> None:
        assert (await client.get(SERVER, REF)).status == ServerStatus()
        assert driver.started == 0
        driver.observed = None
        await asyncio.sleep(15)
        assert driver.started > 0

    beside(driver, story)


class WithoutStart(ScriptedDriver):
    """A driver that cannot start a machine."""

    async def start(self, machine_id: str, spec: ServerSpec, data: MachineData = NO_DATA) -> None:
        await super().start(machine_id, spec, data)
        raise TransientError("the engine is busy")


def test_a_lost_machine_of_an_unknown_server_is_reported_while_its_start_fails() -> None:
    """Unknown counts as serving, so the loss must not wait for a new machine."""
    driver = WithoutStart(RUNNING)

    async def story(client: Client) -> None:
        driver.observed = UNKNOWN
        driver.changed.put_nowait(f"{REF}/{(await client.get(SERVER, REF)).metadata.uid}")
        await asyncio.sleep(2)
        assert (await client.get(SERVER, REF)).status.phase == "Unknown"
        driver.observed = None
        await asyncio.sleep(5)
        assert (await client.get(SERVER, REF)).status.phase == "Pending"
        await asyncio.sleep(60)
        assert (await client.get(SERVER, REF)).status.phase == "Pending"
        assert driver.started > 0

    beside(driver, story)


def test_a_deleted_server_waits_for_an_unobserved_machine() -> None:
    driver = ScriptedDriver(NOT_OBSERVED)

    async def story(client: Client) -> None:
        await client.delete(SERVER, REF)
        await asyncio.sleep(5)
        assert (await client.get(SERVER, REF)).is_terminating
        assert driver.removed > 0
        driver.observed = None
        await asyncio.sleep(5)
        with pytest.raises(NotFound):
            await client.get(SERVER, REF)

    beside(driver, story)


def test_a_server_is_reconciled_until_its_machine_is_settled() -> None:
    assert not is_reconciled(
        CONTROLLER, SERVER, builders.a_server("Pending"), builders.a_server("Running")
    )
    assert is_reconciled(CONTROLLER, SERVER, builders.a_server(), builders.a_server("Pending"))
    assert is_reconciled(
        CONTROLLER, SERVER, builders.a_server("Running"), builders.a_server("Failed")
    )
    changed = builders.a_server("Running", generation=2)
    assert is_reconciled(CONTROLLER, SERVER, builders.a_server("Running"), changed)
