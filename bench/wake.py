"""Latency of the first connection to a sleeping instance, on a real engine.

From the connect of a client to the first byte of the response, through the proxy, for both sleep
modes. With each wake the engine unpauses or starts a bare container, so that other load slows down
both. The time without the engine is also reported. Requires podman, as ``make test-containers``
does; without it the bench is skipped.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from bench.measurement import Measurement
from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.api.planes import cell_plane
from datum_compute.api.traffic import Backend, SleepPolicy
from datum_compute.drivers.connections.activations import WakeHistory
from datum_compute.drivers.connections.idle_scaler import IdleScaler
from datum_compute.drivers.containers.engine import Engine
from datum_compute.drivers.local_network import connect_on_link
from datum_compute.ingress.proxy import Proxy
from testkit.processes.container_cell import ID, Cell, an_interface
from testkit.processes.container_engine import TestEngine, missing_programs

ROUNDS = 25
IDLE_S, SETTLED_S = 0.1, 0.1
CELL = cell_plane("dfw")
PAUSE_MS, BEYOND_START_MS = 30.0, 60.0
_ULIMITS = [{"Name": name, "Soft": 1024, "Hard": 1024} for name in ("nofile", "nproc")]


@dataclass(slots=True)
class WakeTimes:
    """Durations in milliseconds."""

    wakes: list[float] = field(default_factory=list)
    own: list[float] = field(default_factory=list)  # the time of each wake without the engine
    bare: list[float] = field(default_factory=list)

    @property
    def p95_difference(self) -> float:
        """Difference of the p95 of wakes and of the engine alone."""
        return p95(self.wakes) - p95(self.bare)


def p95(values: Sequence[float]) -> float:
    return sorted(values)[len(values) * 95 // 100]


def measure() -> list[Measurement]:
    if missing := missing_programs():
        print(f"  skipped: {', '.join(missing)} is not installed")
        return []
    if os.geteuid() != 0:
        print("  skipped: the engine needs root for bridge networks")
        return []
    with TemporaryDirectory() as root:
        engine = TestEngine(Path(root))
        engine.start()
        try:
            engine.publish("web:1", "v1")
            pause, stop = asyncio.run(_measure_modes(engine, Path(root) / "state"))
        finally:
            engine.stop()
    return [
        Measurement("engine unpause p95", p95(pause.bare), "ms"),
        Measurement(
            "wake from pause p95", p95(pause.wakes), "ms", "engine unpause p95", at_most=PAUSE_MS
        ),
        Measurement("wake from pause without the engine p95", p95(pause.own), "ms"),
        Measurement("engine start p95", p95(stop.bare), "ms"),
        Measurement("wake from stop p95", p95(stop.wakes), "ms", "engine start p95"),
        Measurement(
            "wake from stop beyond the engine's start, p95",
            stop.p95_difference,
            "ms",
            at_most=BEYOND_START_MS,
        ),
        Measurement("wake from stop without the engine p95", p95(stop.own), "ms"),
    ]


async def _measure_modes(engine: TestEngine, state: Path) -> tuple[WakeTimes, WakeTimes]:
    cell = Cell(engine, state)
    await cell.start()
    bare = Engine(engine.socket)
    try:
        address = "10.233.77.9"
        interface = an_interface(address, "10.233.77.1", 24)
        spec = cell.spec(termination_grace_period_seconds=0, interfaces=[interface])
        await cell.driver.start(ID, spec)
        await cell.wait_until_running()
        limits = {"HostConfig": {"Ulimits": _ULIMITS}}
        body = {"Image": engine.image("web:1"), **limits}
        await bare.request("POST", "/containers/create", {"name": "bare"}, body)
        return (
            await _measure_wakes(cell, bare, address, "pause"),
            await _measure_wakes(cell, bare, address, "stop"),
        )
    finally:
        await bare.request("DELETE", "/containers/bare", {"force": "true"})
        await bare.aclose()
        await cell.clean()


async def _measure_wakes(cell: Cell, bare: Engine, address: str, mode: SleepMode) -> WakeTimes:
    history = WakeHistory(time.time, time.monotonic)
    idle_scaler = IdleScaler({CELL: cell.driver}, time.monotonic, history)
    proxy = Proxy(idle_scaler, history, time.monotonic, connect_on_link)
    times, wake_command = WakeTimes(), ("unpause", "start")[mode == "stop"]
    backend = Backend(CELL, ID, address, 8080, SleepPolicy(IDLE_S, mode, 10.0))
    _, port = await proxy.publish("web", "http", [backend], 0)
    if mode == "pause":
        await bare.request("POST", "/containers/bare/start")
    try:
        for _ in range(ROUNDS):
            await cell.wait_for_state(lambda state: state.phase == "Sleeping")
            await bare.request(
                "POST", f"/containers/bare/{mode}", {"t": 0} if mode == "stop" else None
            )
            await asyncio.sleep(SETTLED_S)  # until the driver has recorded the state
            began_s = time.perf_counter()
            await bare.request("POST", f"/containers/bare/{wake_command}")
            times.bare.append(1000 * (time.perf_counter() - began_s))
            times.wakes.append(await _measure_first_byte_ms(port))
            engine_s = cell.driver._machines[ID].sleep.wake_duration_s
            times.own.append(times.wakes[-1] - 1000 * engine_s)
    finally:
        await proxy.close()
    return times


async def _measure_first_byte_ms(port: int) -> float:
    began_s = time.perf_counter()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.0\r\n\r\n")
    response = await reader.read(64)
    took_ms = 1000 * (time.perf_counter() - began_s)
    assert b" 200 OK" in response, response
    writer.close()
    return took_ms
