"""Real containers: time from a Workload to a running process, and of the engine alone.

Requires the same programs as ``make test-containers``. The engine creates and starts the same image
on a bridge, in alternation with the platform, so that a busy machine slows down both.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.measurement import Measurement
from datum_compute.api.meta.timestamps import unix_time
from datum_compute.drivers.containers.container_spec import OPEN_FILES_MAX, PROCESSES_MAX
from datum_compute.drivers.containers.engine import Engine
from testkit.processes.container_cell import Cell
from testkit.processes.container_engine import TestEngine, missing_programs
from testkit.processes.container_platform import Real, up

ROUNDS = 5
MACHINES = 100
_OVERHEAD_MAX_MS = 300.0
_TIMEOUT_S = 300.0


def measure() -> list[Measurement]:
    if missing := missing_programs():
        print(f"containers cannot be measured: {', '.join(missing)} is not installed")
        return []
    root = Path(tempfile.mkdtemp(prefix="bench"))
    engine = TestEngine(root)
    engine.start()
    try:
        image = engine.publish("web:1", "v1")
        engine.podman("pull", "--quiet", image)
        return [
            *_measure_one(engine, root / "state"),
            *asyncio.run(_measure_many(engine, root / "many")),
        ]
    finally:
        engine.stop()
        shutil.rmtree(root, ignore_errors=True)


def _measure_one(engine: TestEngine, state: Path) -> list[Measurement]:
    real = Real(state)
    up(real, engine)
    ours, alone = [], []
    try:
        for number in range(ROUNDS):
            alone.append(asyncio.run(_measure_engine_ms(engine)))
            ours.append(_measure_platform_ms(real, engine, f"web{number}"))
    finally:
        real.down()
    floor = "engine: create and start"
    over = Measurement("overhead", median(ours) - median(alone), "ms", at_most=_OVERHEAD_MAX_MS)
    return [
        Measurement(floor, median(alone), "ms"),
        Measurement("Workload created to container started", median(ours), "ms", floor=floor),
        over,
    ]


def _measure_platform_ms(real: Real, engine: TestEngine, name: str) -> float:
    manifest = {
        "apiVersion": "compute.datumapis.com/v1alpha",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {
            "template": {
                "spec": {
                    "runtime": {
                        "sandbox": {
                            "terminationGracePeriodSeconds": 1,
                            "containers": [{"name": "app", "image": engine.image("web:1")}],
                        }
                    }
                }
            },
            "placements": [
                {"name": "default", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}
            ],
        },
    }
    response = real.kubectl(
        "project/default", "create", "-o", "json", "-f", "-", stdin=json.dumps(manifest)
    )
    created = time.time()  # the timestamps of the server are whole seconds
    assert json.loads(response)["metadata"]["name"] == name
    found = _wait_for_start_time(engine)
    real.run("destroy", name, "--yes")
    while engine.podman("ps", "--all", "--quiet").split():
        time.sleep(0.05)
    return (found - created) * 1000


def _wait_for_start_time(engine: TestEngine) -> float:
    """Return the time at which the only container started, from the engine."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        running = engine.podman("ps", "--quiet").split()
        if running:
            (inspected,) = json.loads(engine.podman("inspect", running[0]))
            return unix_time(inspected["State"]["StartedAt"])
        time.sleep(0.05)
    raise AssertionError("no container was started")


async def _measure_engine_ms(engine: TestEngine) -> float:
    """Create and start a container over the same socket."""
    client = Engine(engine.socket)
    limits = [
        {"Name": name, "Soft": most, "Hard": most}
        for name, most in (("nofile", OPEN_FILES_MAX), ("nproc", PROCESSES_MAX))
    ]
    body = {"Image": engine.image("web:1"), "HostConfig": {"Ulimits": limits}}
    try:
        begun = time.perf_counter()
        await client.request("POST", "/containers/create", {"name": "alone"}, body)
        await client.request("POST", "/containers/alone/start")
        spent = time.perf_counter() - begun
        await client.request("DELETE", "/containers/alone", {"force": "true"})
        return spent * 1000
    finally:
        await client.aclose()


async def _measure_many(engine: TestEngine, state: Path) -> list[Measurement]:
    cell = Cell(engine, state)
    await cell.start()
    ids = [f"ns/web-{number}/uid-{number}" for number in range(MACHINES)]
    wall, busy = time.perf_counter(), time.process_time()
    try:
        for machine_id in ids:
            await cell.driver.start(machine_id, cell.spec())
        for machine_id in ids:
            await cell.wait_for_state(lambda s: s.phase == "Running", machine_id, _TIMEOUT_S)
        return [
            Measurement(f"{MACHINES} containers run", time.perf_counter() - wall, "s"),
            Measurement("of which processor of the driver", time.process_time() - busy, "s"),
        ]
    finally:
        await cell.clean(_TIMEOUT_S)
