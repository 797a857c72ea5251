"""The server process of the local platform: find it, start it in the background, stop it.

The server writes ``server.json`` (pid and port) to its state directory when it listens, and pid 0
when it ends. The pid in the file may since belong to another process, so it is valid only if the
command line of that process names the state directory. No other process is signaled.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import Request
from datum_compute.app.ingress_server import DIRECTORY_FLAG as INGRESS_FLAG
from datum_compute.app.ingress_server import LOCK_FILE as INGRESS_LOCK
from datum_compute.app.ingress_server import SOCKET_FILE as INGRESS_SOCKET
from datum_compute.app.state_directory import describe_disk_problem
from datum_compute.cli.errors import OtherError, TimedOutError
from datum_compute.client.transport.http1 import Http1Transport
from datum_compute.client.transport.interface import Timeouts

_POLL_INTERVAL_S = 0.05
_LOG = "server.log"
_LOG_LINES = 20


@dataclass(frozen=True, slots=True)
class LocalProcess:
    pid: int
    port: int

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}"


def server_command(
    state_dir: Path, *, port: int, driver: str, engine: str = "", cells: str = ""
) -> list[str]:
    # -P keeps the working directory of the user off the module path.
    start = [sys.executable, "-P", "-m", "datum_compute.app.local_server"]
    chosen = [*(("--engine", engine) if engine else ()), *(("--cells", cells) if cells else ())]
    return [*start, "--state-dir", str(state_dir), "--port", str(port), "--driver", driver, *chosen]


def prepare_state_dir(state_dir: Path) -> None:
    """Create the directory for its owner only: it contains keys and tokens."""
    try:
        state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        state_dir.chmod(0o700)
    except OSError as error:
        raise _unusable(state_dir, error) from error


def _unusable(state_dir: Path, error: OSError) -> OtherError:
    why = describe_disk_problem(state_dir) or error.strerror
    return OtherError(
        f"The state directory {state_dir} cannot be used: {why}.",
        "Choose another with --state-dir.",
    )


def find_running(state_dir: Path) -> LocalProcess | None:
    """Return the server of this state directory, if its process is alive."""
    try:
        recorded = json.loads((state_dir / "server.json").read_bytes())
        running = LocalProcess(int(recorded["pid"]), int(recorded["port"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return running if _is_server(running.pid, state_dir) else None


def _is_server(pid: int, state_dir: Path, flag: str = "--state-dir") -> bool:
    return (flag.encode(), os.fsencode(state_dir)) in pairwise(_arguments(pid))


def is_suspended(running: LocalProcess) -> bool:
    """Return True if the process is suspended by SIGSTOP."""
    try:
        stat = Path(f"/proc/{running.pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] in ("T", "t")


def _arguments(pid: int) -> list[bytes]:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return []


async def is_ready(state_dir: Path, running: LocalProcess) -> bool:
    try:
        authority = (state_dir / "ca.crt").read_bytes()
        timeouts = Timeouts(connect_s=2, read_s=2)
        async with Http1Transport(running.url, ca_pem=authority, timeouts=timeouts) as transport:
            answer = await transport.send(Request("GET", "/readyz"))
    except (OSError, ValueError, Unreachable):
        return False
    return answer.status == 200


async def wait_ready(state_dir: Path, running: LocalProcess, *, timeout_s: float) -> None:
    """Wait for a running server. Raise TimedOutError if it does not respond."""
    try:
        async with asyncio.timeout(timeout_s):
            await _poll(lambda: is_ready(state_dir, running))
    except TimeoutError:
        raise TimedOutError(
            f"The platform in {state_dir} (pid {running.pid}) runs but does not respond."
        ) from None


async def start_detached(
    command: Sequence[str], state_dir: Path, *, timeout_s: float = 60
) -> LocalProcess:
    """Start the server in a session of its own and wait until it is ready."""
    child = _launch(command, state_dir)
    try:
        async with asyncio.timeout(timeout_s):
            running = await _ready_child(child, state_dir)
    except TimeoutError:
        _stop_child(child)
        raise TimedOutError(
            f"The platform was not ready after {timeout_s:.0f} s and was stopped.",
            _log_tail(state_dir),
        ) from None
    except BaseException:
        _stop_child(child)
        raise
    child.returncode = 0  # it outlives this process; otherwise Popen warns about that
    return running


def _launch(command: Sequence[str], state_dir: Path) -> subprocess.Popen[bytes]:
    """Start the process without our terminal, pipes and open files, except for the log."""
    with _new_log(state_dir) as sink:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
            close_fds=True,
            cwd=state_dir,
        )


def _new_log(state_dir: Path) -> BinaryIO:
    log = state_dir / _LOG
    try:
        if log.exists():
            log.replace(state_dir / f"{_LOG}.1")
        return open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "wb")
    except OSError as error:
        raise _unusable(state_dir, error) from error


async def _ready_child(child: subprocess.Popen[bytes], state_dir: Path) -> LocalProcess:
    while True:
        ended = child.poll() is not None
        running = find_running(state_dir)
        # The child, or a server that another command started first at the same time.
        if running and (running.pid == child.pid or ended) and await is_ready(state_dir, running):
            return running
        if ended and running is None:
            raise OtherError(
                f"The platform ended while it was starting (exit {child.returncode}).",
                _log_tail(state_dir),
            )
        await asyncio.sleep(_POLL_INTERVAL_S)


def _stop_child(child: subprocess.Popen[bytes]) -> None:
    """Stop a child process that did not become ready."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(timeout=5)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _log_tail(state_dir: Path) -> str:
    log = state_dir / _LOG
    lines = log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
    if problem := describe_disk_problem(state_dir):
        # The log may be incomplete.
        return "\n".join((f"{problem[0].upper()}{problem[1:]}.", *lines))
    return "\n".join((f"Last lines of {log}:", *(f"  {line}" for line in lines)))


async def stop(state_dir: Path, *, grace_s: float = 15) -> LocalProcess | None:
    """Stop the platform. Return the stopped process, or None if none was running."""
    running = find_running(state_dir)
    if running is None:
        return None
    for sent, patience_s in ((signal.SIGTERM, grace_s), (signal.SIGKILL, 5.0)):
        try:
            os.kill(running.pid, sent)
        except ProcessLookupError:
            return running
        if await _has_ended(running.pid, state_dir, patience_s):
            return running
    raise OtherError(f"The platform in {state_dir} (pid {running.pid}) cannot be stopped.")


def find_ingress(state_dir: Path) -> int | None:
    """Return the pid of the ingress, which serves published ports, if its process is alive."""
    try:
        pid = int((state_dir / INGRESS_LOCK).read_text())
    except (OSError, ValueError):
        return None
    return pid if _is_server(pid, state_dir, INGRESS_FLAG) else None


async def stop_ingress(state_dir: Path) -> int | None:
    """Stop the ingress. Return its pid, or None if none was running."""
    pid = find_ingress(state_dir)
    if pid is None:
        return None
    for sent in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.kill(pid, sent)
        except ProcessLookupError:
            return pid
        if await _has_ended(pid, state_dir, 5.0, INGRESS_FLAG):
            (state_dir / INGRESS_SOCKET).unlink(missing_ok=True)  # a killed process leaves it
            return pid
    raise OtherError(f"The ingress in {state_dir} (pid {pid}) cannot be stopped.")


async def _has_ended(
    pid: int, state_dir: Path, patience_s: float, flag: str = "--state-dir"
) -> bool:
    async def has_exited() -> bool:
        return not _is_server(pid, state_dir, flag)

    try:
        async with asyncio.timeout(patience_s):
            await _poll(has_exited)
    except TimeoutError:
        return False
    return True


async def _poll(is_done: Callable[[], Awaitable[bool]]) -> None:
    """Poll, because a file and a process that is not a child send no notification."""
    while True:
        if await is_done():
            return
        await asyncio.sleep(_POLL_INTERVAL_S)


# --- The files of the local platform
# Only files that the platform itself writes are deleted, by name, so that a wrong --state-dir does
# not lose other files.


_DATABASE = "store.db"
_PLATFORM_FILES = (
    *(f"{_DATABASE}*", "store.lock"),
    *("tokens.json", "server.json", "port.json", "cells.json", "chaos.json", "driver.json"),
    "machines-*.json",
    *("ca.crt", "ca.key", "server.crt", "server.key", "service-accounts.key"),
    *("kubeconfig", "manager.kubeconfig", "audit.log*", "server.log*", ".*.new"),
    *("driver.json", "membership.json", "cell.key", "cell.crt", "hub-ca.crt"),
    *("ingress.json", "ingress.lock", "ingress.log*"),
)
# Folders of restores: the previous state, and the remains of an interrupted restore.
_RESTORE_FOLDERS = ("before-restore-*", ".restore-*")


def log_file(state_dir: Path) -> Path:
    return state_dir / "server.log"


class LogFileReader:
    """Reads whole lines, each once. Detects that a restart replaced the file."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._inode = 0
        self._offset = 0

    def read_new_lines(self) -> list[str]:
        """Return the lines since the last call; the first call returns all lines."""
        try:
            file = self._log.open("rb")
        except FileNotFoundError:  # in the middle of being replaced
            return []
        with file:
            found = os.fstat(file.fileno())
            if found.st_ino != self._inode or found.st_size < self._offset:
                self._inode, self._offset = found.st_ino, 0
            file.seek(self._offset)
            whole, newline, _ = file.read().rpartition(b"\n")
        self._offset += len(whole) + len(newline)
        return whole.decode(errors="replace").split("\n") if newline else []


def has_platform_state(state_dir: Path) -> bool:
    return any((state_dir / name).exists() for name in (_DATABASE, "tokens.json"))


def remove_state(state_dir: Path) -> None:
    """Delete the state, the database last: after a crash, the command can be repeated."""
    try:
        for path in sorted(_files(state_dir), key=lambda path: path.name.startswith(_DATABASE)):
            path.unlink(missing_ok=True)
        for pattern in _RESTORE_FOLDERS:
            for folder in state_dir.glob(pattern):
                shutil.rmtree(folder)
        cells = state_dir / "cells"
        if cells.is_dir() and not any(cells.iterdir()):
            cells.rmdir()
        if not any(state_dir.iterdir()):
            state_dir.rmdir()
    except OSError as error:
        raise OtherError(f"{error.filename} cannot be deleted: {error.strerror}.") from error


def _files(state_dir: Path) -> Iterator[Path]:
    for pattern in _PLATFORM_FILES:
        yield from (path for path in state_dir.glob(pattern) if path.is_file())
