"""The registry of a process: what every process tells, to which its parts add their own.

Parts take the registry as an argument (``ServerMetrics(registry)``, ``EventRecorder(registry=)``,
``RuntimeMetrics(registry)``); each family is registered once for each process.
"""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

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
_TEXT = "text/plain; charset=utf-8"

Page = tuple[str, str, bytes]  # status, content type, body
Pages = Mapping[bytes, Callable[[], Page]]


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


def read_token(file: Path) -> bytes:
    """Read at every request: tokens are renewed. Without one nobody is let in."""
    try:
        return file.read_bytes().strip()
    except OSError:
        return b""


def metrics_pages(registry: CollectorRegistry) -> Pages:
    def metrics() -> Page:
        return "200 OK", CONTENT_TYPE_LATEST, generate_latest(registry)

    return {b"/metrics": metrics, b"/healthz": _ok}


def health_pages(what_is_missing: Callable[[], str]) -> Pages:
    """Alive as long as it answers; ready when nothing is missing."""

    def ready() -> Page:
        missing = what_is_missing()
        return ("503 Service Unavailable", _TEXT, f"{missing}\n".encode()) if missing else _ok()

    return {b"/healthz": _ok, b"/livez": _ok, b"/readyz": ready}


@asynccontextmanager
async def pages_port(
    address: tuple[str, int] | None, pages: Pages, token: Path | None = None
) -> AsyncIterator[int]:
    """Serve the pages while the block runs; the port it listens on, 0 for none at all. With the
    file of a token only for those who know what it holds."""
    if address is None:
        yield 0
        return
    try:
        server = await asyncio.start_server(
            _answering(pages, token), *address, limit=_HEAD_BYTES_MAX
        )
    except OSError as error:
        what = " and ".join(path.decode() for path in pages)
        raise OSError(
            f"{what}: cannot listen on {address[0]}:{address[1]}: {_why(error)}"
        ) from error
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()


def _why(error: OSError) -> str:
    """asyncio puts an address and an errno around it."""
    return os.strerror(error.errno) if error.errno else str(error)


def _ok() -> Page:
    return "200 OK", _TEXT, b"ok"


def _answering(
    pages: Pages, token: Path | None
) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]:
    """A few pages and one request for each connection: no more HTTP than a scraper needs."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                head = await reader.readuntil(b"\r\n\r\n")
                if token is not None and not _is_let_in(head, read_token(token)):
                    writer.write(_refusal())
                else:
                    writer.write(_response(head.partition(b"\r\n")[0], pages))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # whoever that was is gone, or was no scraper
        finally:
            writer.close()

    return answer


def _is_let_in(head: bytes, token: bytes) -> bool:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"authorization":
            scheme, _, told = value.strip().partition(b" ")
            is_token = hmac.compare_digest(told.strip(), token)
            return bool(token) and scheme.lower() == b"bearer" and is_token
    return False


def _refusal() -> bytes:
    body = b"a bearer token is needed\n"
    head = f"HTTP/1.1 401 Unauthorized\r\ncontent-type: {_TEXT}\r\nconnection: close\r\n"
    return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body


def _response(request_line: bytes, pages: Pages) -> bytes:
    method, _, rest = request_line.partition(b" ")
    page = pages.get(rest.partition(b" ")[0].partition(b"?")[0])
    if method not in (b"GET", b"HEAD"):
        status, content_type, body = "405 Method Not Allowed", _TEXT, b"only GET\n"
    elif page is not None:
        status, content_type, body = page()
    else:
        there = " and ".join(path.decode() for path in pages)
        status, content_type, body = "404 Not Found", _TEXT, f"there is {there}\n".encode()
    head = (
        f"HTTP/1.1 {status}\r\ncontent-type: {content_type}\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else body)
