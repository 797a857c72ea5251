"""Memory of the server while clients open many watches or lists and do not read them.

The cases are many small objects, one large object, and pipelined lists. The server must hold a
bounded amount of memory for all connections, and return it to the system when they are closed. It
must return the memory as well after clients that read.
"""

from __future__ import annotations

import socket
import ssl
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

from bench.load import Target, load_connections
from bench.measurement import RESULTS, Measurement
from bench.processes import Running, platform
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.app.process import run_loop

GROWTH_MB_MAX = 300
KEPT_MB_MAX = 100
SETTLE_S = 5.0
RELEASE_S = 20.0  # in which the server must return freed memory
PLANE = "project/default"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured. Tests of the bench itself use less."""

    connections: int = 1900
    objects: int = 1000
    object_bytes: int = 4000
    large_object_bytes: int = 900_000
    flood_connections: int = 300
    pipelined: int = 20
    flood_s: float = 10.0


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of the server, in MB."""

    before: float
    highest: float
    after: float

    def measurements(self, name: str) -> list[Measurement]:
        growth_mb, kept_mb = self.highest - self.before, self.after - self.before
        return [
            Measurement(f"{name}: growth", growth_mb, "MB", at_most=GROWTH_MB_MAX),
            Measurement(f"{name}: after the end", kept_mb, "MB", at_most=KEPT_MB_MAX),
        ]


def measure(sizes: Sizes | None = None) -> list[Measurement]:
    sizes = sizes or Sizes()
    return [*_measure_small_objects(sizes), *_measure_large_object(sizes)]


def _measure_small_objects(sizes: Sizes) -> list[Measurement]:
    count, flood = sizes.connections, sizes.flood_connections
    with _run_filled_server(sizes.objects, sizes.object_bytes) as (running, path):
        get = running.target.request("GET", path)
        watch = running.target.request("GET", f"{path}?watch=true")
        pipelined = get * sizes.pipelined
        cases = [
            (f"{count} unread watches", _measure_unread(running, watch, count)),
            (f"{count} unread lists", _measure_unread(running, get, count)),
            (
                f"{flood} x {sizes.pipelined} unread lists",
                _measure_unread(running, pipelined, flood),
            ),
            (
                f"{flood} x {sizes.pipelined} lists",
                _measure_read(running, pipelined, flood, sizes.flood_s),
            ),
        ]
        return [m for name, memory in cases for m in memory.measurements(name)]


def _measure_large_object(sizes: Sizes) -> list[Measurement]:
    count = sizes.connections
    with _run_filled_server(1, sizes.large_object_bytes) as (running, path):
        watch = running.target.request("GET", f"{path}?watch=true")
        get = running.target.request("GET", path)
        cases = [
            (f"{count} unread watches of a large object", _measure_unread(running, watch, count)),
            (f"{count} unread lists of a large object", _measure_unread(running, get, count)),
        ]
        return [m for name, memory in cases for m in memory.measurements(name)]


@contextmanager
def _run_filled_server(objects: int, object_bytes: int) -> Iterator[tuple[Running, str]]:
    """A server with ConfigMaps, and their path."""
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        state = Path(folder) / "state"
        with platform(state, PLANE, "--no-controllers", "--driver", "simulated") as running:
            path = f"{running.prefix}/api/v1/namespaces/default/configmaps"
            run_loop(_fill(running.target, path, objects, object_bytes))
            yield running, path


async def _fill(target: Target, path: str, objects: int, object_bytes: int) -> None:
    async with load_connections(target, 1) as (connection,):
        for number in range(objects):
            metadata, data = {"name": f"c-{number}"}, {"a": "x" * object_bytes}
            body: JsonObject = {"apiVersion": "v1", "kind": "ConfigMap"}
            body |= {"metadata": metadata, "data": data}
            created = await connection.send(target.request("POST", path, encode(body)))
            assert created[9:12] == b"201", created[:300]


def _measure_unread(running: Running, request: bytes, connections: int) -> Memory:
    """Send the request on many connections and read no response."""
    return _measure_memory(running, request, connections, lambda _: time.sleep(0.1), SETTLE_S)


def _measure_read(running: Running, request: bytes, connections: int, seconds: float) -> Memory:
    """Send the request on many connections and read the responses."""
    return _measure_memory(running, request, connections, _read_available, seconds)


def _measure_memory(
    running: Running,
    request: bytes,
    connections: int,
    step: Callable[[list[ssl.SSLSocket]], None],
    seconds: float,
) -> Memory:
    before = highest = running.rss_mb()
    with ExitStack() as stack:
        opened: list[ssl.SSLSocket] = []
        for _ in range(connections):
            opened.append(stack.enter_context(_open_connection(running.target)))
            opened[-1].sendall(request)
            highest = max(highest, running.rss_mb())
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            step(opened)
            highest = max(highest, running.rss_mb())
    time.sleep(RELEASE_S)
    return Memory(before, highest, running.rss_mb())


def _read_available(opened: list[ssl.SSLSocket]) -> None:
    """Read once from every connection that has data."""
    with DefaultSelector() as selector:
        for connection in opened:
            if connection.fileno() >= 0:
                selector.register(connection, EVENT_READ, connection)
        for key, _ in selector.select(timeout=0.1):
            try:
                if not key.data.recv(1 << 20):
                    key.data.close()
            except OSError:
                key.data.close()


def _open_connection(target: Target) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", target.port))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return target.tls.wrap_socket(plain, server_hostname="127.0.0.1")
