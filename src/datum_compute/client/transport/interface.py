"""The transport protocol: one method that sends a request to a server and returns the response.

Transports are stacked: retries (retry.py) around authentication (``auth/credentials.py``) around a
socket (http1.py). In the process of the server, in_process.py calls its dispatch directly.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from datum_compute.api.http import Request, Response, is_upgrade

# Shorter than the idle timeout of our server, so that no request is sent on a closing connection.
IDLE_CONNECTION_MAX_S = 60.0
CONCURRENT_REQUESTS_MAX = 8


class Transport(Protocol):
    async def send(self, request: Request) -> Response:
        """Return the response, whatever its status; raise Unreachable if there is none."""
        ...


class CloseableTransport(Transport, Protocol):
    """A transport that holds connections."""

    async def aclose(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Timeouts:
    """``read_s`` limits the silence of the server.

    A watch may be silent for its own timeoutSeconds in addition.
    """

    connect_s: float = 5.0
    read_s: float = 30.0

    def read_timeout_s(self, request: Request) -> float:
        watch_s = float(request.query.get("timeoutSeconds", 0)) if is_watch(request) else 0.0
        return self.read_s + watch_s


def is_watch(request: Request) -> bool:
    return request.query.get("watch") in ("1", "true")


class BoundedTransport:
    """Limits the number of concurrent requests; others wait.

    A process that works on the planes of other processes opens a connection for each request in
    progress. A burst of a hundred writes would open a hundred connections, which costs both sides
    more than the writes do. Many such processes together keep a server so busy with handshakes
    that connections time out and are opened again.

    Watches and upgraded connections do not count, because they last. Put this transport below the
    retries, so that a request holds no slot while it waits for its next attempt.
    """

    def __init__(self, inner: Transport, concurrent_max: int = CONCURRENT_REQUESTS_MAX) -> None:
        self._inner = inner
        self._slots = asyncio.Semaphore(concurrent_max)

    async def send(self, request: Request) -> Response:
        if is_watch(request) or is_upgrade(request):
            return await self._inner.send(request)
        async with self._slots:
            return await self._inner.send(request)
