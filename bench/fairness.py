"""Latency of a GET of one user while another project floods the server.

A separate process sends the flood over many connections. Each sends the next request as soon as it
has a response, and ignores Retry-After. The probe sends one GET every few milliseconds
to another plane. Its p99 is compared with that on an idle server.

The flood has a lower priority of the operating system than the server and the probe: it uses all of
its core, but the probe does not wait for a core, as if the two ran on different machines.

On a machine that runs other programs, give the bench real-time priority, so that it does not
measure them: ``chrt -f 50 python -m bench fairness``.
"""

from __future__ import annotations

import asyncio
import json
import os
import ssl
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

from bench.load import LoadConnection, Target, load_connections
from bench.measurement import RESULTS, Measurement, p50_ms, p99_ms
from bench.processes import Running, platform, terminate
from datum_compute.api.meta.codec import encode
from datum_compute.app.process import run_loop
from datum_compute.client.auth.kubeconfig import connection_of, load_kubeconfig

PROJECT, PLATFORM = "project/default", "platform"
SECONDS = 5.0
PAUSE_S = 0.005
CONNECTIONS = 100
LISTED_OBJECTS = 500
RATIO_MAX = 5.0
_LISTED, _CREATED = "default", "created"  # namespaces
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def measure() -> list[Measurement]:
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        state = Path(folder) / "served"
        with platform(state, PLATFORM, "--no-controllers") as running:
            return run_loop(_measure(running, state))


async def _measure(running: Running, state: Path) -> list[Measurement]:
    target = running.target
    async with load_connections(target, 1) as (connection,):
        get = target.request("GET", "/api/v1/namespaces/default")
        await _create_listed_objects(state, target)
        idle = await _probe(connection, get)
        measured = [
            Measurement("load of the machine", os.getloadavg()[0], "processes"),
            Measurement("GET, idle, p50", p50_ms(idle), "ms"),
            Measurement("GET, idle, p99", p99_ms(idle), "ms"),
        ]
        for name in FLOODS:
            with _flood(state, name) as process:
                cpu_before_s = running.cpu_s()
                await asyncio.sleep(2.0)  # until all connections are open
                taken = await _probe(connection, get)
                responses = await asyncio.to_thread(_stop, process)
                cpu_s = running.cpu_s() - cpu_before_s
            limit = RATIO_MAX * p99_ms(idle)
            measured += [
                Measurement(f"GET during {name}, p50", p50_ms(taken), "ms", "GET, idle, p50"),
                Measurement(
                    f"GET during {name}, p99", p99_ms(taken), "ms", "GET, idle, p99", at_most=limit
                ),
                Measurement(f"{name}, answered", responses["ok"], "responses"),
                Measurement(f"{name}, rejected with 429", responses["429"], "responses"),
                Measurement(
                    f"{name}, cost of a response",
                    cpu_s / max(1, responses["ok"]) * 1e6,
                    "us of CPU",
                ),
            ]
    return measured


async def _probe(connection: LoadConnection, request: bytes) -> list[float]:
    taken_s = []
    until_s = time.perf_counter() + SECONDS
    while (start_s := time.perf_counter()) < until_s:
        response = await connection.send(request)
        taken_s.append(time.perf_counter() - start_s)
        assert response[9:12] == b"200", response[:300]
        await asyncio.sleep(PAUSE_S)
    return taken_s


async def _create_listed_objects(state: Path, target: Target) -> None:
    """Create the objects for the floods of lists."""
    flooding, prefix = _load_target(state)
    numbers = count()
    async with load_connections(flooding, 32) as opened:

        async def work(connection: LoadConnection) -> None:
            while (number := next(numbers)) < LISTED_OBJECTS:
                body = encode(_config_map(_LISTED, f"listed-{number}"))
                request = flooding.request("POST", prefix + _config_maps(_LISTED), body)
                response = await connection.send(request)
                assert response[9:12] == b"201", response[:300]

        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _CREATED}}
        request = flooding.request("POST", f"{prefix}/api/v1/namespaces", encode(namespace))
        assert (await opened[0].send(request))[9:12] == b"201"
        await asyncio.gather(*map(work, opened))


def _config_maps(namespace: str) -> str:
    return f"/api/v1/namespaces/{namespace}/configmaps"


def _config_map(namespace: str, name: str) -> dict[str, object]:
    metadata = {"name": name, "namespace": namespace}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata,
        "data": {"text": "x" * 1000},
    }


# --- the flood, in a separate process


def _load_target(state: Path) -> tuple[Target, str]:
    connection = connection_of(load_kubeconfig([state / "kubeconfig"]), PROJECT)
    assert connection.ca_pem is not None
    tls = ssl.create_default_context(cadata=connection.ca_pem.decode())
    port = int(connection.server.rpartition(":")[2])
    return Target(port, tls, connection.token), connection.path_prefix


@contextmanager
def _flood(state: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    command = [*_lower_priority(), sys.executable, "-m", "bench.fairness", str(state), name]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        terminate(process)


def _lower_priority() -> list[str]:
    """Return a command that runs another one with a priority below that of this process."""
    if os.sched_getscheduler(0) == os.SCHED_FIFO:
        return ["chrt", "--fifo", "1"]
    return ["nice", "-n", "19"]


def _stop(process: subprocess.Popen[str]) -> dict[str, int]:
    """Stop the flood and return the number of its responses by status."""
    output, _ = process.communicate("stop\n", timeout=60)
    found: dict[str, int] = json.loads(output)
    return found


def _build_gets(target: Target, prefix: str) -> Callable[[], bytes]:
    request = target.request("GET", f"{prefix}{_config_maps(_LISTED)}/listed-1")
    return lambda: request


def _build_lists(target: Target, prefix: str) -> Callable[[], bytes]:
    request = target.request("GET", prefix + _config_maps(_LISTED))
    return lambda: request


def _build_large_lists(target: Target, prefix: str) -> Callable[[], bytes]:
    request = target.request("GET", prefix + _config_maps(_CREATED))
    return lambda: request


def _build_tables(target: Target, prefix: str) -> Callable[[], bytes]:
    request = target.request("GET", prefix + _config_maps(_LISTED)).replace(
        b"accept: application/json\r\n", f"accept: {_TABLE}\r\n".encode()
    )
    return lambda: request


def _build_creates(target: Target, prefix: str) -> Callable[[], bytes]:
    numbers = count()

    def create() -> bytes:
        body = encode(_config_map(_CREATED, f"flood-{os.getpid()}-{next(numbers)}"))
        return target.request("POST", prefix + _config_maps(_CREATED), body)

    return create


FLOODS = {
    "a flood of GETs": _build_gets,
    "a flood of lists": _build_lists,
    "a flood of tables": _build_tables,
    "a flood of creates": _build_creates,
    "a flood of lists of all created objects": _build_large_lists,
}


async def _send_flood(state: Path, name: str) -> None:
    target, prefix = _load_target(state)
    next_request = FLOODS[name](target, prefix)
    responses: Counter[str] = Counter({"ok": 0, "429": 0})
    async with load_connections(target, CONNECTIONS) as opened:

        async def work(connection: LoadConnection) -> None:
            while True:
                response = await connection.send(next_request())
                responses["429" if response[9:12] == b"429" else "ok"] += 1

        tasks = [asyncio.create_task(work(connection)) for connection in opened]
        await asyncio.to_thread(sys.stdin.readline)
        for task in tasks:
            task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.gather(*tasks)
    sys.stdout.write(json.dumps(responses))


if __name__ == "__main__":
    run_loop(_send_flood(Path(sys.argv[1]), sys.argv[2]))
