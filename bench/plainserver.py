"""An API server of one plane, in a process of its own and over TLS, without compute controllers.

``python -m bench.plainserver FOLDER`` keeps its database and its certificate in FOLDER, and prints
its port. With ``neighbours`` it has its garbage collector and whatever else an API server brings.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from bench.instance_world import (
    Recorded,
    RecordingTransport,
    World,
    bring_up,
    client_of,
    managed,
    served,
)
from bench.processes import ended
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.environment import real_ports
from datum_compute.app.process import run_until_stopped, settle_memory
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.credentials import AuthEnvironment
from datum_compute.client.connect import open_transport
from datum_compute.client.transport.interface import Transport
from datum_compute.controllers import registry
from datum_compute.controllers.context import Context
from datum_compute.runtime.controller import Controller
from datum_compute.server.http.listen import api_tls_context, bind_listener
from datum_compute.server.http.server import HttpServer

WITH_CONTROLLERS = "controllers"


@contextmanager
def plain_server(folder: Path, *with_: str) -> Iterator[Connection]:
    """Started anew; the way to it."""
    folder.mkdir()
    command = [sys.executable, "-m", "bench.plainserver", str(folder), *with_]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        authority = (folder / "ca.crt").read_bytes()
        yield Connection(f"https://127.0.0.1:{port}", "", ca_pem=authority)
    finally:
        ended(process)


def reached(connection: Connection) -> AbstractAsyncContextManager[Transport]:
    """As the manager reaches its planes."""
    outside = AuthEnvironment(environ={}, is_terminal=False, unix_s=time.time, random=Random(1))
    return open_transport(connection, outside)


@asynccontextmanager
async def new_world_over_tls(state: Path) -> AsyncIterator[World]:
    """The controllers here, and the API server they work on in its own process."""
    written: list[Recorded] = []
    with plain_server(state / "served", WITH_CONTROLLERS) as connection:
        async with reached(connection) as sending:
            transport = RecordingTransport(sending, written)
            async with managed(client_of(transport, "manager"), real_ports()):
                world = World(client_of(transport, "user"), written, lambda: len(written))
                await world.quiet()
                settle_memory()
                yield world


async def serve(
    folder: Path, controllers: Sequence[Controller[Context]], stop: asyncio.Event
) -> None:
    certificate = ensure_certificate(folder, datetime.now(UTC))
    async with served(folder / "bench.db", real_ports(), controllers) as platform:
        await bring_up(platform, [])
        settle_memory()
        front = HttpServer(platform.dispatch, time.time)
        with bind_listener(0) as bound:
            await front.start(bound, api_tls_context(certificate))
            print(bound.getsockname()[1], flush=True)
            try:
                await stop.wait()
            finally:
                platform.server.close_streams()
                await front.stop()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    beside = registry.CLUSTER if WITH_CONTROLLERS in sys.argv[2:] else ()
    sys.exit(run_until_stopped(lambda stop: serve(folder, beside, stop)))
