"""A process that may not lead anymore changes no machines."""

from __future__ import annotations

import pytest

from datum_compute.api.compute.server import ServerSpec
from datum_compute.drivers.driver import FencedDriver
from datum_compute.drivers.simulated.driver import MachineTable, SimulatedDriver
from testkit.builders import a_template


def a_spec() -> ServerSpec:
    containers = a_template().spec.runtime.sandbox.containers
    return ServerSpec(instance_type="d1-standard-2", template_hash="hash", containers=containers)


class Closed(Exception):
    """The fence is closed."""


async def test_a_closed_fence_permits_only_reads() -> None:
    is_open = True

    def check() -> None:
        if not is_open:
            raise Closed

    driver = FencedDriver(SimulatedDriver(MachineTable(), now=lambda: 0.0), check)
    await driver.start("default/web/u", a_spec())
    is_open = False
    with pytest.raises(Closed):
        await driver.start("default/other/u", a_spec())
    with pytest.raises(Closed):
        await driver.remove("default/web/u")
    assert await driver.machines() == ["default/web/u"]
    assert await driver.observe("default/web/u") is not None
