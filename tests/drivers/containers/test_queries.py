"""What the driver reports about its engine."""

from __future__ import annotations

import time
from pathlib import Path
from random import Random
from typing import Any, cast

import msgspec

from datum_compute.app.container_host import LogFiles
from datum_compute.drivers.containers.engine import EngineVersion
from datum_compute.drivers.containers.machine import Machine
from datum_compute.drivers.containers.queries import MachineQueries
from datum_compute.drivers.logs import LogOwner
from datum_compute.drivers.queries import DriverReport
from testkit.sim.loop import VirtualLoop, run_virtual
from tests.drivers.containers.memory_engine import MemoryEngine
from tests.drivers.containers.test_driver import OWNER, PLAIN, a_driver

WEB = LogOwner(workload="web", uid="uid-1", city="DFW")


async def test_logs_of_existing_and_of_deleted_machines_of_a_workload_are_listed(
    tmp_path: Path,
) -> None:
    of_web = msgspec.structs.replace(PLAIN, owner=WEB)
    plans = {"ns/web-dfw-1/2": of_web, "other/web-dfw-1/3": of_web, "ns/web-dfw-2/4": PLAIN}
    archive = LogFiles(tmp_path / "logs", time.time)
    await archive.save("ns/web-dfw-0/1", "app", b"line", WEB)

    async def list_machines() -> dict[str, Machine]:
        return {machine_id: Machine(machine_id, plan) for machine_id, plan in plans.items()}

    queries = MachineQueries(
        cast(Any, None), list_machines, archive, cast(Any, None), time.time, cast(Any, None)
    )
    found = await queries.workload_logs("ns", "web")
    assert [(log.instance, log.workload_uid, log.city) for log in found] == [
        ("web-dfw-0", "uid-1", "DFW"),
        ("web-dfw-1", "uid-1", "DFW"),
    ]


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
