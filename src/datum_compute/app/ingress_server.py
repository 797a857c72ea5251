"""``compute-ingress``: the process that serves the published ports of a host.

The process of the cells starts it in a session of its own, so that it outlives that process. Its
files are in the state directory:

- ``ingress.lock`` is locked by the process that accepts connections, and contains its pid.
- ``ingress.sock`` is the control socket (``ingress/control.py``).
- ``ingress.json`` is the last configuration. It is sufficient to start and serve.
- ``ingress.log`` is the log.

If an ingress of another version runs, a new process takes over its sockets. The previous process
ends when its connections have ended.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from datum_compute import __version__
from datum_compute.app.debounced_file import DebouncedFile, Write
from datum_compute.app.state_directory import (
    ensure_private_directory,
    write_private,
    write_without_sync,
)
from datum_compute.drivers.local_network import connect_on_link
from datum_compute.ingress.configuration import (
    Configuration,
    ConfigurationError,
    decode_configuration,
)
from datum_compute.ingress.control import Control, IngressIdentity
from datum_compute.ingress.machines import CellLinks, MachinePool
from datum_compute.ingress.protocol import (
    BlockingLink,
    ControlLink,
    HandedOver,
    Hello,
    LinkClosed,
    Sockets,
    TakenOver,
    TakeOver,
    Welcome,
)
from datum_compute.ingress.proxy import Proxy
from datum_compute.telemetry.logs import configure_logging

try:
    from uvloop import new_event_loop
except ImportError:  # an optional extra
    from asyncio import new_event_loop  # type: ignore[assignment]

LOCK_FILE, SOCKET_FILE = "ingress.lock", "ingress.sock"
CONFIGURATION_FILE, LOG_FILE = "ingress.json", "ingress.log"
DIRECTORY_FLAG = "--ingress-dir"
# How long a start waits for another process that starts or hands over at the same time.
START_TIMEOUT_S = 30.0
# An ingress without ports, cells and connections ends after this time.
UNUSED_S = 10
_POLL_S = 0.05
# How long it may take until an accepted connection is included in the number of connections.
_COUNTED_AFTER_S = 0.5
# The address of a unix socket has at most 107 bytes.
_ADDRESS_BYTES_MAX = 100
# The control socket until its process has the lock.
_NEW_SOCKET_FILE = f".{SOCKET_FILE}.new"

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="compute-ingress", description="Serve published ports.")
    parser.add_argument(DIRECTORY_FLAG, type=Path, required=True, help="State directory.")
    parser.add_argument("--detach", action="store_true", help="Run in the background.")
    parser.add_argument(
        "--replace", action="store_true", help="Take over from a running ingress of this version."
    )
    options = parser.parse_args(arguments)
    configure_logging("info", "console")
    os.umask(0o077)
    directory = ensure_private_directory(options.ingress_dir)
    if options.detach:
        _detach()
    try:
        start = prepare_start(directory, must_replace=options.replace)
    except (OSError, LinkClosed, TimeoutError) as error:
        print(f"Error: {error}", file=sys.stderr)  # noqa: T201
        return 1
    if start is None:
        return 0  # an ingress of this version runs
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(_serve_until_signal(directory, start))
    return 0


async def _serve_until_signal(directory: Path, start: IngressStart) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await serve_ingress(directory, start, stop)


def _detach() -> None:
    """Continue in a child process with its own session, and end the process that was started."""
    if os.fork():
        os._exit(0)
    os.setsid()


# --- Exactly one process for a state directory


@dataclass(slots=True)
class IngressStart:
    """The lock and configuration of a new process, and its predecessor if it has one."""

    lock: int  # of the locked file
    version: str
    configuration: Configuration = field(default_factory=Configuration)
    predecessor: BlockingLink | None = None
    draining: tuple[str, ...] = ()


def prepare_start(
    directory: Path, *, must_replace: bool = False, version: str = __version__
) -> IngressStart | None:
    """Lock the state directory, or take over from the ingress that has locked it.

    Returns None if an ingress of this version runs and is not to be replaced.
    """
    lock = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    deadline_s = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline_s:
        if _try_lock(lock):
            return IngressStart(lock, version, _read_configuration(directory))
        with suppress(FileNotFoundError, ConnectionRefusedError):
            start = _take_over(directory, version, must_replace=must_replace)
            os.close(lock)
            return start
        time.sleep(_POLL_S)
    raise TimeoutError(f"an ingress of {directory} runs and does not respond")


def _try_lock(lock: int) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _take_over(directory: Path, version: str, *, must_replace: bool) -> IngressStart | None:
    """Receive sockets, configuration and lock of the running ingress; None to let it continue."""
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(START_TIMEOUT_S)
    with ExitStack() as undo:
        link = BlockingLink(connection)
        undo.callback(link.close)
        with unix_address(directory) as address:
            connection.connect(address)
        link.send(Hello(version, "successor"))
        welcome = link.receive()
        if not isinstance(welcome, Welcome):
            raise LinkClosed("the running ingress did not answer")
        if welcome.version == version and not must_replace:
            return None
        link.send(TakeOver())
        while isinstance(message := link.receive(), Sockets):
            continue
        if not isinstance(message, HandedOver):
            raise LinkClosed("the running ingress did not hand over")
        try:
            configuration = decode_configuration(message.configuration)
        except ConfigurationError as error:
            raise LinkClosed(f"the configuration of the running ingress: {error}") from error
        undo.pop_all()
        return IngressStart(link.lock, version, configuration, link, message.draining)


def _read_configuration(directory: Path) -> Configuration:
    """Return the stored configuration; empty if it is not readable, until the cells connect."""
    try:
        return decode_configuration((directory / CONFIGURATION_FILE).read_bytes())
    except FileNotFoundError:
        return Configuration()
    except (OSError, ConfigurationError) as error:
        _log.warning("%s cannot be used: %s", directory / CONFIGURATION_FILE, error)
        return Configuration()


@contextmanager
def unix_address(directory: Path, name: str = SOCKET_FILE) -> Iterator[str]:
    """Yield an address of a unix socket, also if its path is too long to be an address."""
    path = str(directory / name)
    if len(os.fsencode(path)) <= _ADDRESS_BYTES_MAX:
        yield path
        return
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{name}"
    finally:
        os.close(handle)


# --- Serving


def _elapsed_s() -> float:
    # The clock of the cell processes as well, because both record times of the same wake.
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)


async def serve_ingress(directory: Path, start: IngressStart, stop: asyncio.Event) -> None:
    """Serve until ``stop`` is set or the ingress is unused.

    After a replacement it ends when its last connection has ended.
    """
    with ExitStack() as locked:
        locked.callback(os.close, start.lock)
        control = _build_control(directory, start)
        predecessor = None if start.predecessor is None else await _open_link(start.predecessor)
        await control.restore(start.configuration)
        for machine_id in start.draining:
            await control.proxy.drain(machine_id)
        control.proxy.close_inherited()
        server = await _listen(directory, control)
        async with asyncio.TaskGroup() as group:
            tasks = []
            if predecessor is not None:
                predecessor.send(TakenOver())
                tasks.append(group.create_task(control.serve_predecessor(predecessor)))
            _publish_files(directory, start.lock)
            control.save_now()
            _log.info("ready, ports: %d, state in %s", len(control.proxy.ports), directory)
            await _wait_until_stopped(control, stop)
            if control.replaced.is_set():
                _log.info("replaced; serving open connections: %d", control.proxy.connections)
                server.close()
                locked.close()  # the successor holds the same lock
                await _wait_for_connections(control, stop)
            control.save_now()
            await _stop(control, server)
            if not control.replaced.is_set():
                (directory / SOCKET_FILE).unlink(missing_ok=True)
            for task in tasks:
                task.cancel()
    _log.info("stopped")


async def _stop(control: Control, server: asyncio.Server) -> None:
    server.close()
    control.stop_predecessors()
    await control.proxy.close()
    if control.has_predecessors:
        await asyncio.sleep(_POLL_S)  # until they have received the request to stop


def _build_control(directory: Path, start: IngressStart) -> Control:
    links = CellLinks(_elapsed_s)

    def write_unless_replaced(write: Write, path: Path, content: bytes) -> None:
        if not control.replaced.is_set():
            write(path, content)

    def save_now() -> None:
        try:
            write_unless_replaced(write_without_sync, path, control.encode())
        except OSError as error:
            _log.warning("cannot write %s: %s", path, error)
            save()  # repeats the write until it succeeds

    path = directory / CONFIGURATION_FILE
    save = DebouncedFile(
        path,
        lambda: control.encode(),
        write=partial(write_unless_replaced, write_without_sync),
        write_synced=partial(write_unless_replaced, write_private),
        must_write_first=False,
    )
    machines = MachinePool(links, _elapsed_s, save)
    sockets = {} if start.predecessor is None else start.predecessor.sockets
    proxy = Proxy(machines, machines, _elapsed_s, connect_on_link, sockets)
    identity = IngressIdentity(start.version, os.getpid(), os.geteuid())
    control = Control(
        identity,
        proxy,
        machines,
        links,
        start.lock,
        save,
        save_now,
    )
    return control


async def _open_link(predecessor: BlockingLink) -> ControlLink:
    predecessor.connection.setblocking(False)
    return ControlLink(*await asyncio.open_unix_connection(sock=predecessor.connection))


async def _listen(directory: Path, control: Control) -> asyncio.Server:
    """Listen on a new socket, which ``_publish_files`` renames to the control socket."""
    name = _NEW_SOCKET_FILE
    (directory / name).unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX)
    with unix_address(directory, name) as address:
        listening.bind(address)
    (directory / name).chmod(0o600)  # before it listens
    return await asyncio.start_unix_server(control.handle, sock=listening)


def _publish_files(directory: Path, lock: int) -> None:
    """Write the pid to the locked file, and replace the control socket of the predecessor."""
    content = str(os.getpid()).encode()
    try:
        os.pwrite(lock, content, 0)
        os.ftruncate(lock, len(content))
    except OSError as error:
        _log.warning("cannot write the pid to %s: %s", directory / LOCK_FILE, error)
    (directory / _NEW_SOCKET_FILE).replace(directory / SOCKET_FILE)


async def _wait_until_stopped(control: Control, stop: asyncio.Event) -> None:
    """Wait for a signal or a successor, or until the process has been unused for a while."""
    waits = [asyncio.create_task(event.wait()) for event in (stop, control.replaced)]
    unused = 0
    try:
        while unused < UNUSED_S:
            done, _ = await asyncio.wait(waits, timeout=1.0, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return
            unused = 0 if control.is_in_use else unused + 1
    finally:
        for wait in waits:
            wait.cancel()


async def _wait_for_connections(control: Control, stop: asyncio.Event) -> None:
    await asyncio.sleep(_COUNTED_AFTER_S)
    while control.proxy.connections or control.has_predecessors:
        if stop.is_set() or control.successor_stopping.is_set():
            return
        await asyncio.sleep(_POLL_S)


if __name__ == "__main__":
    sys.exit(main())
