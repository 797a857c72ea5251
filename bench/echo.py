"""The floor: uvicorn over TLS with an app that does nothing but answer.

``python -m bench.echo FOLDER BODY`` serves the bytes of the file BODY with the certificate in
FOLDER, on the loop and parser the product uses, and prints its port.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import uvicorn

from datum_compute.app.front import EmbeddedServer, listening_socket
from datum_compute.app.loop import run_until_stopped


def app_of(body: bytes) -> Any:
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


async def serve(folder: Path, body: bytes, stop: asyncio.Event) -> None:
    config = uvicorn.Config(
        app_of(body),
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
    front = EmbeddedServer(config)
    with listening_socket(0) as bound:
        serving = asyncio.create_task(front.serve(sockets=[bound]))
        while not front.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        print(bound.getsockname()[1], flush=True)
        await stop.wait()
        front.should_exit = True
        await serving


if __name__ == "__main__":
    folder, body = Path(sys.argv[1]), Path(sys.argv[2]).read_bytes()
    sys.exit(run_until_stopped(lambda stop: serve(folder, body, stop)))
