"""A process that serves planes on its TLS port until it is told to stop: what all of them share."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from datum_compute.api.meta.codec import encode
from datum_compute.app.audit_log import AuditLog
from datum_compute.app.driver_selection import Machines
from datum_compute.app.platform import Platform
from datum_compute.app.settings.settings import TelemetrySettings
from datum_compute.app.state_directory import (
    StateError,
    disk_trouble,
    remember_driver,
    remember_port,
    remembered_port,
    write_over,
)
from datum_compute.app.tracing import tracing
from datum_compute.gateway.authorizer import Dispatch, LocalGatewayAuthorizer
from datum_compute.gateway.cells import CellEndpoints
from datum_compute.gateway.gateway import Gateway
from datum_compute.server.http.listen import ServerCertificate, api_tls_context, bind_listener
from datum_compute.server.http.send_budget import PortLimits, fit_to_file_limit, raise_file_limit
from datum_compute.server.http.server import HttpServer
from datum_compute.store.journal import Journal, JournalBroken, JournalError
from datum_compute.telemetry.context import Tracer
from datum_compute.telemetry.logs import configure_logging

# --- Runs a process until SIGTERM or SIGINT, on uvloop where it is installed


try:
    from uvloop import new_event_loop
except ImportError:  # an optional extra
    from asyncio import new_event_loop  # type: ignore[assignment]

R = TypeVar("R")


def run_until_stopped(serve: Callable[[asyncio.Event], Coroutine[Any, Any, None]]) -> int:
    """``serve`` is given the event that says it is time to stop; returns the exit code."""
    run_loop(_with_signals(serve))
    return 0


def run_loop(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run to the end, on the loop the processes run on."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


async def _with_signals(serve: Callable[[asyncio.Event], Awaitable[None]]) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    await serve(stop)


# --- serving


_log = logging.getLogger(__name__)

Serve = Callable[[asyncio.Event, Tracer | None], Awaitable[None]]
Beside = Callable[[], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class ServerProcess:
    """The parts of the process that run together. ``when_ready`` is told the port before anybody is
    told that the process is ready; ``beside`` runs from then on."""

    state: Path
    platform: Platform
    journal: Journal
    certificate: ServerCertificate
    audit: AuditLog
    unix_s: Callable[[], float]
    when_ready: Callable[[int], None]
    machines: Machines
    ways: CellEndpoints
    beside: Sequence[Beside] = ()
    port_limits: PortLimits = field(default_factory=PortLimits)


def run_process(telemetry: TelemetrySettings, name: str, state: Path, serve: Serve) -> int:
    """The exit code; what stands in the way of starting is said in one line."""
    configure_logging(telemetry.log_level, telemetry.log_format)
    os.umask(0o077)
    try:
        with tracing(telemetry.otlp_endpoint, name) as tracer:

            async def served(stop: asyncio.Event) -> None:
                await serve(stop, tracer)

            return run_until_stopped(served)
    except (JournalError, StateError, OSError) as error:
        problem: BaseException = error
    except BaseExceptionGroup as group:
        broken = group.subgroup(JournalBroken)
        if broken is None:
            raise
        problem = broken.exceptions[0]
    trouble = disk_trouble(state)
    said = f"{trouble}: {problem}" if trouble else problem
    print(f"Error: {said}", file=sys.stderr)  # noqa: T201
    return 1


async def serve_until(serving: ServerProcess, bound: socket.socket, stop: asyncio.Event) -> None:
    """Serve on the bound socket, which is closed in the end."""
    announcement = serving.state / "server.json"
    with bound:
        try:
            gc.disable()  # what is read now stays: looking for garbage in it is lost time
            await serving.platform.load()
            # From here on the directory is ours: whoever looks for its server finds this one.
            port = bound.getsockname()[1]
            write_over(announcement, encode({"pid": os.getpid(), "port": port}))
            try:
                await _run(serving, bound, stop)
            finally:
                # The file stays, so that the next start has room for it on a full disk.
                with suppress(OSError):
                    write_over(announcement, encode({"pid": 0, "port": port}))
        finally:
            await serving.machines.close()
            await serving.audit.flush()
            await serving.journal.close()


async def _run(serving: ServerProcess, bound: socket.socket, stop: asyncio.Event) -> None:
    port = bound.getsockname()[1]
    platform = serving.platform
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(serving.audit.run())]
        tasks += [group.create_task(run()) for run in serving.machines.runs]
        running = group.create_task(platform.run())
        tasks.append(running)
        if not await _is_ready(running, platform.ready, stop):
            for task in tasks:
                task.cancel()
            return
        settle_memory()
        limits = fit_to_file_limit(serving.port_limits, raise_file_limit())
        front = HttpServer(_dispatch(serving), serving.unix_s, limits, platform.registry)
        await front.start(bound, api_tls_context(serving.certificate))
        serving.when_ready(port)
        remember_port(serving.state, port)
        if serving.machines.drivers:
            remember_driver(serving.state, serving.machines.driver, serving.machines.engine)
        tasks += [group.create_task(_coroutine(beside)) for beside in serving.beside]
        host, told = bound.getsockname()[0], serving.machines.told
        _log.info("ready on https://%s:%d, state in %s, %s", host, port, serving.state, told)
        try:
            await stop.wait()
        finally:
            platform.server.close_streams()
            await front.stop()
        for task in tasks:
            task.cancel()


def _dispatch(serving: ServerProcess) -> Dispatch:
    """The API server, behind the gateway."""
    platform, unix_s = serving.platform, serving.unix_s
    inner = platform.server.dispatch
    doorkeeper = LocalGatewayAuthorizer(inner, unix_s, serving.audit.keep)
    client_of = platform.bootstrap_client
    return Gateway(inner, client_of, serving.ways, doorkeeper, unix_s).dispatch


async def _coroutine(run: Beside) -> None:
    await run()


def settle_memory() -> None:
    """Exclude all present objects from garbage collection, and collect new ones less often.

    A collection of the youngest generation takes about 0.25 ms for 1,000 objects, in which the
    loop serves no request.
    """
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    gc.enable()


async def _is_ready(running: asyncio.Task[None], ready: asyncio.Event, stop: asyncio.Event) -> bool:
    """Wait until the platform is ready, has failed trying, or is told to stop before that."""
    waits = [asyncio.create_task(event.wait()) for event in (ready, stop)]
    await asyncio.wait((running, *waits), return_when=asyncio.FIRST_COMPLETED)
    for wait in waits:
        wait.cancel()
    if running.done():
        running.result()
    return ready.is_set()


def bound_socket(state_dir: Path, wanted: int, host: str) -> socket.socket:
    """The port that was asked for; without a wish that of the last run if it is free."""
    if wanted:
        return bind_listener(wanted, host)
    last = remembered_port(state_dir)
    if last:
        try:
            return bind_listener(last, host)
        except OSError:
            _log.warning("port %d of the last run is taken; choosing another", last)
    return bind_listener(0, host)
