"""Latency of a GET of one user while another project floods the server.

A separate process sends the flood over many connections. Each sends the next request as soon as it
has a response, and ignores Retry-After. The probe sends one GET every few milliseconds
to another plane. Its p99 is compared with that on an idle server.

Each flood is measured in several rounds, each after a round on the idle server. The figures are the
medians of the rounds, so that one disturbance of the machine does not decide. The p99 of one round
depends on only 7 requests.

Users have machines of their own. So the probe has a higher priority of the operating system than
the server, and the flood a lower one: the flood uses all of its core, but neither the probe nor the
server waits for a core.

A request does not count if the probe or a thread of the server waited for a core for more than
``CORE_WAIT_MAX_S`` meanwhile, because another program used it. Threads of the server wait for each
other for less than that. The bench prints how many requests do not count.

On a machine that runs other programs, give the bench real-time priority as well:
``chrt -f 50 nice -n -10 python -m bench fairness``.
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
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from statistics import median

from bench.load import LoadConnection, Target, load_connections
from bench.measurement import RESULTS, Measurement, p50_ms, p99_ms
from bench.processes import Running, platform, terminate
from datum_compute.api.meta.codec import encode
from datum_compute.app.process import run_loop
from datum_compute.client.auth.kubeconfig import connection_of, load_kubeconfig

PROJECT, PLATFORM = "project/default", "platform"
ROUNDS = 3
SECONDS = 3.0
PAUSE_S = 0.004
CORE_WAIT_MAX_S = 0.001
CONNECTIONS = 100
LISTED_OBJECTS = 500
RATIO_MAX = 5.0
_PROBED = "/api/v1/namespaces/default"
_LISTED, _CREATED = "default", "created"  # namespaces
_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


@dataclass
class _Rounds:
    """The latencies of the probe in each round, in seconds."""

    idle_s: list[list[float]] = field(default_factory=list)
    flooded_s: list[list[float]] = field(default_factory=list)
    responses: Counter[str] = field(default_factory=Counter)
    cpu_s: float = 0.0


class _CoreWaits:
    """How long the threads of two processes, this one and the server, have waited for a core."""

    def __init__(self, server: int) -> None:
        pids = (os.getpid(), server)
        tasks = [task for pid in pids for task in Path(f"/proc/{pid}/task").iterdir()]
        self._files = [os.open(task / "schedstat", os.O_RDONLY) for task in tasks]

    def read_s(self) -> float:
        # The second field of each file, in nanoseconds.
        return sum(int(os.pread(file, 100, 0).split()[1]) for file in self._files) / 1e9

    def close(self) -> None:
        for file in self._files:
            os.close(file)


@dataclass
class _Probe:
    """Sends GETs to the server, one after the other."""

    connection: LoadConnection
    request: bytes
    server: int  # process id
    sent: int = 0
    uncounted: int = 0

    async def measure(self) -> list[float]:
        """Return the latencies of one round, in seconds."""
        taken_s = []
        with closing(_CoreWaits(self.server)) as core_waits:
            until_s = time.perf_counter() + SECONDS
            while time.perf_counter() < until_s:
                waited_s = core_waits.read_s()
                start_s = time.perf_counter()
                response = await self.connection.send(self.request)
                latency_s = time.perf_counter() - start_s
                assert response[9:12] == b"200", response[:300]
                self.sent += 1
                if core_waits.read_s() - waited_s <= CORE_WAIT_MAX_S:
                    taken_s.append(latency_s)
                else:
                    self.uncounted += 1
                await asyncio.sleep(PAUSE_S)
        return taken_s


def measure() -> list[Measurement]:
    RESULTS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=RESULTS) as folder:
        state = Path(folder) / "served"
        with platform(state, PLATFORM, "--no-controllers") as running:
            _raise_priority()
            return run_loop(_measure(running, state))


async def _measure(running: Running, state: Path) -> list[Measurement]:
    target = running.target
    load = Measurement("load of the machine", os.getloadavg()[0], "processes")
    by_flood = {name: _Rounds() for name in FLOODS}
    async with load_connections(target, 1) as (connection,):
        probe = _Probe(connection, target.request("GET", _PROBED), running.pid)
        await _create_listed_objects(state, target)
        for name, rounds in by_flood.items():
            for _ in range(ROUNDS):
                await _measure_round(running, state, probe, name, rounds)
    idle_s = [taken_s for rounds in by_flood.values() for taken_s in rounds.idle_s]
    idle_p99_ms = _median(p99_ms, idle_s)
    measured = [
        load,
        Measurement("GETs", probe.sent, "requests"),
        Measurement("GETs that do not count", probe.uncounted, "requests"),
        Measurement("GET, idle, p50", _median(p50_ms, idle_s), "ms"),
        Measurement("GET, idle, p99", idle_p99_ms, "ms"),
    ]
    for name, rounds in by_flood.items():
        measured += _measurements(name, rounds, RATIO_MAX * idle_p99_ms)
    return measured


async def _measure_round(
    running: Running, state: Path, probe: _Probe, name: str, rounds: _Rounds
) -> None:
    rounds.idle_s.append(await probe.measure())
    with _flood(state, name) as process:
        cpu_before_s = running.cpu_s()
        await asyncio.sleep(1.5)  # until all connections are open
        rounds.flooded_s.append(await probe.measure())
        rounds.responses.update(await asyncio.to_thread(_stop, process))
        rounds.cpu_s += running.cpu_s() - cpu_before_s
    await asyncio.sleep(0.5)  # until the server has closed the connections


def _measurements(name: str, rounds: _Rounds, p99_max_ms: float) -> list[Measurement]:
    p50 = _median(p50_ms, rounds.flooded_s)
    p99 = _median(p99_ms, rounds.flooded_s)
    ok, rejected = rounds.responses["ok"], rounds.responses["429"]
    cpu_us = rounds.cpu_s / max(1, ok) * 1e6
    return [
        Measurement(f"GET during {name}, p50", p50, "ms", "GET, idle, p50"),
        Measurement(f"GET during {name}, p99", p99, "ms", "GET, idle, p99", at_most=p99_max_ms),
        Measurement(f"{name}, answered", ok, "responses"),
        Measurement(f"{name}, rejected with 429", rejected, "responses"),
        Measurement(f"{name}, cost of a response", cpu_us, "us of CPU"),
    ]


def _median(statistic: Callable[[list[float]], float], rounds: list[list[float]]) -> float:
    return median(statistic(taken_s) for taken_s in rounds)


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


def _raise_priority() -> None:
    """Give this process a real-time priority above that of the server, which it has started."""
    if os.sched_getscheduler(0) == os.SCHED_FIFO:
        priority = os.sched_getparam(0).sched_priority + 1
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


def _lower_priority() -> list[str]:
    """Return a command that runs another one with a priority below that of the server."""
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
