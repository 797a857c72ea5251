"""The measured processes: the product, and a server that only responds."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from bench.load import Target
from datum_compute.client.auth.kubeconfig import connection_of, load_kubeconfig

START_S = 120.0
_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Running:
    """A process with its address. ``started_s`` is the time until it was ready."""

    pid: int
    target: Target
    prefix: str
    started_s: float

    def cpu_s(self) -> float:
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def rss_mb(self) -> float:
        pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        return pages * _PAGE_BYTES / 1e6

    def busy_share(self, seconds: float) -> float:
        """Return the share of one core that the process uses."""
        before = self.cpu_s()
        time.sleep(seconds)
        return (self.cpu_s() - before) / seconds


@contextmanager
def platform(state: Path, plane: str, *flags: str) -> Iterator[Running]:
    """Run the local platform. The target has the token of the administrator of the plane."""
    command = [sys.executable, "-m", "datum_compute.app.local_server", "--log-level", "error"]
    start = time.perf_counter()
    process = subprocess.Popen([*command, "--state-dir", str(state), *flags])
    try:
        kubeconfig = state / "kubeconfig"
        while not (kubeconfig.exists() and _listens(state)):
            assert process.poll() is None, "the platform exited before it was ready"
            assert time.perf_counter() - start < START_S, "the platform is not ready in time"
            time.sleep(0.005)
        started_s = time.perf_counter() - start
        connection = connection_of(load_kubeconfig([kubeconfig]), plane)
        assert connection.ca_pem is not None
        port = int(connection.server.rpartition(":")[2])
        tls = ssl.create_default_context(cadata=connection.ca_pem.decode())
        target = Target(port, tls, connection.token)
        yield Running(process.pid, target, connection.path_prefix, started_s)
    finally:
        terminate(process)


def _listens(state: Path) -> bool:
    try:
        port = json.loads((state / "server.json").read_text())["port"]
        socket.create_connection(("127.0.0.1", port)).close()
    except (OSError, ValueError):
        return False
    return True


@contextmanager
def echo(state: Path, body: bytes, peer: str = "uvicorn") -> Iterator[Running]:
    """Run a server that only responds, with the certificate of a platform."""
    file = state / f"echo-{len(body)}"
    file.write_bytes(body)
    start = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.echo", str(state), str(file), peer],
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        tls = ssl.create_default_context(cafile=str(state / "ca.crt"))
        yield Running(process.pid, Target(port, tls), "", time.perf_counter() - start)
    finally:
        terminate(process)


def terminate(process: subprocess.Popen[str] | subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    if process.stdout is not None:
        process.stdout.close()


def end_on_sigterm() -> None:
    """Let SIGTERM end this program as Ctrl-C does, so that it stops the processes it started."""
    signal.signal(signal.SIGTERM, _exit)


def _exit(number: int, _frame: FrameType | None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a second signal does not interrupt the cleanup
    sys.exit(128 + number)
