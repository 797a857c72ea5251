"""The all-in-one process behind ``datumctl compute local up``.

Its state directory holds everything: the database, the certificates, the tokens, the kubeconfig.
Started again on the same directory it goes on where it was.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from datum_compute.api.codec import DecodeError, decode_as, encode
from datum_compute.api.plane import cell_plane, project_plane
from datum_compute.app.auditlog import AuditLog
from datum_compute.app.credentials import Credentials, ensure_credentials
from datum_compute.app.files import StateError, private_directory, write_private
from datum_compute.app.front import HOST, build_front, listening_socket
from datum_compute.app.kubeconfig import write_kubeconfig
from datum_compute.app.loop import run_until_stopped
from datum_compute.app.machines import simulated_driver
from datum_compute.app.metrics import process_registry
from datum_compute.app.ports import real_ports
from datum_compute.app.settings import LocalSettings, local_settings
from datum_compute.app.signingkey import ensure_signer
from datum_compute.app.tls import ServerCertificate, ensure_certificate
from datum_compute.app.tracing import tracing
from datum_compute.app.wiring import EVERYTHING, Layout, Platform
from datum_compute.controllers import registry
from datum_compute.server.asgi import AsgiApp
from datum_compute.store.journal import JournalBroken, JournalError
from datum_compute.store.sqlite import SqliteJournal
from datum_compute.telemetry.logs import configure_logging
from datum_compute.telemetry.traces import Tracer

PROJECT = project_plane("default")
CELLS = (cell_plane("dfw"),)

_log = logging.getLogger("datum_compute.local")


def main(arguments: Sequence[str] | None = None) -> int:
    settings = local_settings(sys.argv[1:] if arguments is None else arguments)
    configure_logging(settings.telemetry.log_level, settings.telemetry.log_format)
    os.umask(0o077)
    try:
        with tracing(settings.telemetry.otlp_endpoint, "datum-compute") as tracer:
            return run_until_stopped(lambda stop: serve(settings, stop, tracer))
    except (JournalError, StateError, OSError) as error:
        problem: BaseException = error
    except BaseExceptionGroup as group:
        broken = group.subgroup(JournalBroken)
        if broken is None:
            raise
        problem = broken.exceptions[0]
    print(f"Error: {problem}", file=sys.stderr)  # noqa: T201
    return 1


@dataclass(frozen=True, slots=True)
class _Process:
    """The parts of the process that run together."""

    state: Path
    platform: Platform
    certificate: ServerCertificate
    credentials: Credentials
    audit: AuditLog


async def serve(settings: LocalSettings, stop: asyncio.Event, tracer: Tracer | None = None) -> None:
    state = private_directory(settings.state_dir)
    ports = real_ports()
    drivers = {
        cell: simulated_driver(
            state / f"machines-{cell.replace('/', '-')}.json", ports.unix_s, boot_s=settings.boot_s
        )
        for cell in CELLS
    }
    layout = Layout((PROJECT,), drivers)
    credentials = ensure_credentials(state / "tokens.json", layout.planes)
    certificate = ensure_certificate(state, datetime.now(UTC))
    journal = SqliteJournal(state / "store.db")
    controllers = EVERYTHING if settings.controllers else registry.NEIGHBOURS
    audit = AuditLog(state / "audit.log")
    platform = Platform(
        layout,
        ports,
        journal,
        credentials,
        controllers=controllers,
        authority=certificate.authority.read_text(),
        signer=ensure_signer(state / "service-accounts.key"),
        audit=audit.keep,
        registry=process_registry(),
        tracer=tracer,
    )
    announcement = state / "server.json"
    with _bound_socket(settings) as bound:
        try:
            gc.disable()  # what is read now stays: looking for garbage in it is lost time
            await platform.load()
            # From here on the directory is ours: whoever looks for its server finds this one.
            port = bound.getsockname()[1]
            write_private(announcement, encode({"pid": os.getpid(), "port": port}))
            try:
                await _run(_Process(state, platform, certificate, credentials, audit), bound, stop)
            finally:
                announcement.unlink(missing_ok=True)
        finally:
            await audit.flush()
            await journal.close()


async def _run(process: _Process, bound: socket.socket, stop: asyncio.Event) -> None:
    """Serve until told to stop."""
    port = bound.getsockname()[1]
    platform, state = process.platform, process.state
    async with asyncio.TaskGroup() as group:
        auditing = group.create_task(process.audit.run())
        running = group.create_task(platform.run())
        if not await _is_ready(running, platform.ready, stop):
            running.cancel()
            auditing.cancel()
            return
        settle_memory()
        front = build_front(AsgiApp(platform.server), process.certificate)
        serving = group.create_task(front.serve(sockets=[bound]))
        _write_kubeconfigs(process, port)
        _remember(state, port)
        _log.info("ready on https://%s:%d, state in %s", HOST, port, state)
        try:
            await stop.wait()
        finally:
            platform.server.close_streams()
            front.should_exit = True
        await serving
        running.cancel()
        auditing.cancel()


def _write_kubeconfigs(process: _Process, port: int) -> None:
    known = process.credentials
    for name, tokens, operator in (
        ("kubeconfig", known.planes, known.operator),
        ("manager.kubeconfig", known.of_manager, ""),
    ):
        write_kubeconfig(
            process.state / name,
            server=f"https://{HOST}:{port}",
            authority=process.certificate.authority.read_bytes(),
            tokens=tokens,
            current=PROJECT,
            operator=operator,
        )


def settle_memory() -> None:
    """From here on the collector looks at what is new only, and less often."""
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
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


def _bound_socket(settings: LocalSettings) -> socket.socket:
    """The port that was asked for; without a wish that of the last run if it is free."""
    if settings.port:
        return listening_socket(settings.port)
    last = _remembered(settings.state_dir)
    if last:
        try:
            return listening_socket(last)
        except OSError:
            _log.warning("port %d of the last run is taken; choosing another", last)
    return listening_socket(0)


def _remember(state: Path, port: int) -> None:
    if _remembered(state) != port:
        write_private(state / "port.json", encode({"port": port}))


def _remembered(state: Path) -> int:
    """Only a hint: what cannot be read is as good as nothing."""
    try:
        port = decode_as((state / "port.json").read_bytes(), dict[str, int]).get("port", 0)
    except (OSError, DecodeError):
        return 0
    return port if 0 < port < 65536 else 0


if __name__ == "__main__":
    sys.exit(main())
