"""A process that serves planes on a TLS port until it receives SIGTERM or SIGINT.

``compute-server`` and ``compute-cell`` build a ``ServerProcess``; everything else is shared here.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from datum_compute.api.compute.server import SERVER
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.meta.codec import encode
from datum_compute.api.traffic import owner_name
from datum_compute.app.audit_log import AuditLog
from datum_compute.app.driver_selection import DriverSet, require_same_driver
from datum_compute.app.ingress_client import IngressClient
from datum_compute.app.platform import Platform
from datum_compute.app.settings.settings import TelemetrySettings
from datum_compute.app.state_directory import (
    StateError,
    describe_disk_problem,
    read_last_port,
    replace_or_overwrite,
    save_driver,
    save_port,
)
from datum_compute.app.tracing import tracing
from datum_compute.gateway.authorizer import Dispatch, LocalGatewayAuthorizer
from datum_compute.gateway.gateway import Gateway
from datum_compute.server.http.listen import ServerCertificate, api_tls_context, bind_listener
from datum_compute.server.http.send_budget import PortLimits, fit_to_file_limit, raise_file_limit
from datum_compute.server.http.server import HttpServer
from datum_compute.store.journal import Journal, JournalBroken, JournalError
from datum_compute.telemetry.context import Tracer
from datum_compute.telemetry.logs import configure_logging

try:
    from uvloop import new_event_loop
except ImportError:  # an optional extra
    from asyncio import new_event_loop  # type: ignore[assignment]

R = TypeVar("R")
Serve = Callable[[asyncio.Event, Tracer | None], Awaitable[None]]
BackgroundTask = Callable[[], Awaitable[None]]

_log = logging.getLogger(__name__)


# --- The event loop of a process


def run_until_stopped(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> int:
    """Run ``serve`` with an event that is set on SIGTERM and SIGINT. Return the exit code."""
    run_loop(_with_signals(serve))
    return 0


def run_loop(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run the coroutine to its end, on uvloop if it is installed."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


async def _with_signals(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(stop)


def run_process(telemetry: TelemetrySettings, name: str, state: Path, serve: Serve) -> int:
    """Run ``serve`` until stopped. Return the exit code; a failed start is one line on stderr."""
    configure_logging(telemetry.log_level, telemetry.log_format)
    os.umask(0o077)
    try:
        with tracing(telemetry.otlp_endpoint, name) as tracer:
            return run_until_stopped(lambda stop: _serve_traced(serve, stop, tracer))
    except (JournalError, StateError, OSError) as error:
        problem: BaseException = error
    except BaseExceptionGroup as group:
        broken = group.subgroup(JournalBroken)
        if broken is None:
            raise
        problem = broken.exceptions[0]
    disk_problem = describe_disk_problem(state)
    message = f"{disk_problem}: {problem}" if disk_problem else problem
    print(f"Error: {message}", file=sys.stderr)  # noqa: T201
    return 1


async def _serve_traced(serve: Serve, stop: asyncio.Event, tracer: Tracer | None) -> None:
    await serve(stop, tracer)


# --- Garbage collection
# Objects that the store loads at the start are never garbage, so collection is off during the
# start. ``settle_memory`` excludes them from all later collections.
#
# A collection stops the event loop for 0.1 to 0.4 us per object that it traverses. The collections
# of young objects are frequent and short (about 0.2 ms), so that they do not delay requests. Those
# of the middle generation traverse what survived 20 of them. All objects are traversed rarely.

YOUNG_OBJECTS_MAX = 1_000
_MIDDLE_COLLECTION_EVERY = 20  # collections of young objects
_FULL_COLLECTION_EVERY = 2_500  # collections of the middle generation


@contextmanager
def paused_garbage_collection() -> Iterator[None]:
    """Turn collection off, and on again however the block ends."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def settle_memory() -> None:
    """Exclude all current objects from garbage collection, and traverse all others rarely."""
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS_MAX, _MIDDLE_COLLECTION_EVERY, _FULL_COLLECTION_EVERY)
    gc.enable()


# --- Serving planes


@dataclass(frozen=True, slots=True)
class ServerStorage:
    """The files of a process that are closed when it stops."""

    directory: Path
    journal: Journal
    audit: AuditLog


@dataclass(frozen=True, slots=True)
class ApiPort:
    """The TLS port of the API."""

    certificate: ServerCertificate
    limits: PortLimits


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The parts of a process that run together.

    ``on_ready`` is called with the port number before the process is reported as ready.
    ``background_tasks`` run from then on.
    """

    platform: Platform
    storage: ServerStorage
    machines: DriverSet
    port: ApiPort
    on_ready: Callable[[int], None]
    background_tasks: Sequence[BackgroundTask] = ()


async def serve_until(process: ServerProcess, bound: socket.socket, stop: asyncio.Event) -> None:
    """Serve on the bound socket until ``stop`` is set, then close the socket."""
    storage = process.storage
    announcement = storage.directory / "server.json"
    with bound:
        try:
            with paused_garbage_collection():
                await process.platform.load()
                _require_same_driver(process)
                # From here on this process owns the directory, and clients find it there.
                port = bound.getsockname()[1]
                replace_or_overwrite(announcement, encode({"pid": os.getpid(), "port": port}))
                try:
                    await _run(process, bound, stop)
                finally:
                    # The file stays, so that the next start can write it on a full disk.
                    with suppress(OSError):
                        replace_or_overwrite(announcement, encode({"pid": 0, "port": port}))
        finally:
            await process.machines.close()
            await storage.audit.flush()
            await storage.journal.close()


async def _run(process: ServerProcess, bound: socket.socket, stop: asyncio.Event) -> None:
    port = bound.getsockname()[1]
    platform, machines = process.platform, process.machines
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(process.storage.audit.run())]
        tasks += [group.create_task(run()) for run in machines.background_tasks]
        running = group.create_task(platform.run())
        tasks.append(running)
        if not await _wait_until_ready(running, platform.ready, stop):
            for task in tasks:
                task.cancel()
            return
        settle_memory()
        limits = fit_to_file_limit(process.port.limits, raise_file_limit())
        server = HttpServer(_dispatch(process), platform.unix_s, limits, platform.registry)
        await server.start(bound, api_tls_context(process.port.certificate))
        process.on_ready(port)
        _remember_choices(process, port)
        if isinstance(machines.traffic, IngressClient):
            await machines.traffic.withdraw_unknown_owners(partial(_list_owners, process))
        tasks += [group.create_task(_as_coroutine(task)) for task in process.background_tasks]
        host, summary = bound.getsockname()[0], machines.choice.summary
        state = process.storage.directory
        _log.info("ready on https://%s:%d, state in %s, %s", host, port, state, summary)
        try:
            await stop.wait()
        finally:
            platform.server.close_streams()
            await server.stop()
        for task in tasks:
            task.cancel()


def _require_same_driver(process: ServerProcess) -> None:
    platform, machines = process.platform, process.machines
    cells = [cell for cell in machines.drivers if platform.store.has_plane(cell)]
    instances = sum(platform.count_objects(cell, SERVER) for cell in cells)
    require_same_driver(process.storage.directory, machines.choice, instances)


def _list_owners(process: ServerProcess) -> list[str]:
    """Return the owners of published ports: the deployments of the cells of this process."""
    platform = process.platform
    cells = [cell for cell in process.machines.drivers if platform.store.has_plane(cell)]
    return [owner_name(cell, ref) for cell in cells for ref in platform.list_refs(cell, DEPLOYMENT)]


def _remember_choices(process: ServerProcess, port: int) -> None:
    """Record port and driver for the next run."""
    state, choice = process.storage.directory, process.machines.choice
    save_port(state, port)
    if process.machines.drivers:
        save_driver(state, choice.driver, choice.engine)


def _dispatch(process: ServerProcess) -> Dispatch:
    """Return the dispatch of the gateway, which forwards other requests to the API server."""
    platform, unix_s = process.platform, process.platform.unix_s
    api = platform.server.dispatch
    identify = platform.server.authenticator.audited_users
    authorizer = LocalGatewayAuthorizer(api, identify, unix_s, process.storage.audit.record)
    endpoints = process.machines.endpoints
    return Gateway(api, platform.bootstrap_client, endpoints, authorizer, unix_s).dispatch


async def _as_coroutine(task: BackgroundTask) -> None:
    await task()


async def _wait_until_ready(
    running: asyncio.Task[None], ready: asyncio.Event, stop: asyncio.Event
) -> bool:
    """Return False if stopped before ready. Raises if the platform failed."""
    waits = [asyncio.create_task(event.wait()) for event in (ready, stop)]
    await asyncio.wait((running, *waits), return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if running.done():
        running.result()
    return ready.is_set()


def bind_api_socket(state_dir: Path, port: int, host: str) -> socket.socket:
    """Bind the port; for port 0, the port of the last run if it is free, else any free port."""
    if port:
        return bind_listener(port, host)
    last = read_last_port(state_dir)
    if last:
        try:
            return bind_listener(last, host)
        except OSError:
            _log.warning("port %d of the last run is in use; selecting another", last)
    return bind_listener(0, host)
