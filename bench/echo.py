"""The floors: servers over TLS that only respond.

``python -m bench.echo FOLDER BODY PEER`` serves the bytes of the file BODY with the certificate in
FOLDER, on the loop and parser the product uses, and prints its port. The peer is ``uvicorn``, which
GETs are compared with, or ``http``, our HTTP server, whose echo is the lower bound of a request.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn

from datum_compute.api.http import Request, Response
from datum_compute.app.process import run_until_stopped
from datum_compute.server.http.listen import ServerCertificate, api_tls_context, bind_listener
from datum_compute.server.http.server import HttpServer


def create_app(body: bytes) -> Any:
    headers = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
    ]

    async def app(_scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return app


class EmbeddedServer(uvicorn.Server):
    """Leaves the process's signals alone."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def uvicorn_echo(folder: Path, body: bytes, bound: socket.socket) -> AsyncIterator[None]:
    config = uvicorn.Config(
        create_app(body),
        ssl_certfile=str(folder / "server.crt"),
        ssl_keyfile=str(folder / "server.key"),
        http="httptools",
        ws="none",
        lifespan="off",
        loop="none",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
    )
    server = EmbeddedServer(config)
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    yield
    server.should_exit = True
    await serving


@asynccontextmanager
async def http_echo(folder: Path, body: bytes, bound: socket.socket) -> AsyncIterator[None]:
    async def respond(_request: Request) -> Response:
        return Response(200, body)

    files = ServerCertificate(folder / "ca.crt", folder / "server.crt", folder / "server.key")
    server = HttpServer(respond, time.time)
    await server.start(bound, api_tls_context(files))
    yield
    await server.stop()


PEERS = {"uvicorn": uvicorn_echo, "http": http_echo}


async def serve(folder: Path, body: bytes, peer: str, stop: asyncio.Event) -> None:
    with bind_listener(0) as bound:
        async with PEERS[peer](folder, body, bound):
            print(bound.getsockname()[1], flush=True)
            await stop.wait()


if __name__ == "__main__":
    folder, body, peer = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes(), sys.argv[3]
    sys.exit(run_until_stopped(lambda stop: serve(folder, body, peer, stop)))
