"""The registry of a process: what every process tells, to which its parts add their own.

Parts take the registry as an argument (``ServerMetrics(registry)``, ``EventRecorder(registry=)``,
``RuntimeMetrics(registry)``); each family is registered once for each process.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from datum_compute import __version__

_HEAD_BYTES_MAX = 16 * 1024
_PATIENCE_S = 10.0


def process_registry() -> CollectorRegistry:
    """CPU, memory, file descriptors, garbage collection, and which release this is."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    Info("datum_build", "The release of datum-compute.", registry=registry).info(
        {"version": __version__}
    )
    return registry


@asynccontextmanager
async def metrics_port(
    address: tuple[str, int] | None, registry: CollectorRegistry
) -> AsyncIterator[int]:
    """Serve the registry while the block runs; the port it listens on, 0 for none at all."""
    if address is None:
        yield 0
        return
    server = await asyncio.start_server(
        _answering(lambda: generate_latest(registry)), *address, limit=_HEAD_BYTES_MAX
    )
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _answering(
    page: Callable[[], bytes],
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """Two pages and one request for each connection: no more HTTP than a scraper needs."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head.partition(b"\r\n")[0], page))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever that was is gone, or was no scraper
        finally:
            writer.close()

    return answer


def _response(request_line: bytes, page: Callable[[], bytes]) -> bytes:
    method, _, rest = request_line.partition(b" ")
    path = rest.partition(b" ")[0].partition(b"?")[0]
    content_type, status = "text/plain; charset=utf-8", "200 OK"
    if method not in (b"GET", b"HEAD"):
        status, body = "405 Method Not Allowed", b"only GET\n"
    elif path == b"/metrics":
        content_type, body = CONTENT_TYPE_LATEST, page()
    elif path == b"/healthz":
        body = b"ok"
    else:
        status, body = "404 Not Found", b"there is /metrics and /healthz\n"
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else body)
