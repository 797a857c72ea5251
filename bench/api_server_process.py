"""An API server of one plane in a separate process, over TLS, without compute controllers.

``python -m bench.api_server_process FOLDER`` stores its database and its certificate in FOLDER, and
prints its port. With ``controllers`` it runs the controllers of an API server, such as the garbage
collector.
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
from bench.processes import terminate
from datum_compute.app.certificates import ensure_certificate
from datum_compute.app.environment import process_environment
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
def run_api_server(folder: Path, *with_: str) -> Iterator[Connection]:
    """Start the server; return the connection to it."""
    folder.mkdir()
    command = [sys.executable, "-m", "bench.api_server_process", str(folder), *with_]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        authority = (folder / "ca.crt").read_bytes()
        yield Connection(f"https://127.0.0.1:{port}", "", ca_pem=authority)
    finally:
        terminate(process)


def open_to(connection: Connection) -> AbstractAsyncContextManager[Transport]:
    """Open a transport as the manager does."""
    outside = AuthEnvironment(environ={}, is_terminal=False, unix_s=time.time, random=Random(1))
    return open_transport(connection, outside)


@asynccontextmanager
async def new_world_over_tls(state: Path) -> AsyncIterator[World]:
    """Run the controllers here and the API server in a separate process."""
    written: list[Recorded] = []
    with run_api_server(state / "served", WITH_CONTROLLERS) as connection:
        async with open_to(connection) as sending:
            transport = RecordingTransport(sending, written)
            async with managed(client_of(transport, "manager"), process_environment()):
                world = World(client_of(transport, "user"), written, lambda: len(written))
                await world.wait_until_quiet()
                settle_memory()
                yield world


async def serve(
    folder: Path, controllers: Sequence[Controller[Context]], stop: asyncio.Event
) -> None:
    certificate = ensure_certificate(folder, datetime.now(UTC))
    async with served(folder / "bench.db", process_environment(), controllers) as platform:
        await bring_up(platform, [])
        settle_memory()
        server = HttpServer(platform.dispatch, time.time)
        with bind_listener(0) as bound:
            await server.start(bound, api_tls_context(certificate))
            print(bound.getsockname()[1], flush=True)
            try:
                await stop.wait()
            finally:
                platform.server.close_streams()
                await server.stop()


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    beside = registry.CLUSTER if WITH_CONTROLLERS in sys.argv[2:] else ()
    sys.exit(run_until_stopped(lambda stop: serve(folder, beside, stop)))
