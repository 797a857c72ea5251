"""What the driver reports about its engine."""

from __future__ import annotations

from pathlib import Path
from random import Random

from datum_compute.drivers.containers.engine import EngineVersion
from datum_compute.drivers.queries import DriverReport
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.drivers.containers.memory_engine import MemoryEngine
from tests.drivers.containers.test_driver import OWNER, a_driver


class BusyEngine(MemoryEngine):
    """It answers requests for its version only."""

    async def read_version(self, timeout_s: float = 5.0) -> EngineVersion:
        return EngineVersion("Podman", "5.1")


def test_an_engine_that_lists_slowly_is_not_reported_as_silent(tmp_path: Path) -> None:
    async def main(loop: VirtualLoop) -> DriverReport:
        engine = BusyEngine(OWNER)
        engine.set_hung(is_hung=True)
        return await a_driver(engine, tmp_path, loop.time).queries.driver()

    report = run_virtual(Random(1), main)
    assert report.answers
    assert (report.words, report.without_init) == ("Podman 5.1", 0)
