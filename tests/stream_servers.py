"""Stream servers for tests. Leaving the context closes every connection that was accepted.

`asyncio.Server.wait_closed` does not wait for the handlers of connections. A handler that is still
reading when the event loop ends leaves its socket open, and pytest reports that socket as a
ResourceWarning of a later test.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

LOOPBACK = "127.0.0.1"

StreamHandler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def close_at_once(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    """Handle a connection by closing it."""


@asynccontextmanager
async def serve_tcp(
    handler: StreamHandler, tls: ssl.SSLContext | None = None
) -> AsyncIterator[int]:
    """Yield the port of a server on the loopback address."""
    connections = _Connections(handler)
    server = await asyncio.start_server(connections.handle, LOOPBACK, 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        server.close()
        await connections.aclose()


@asynccontextmanager
async def serve_unix(handler: StreamHandler, socket: str) -> AsyncIterator[None]:
    connections = _Connections(handler)
    server = await asyncio.start_unix_server(connections.handle, socket)
    try:
        yield
    finally:
        server.close()
        await connections.aclose()


class _Connections:
    """Runs the handler of each connection and closes the connection after it."""

    def __init__(self, handler: StreamHandler) -> None:
        self._handler = handler
        self._tasks: set[asyncio.Task[None]] = set()

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._handler(reader, writer)
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self._tasks.discard(task)

    async def aclose(self) -> None:
        """Cancel the handlers that still run, and wait until all sockets are closed."""
        await asyncio.sleep(0)  # a connection that was just accepted starts its handler
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
