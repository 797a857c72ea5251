"""Memory of the server while one user opens many watches or lists and does not read them.

Every connection requests a list of a few megabytes and then reads no data. The server must hold a
bounded amount of memory for all connections, and free it when they are closed.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from bench.load import Target, plugged
from bench.measurement import RESULTS, Measurement
from bench.processes import Running, platform
from datum_compute.api.codec import JsonObject, encode
from datum_compute.app.loop import run_loop

CONNECTIONS = 2000
OBJECTS = 1000
OBJECT_BYTES = 4000
GROWTH_MB_MAX = 300
SETTLE_S = 5.0
PLANE = "project/default"


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of the server, in MB."""

    before: float
    highest: float
    after: float


def measure() -> list[Measurement]:
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        state = Path(folder) / "state"
        with platform(state, PLANE, "--no-controllers", "--driver", "simulated") as running:
            path = f"{running.prefix}/api/v1/namespaces/default/configmaps"
            run_loop(_fill(running.target, path))
            memory = measure_unread(running, running.target.request("GET", f"{path}?watch=true"))
            lists = measure_unread(running, running.target.request("GET", path))
    return [
        Measurement("memory before", memory.before, "MB"),
        Measurement(
            f"{CONNECTIONS} unread watches: growth",
            memory.highest - memory.before,
            "MB",
            at_most=GROWTH_MB_MAX,
        ),
        Measurement("after they were closed: growth", memory.after - memory.before, "MB"),
        Measurement(
            f"{CONNECTIONS} unread lists: growth",
            lists.highest - memory.before,
            "MB",
            at_most=GROWTH_MB_MAX,
        ),
        Measurement("after those were closed: growth", lists.after - memory.before, "MB"),
    ]


async def _fill(target: Target, path: str) -> None:
    async with plugged(target, 1) as (plug,):
        for number in range(OBJECTS):
            metadata, data = {"name": f"c-{number}"}, {"a": "x" * OBJECT_BYTES}
            body: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap"}
            body |= {"metadata": metadata, "data": data}
            created = await plug.ask(target.request("POST", path, encode(body)))
            assert created[9:12] == b"201", created[:300]


def measure_unread(running: Running, request: bytes) -> Memory:
    """Send the request on many connections and read no response."""
    before = highest = running.rss_mb()
    with ExitStack() as opened:
        for _ in range(CONNECTIONS):
            opened.enter_context(_connection(running.target)).sendall(request)
            highest = max(highest, running.rss_mb())
        end_s = time.monotonic() + SETTLE_S
        while time.monotonic() < end_s:
            time.sleep(0.1)
            highest = max(highest, running.rss_mb())
    time.sleep(SETTLE_S)
    return Memory(before, highest, running.rss_mb())


def _connection(target: Target) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", target.port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return target.tls.wrap_socket(plain, server_hostname="127.0.0.1")
