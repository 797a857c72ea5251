"""The one-method seam between a client and whatever answers it.

Transports stack: retries (``retrying.py``) over signing in (``authenticated.py``) over the socket
(``lean.py``; ``http.py`` through a proxy); or straight to the server's dispatch (``inprocess.py``).
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Protocol

from datum_compute.api.http import Request, Response, is_upgrade

# Shorter than our own servers wait for the next request, so that none is sent into a closing one.
KEPT_IDLE_S = 60.0


class Transport(Protocol):
    async def send(self, request: Request) -> Response:
        """The answer, whatever its status; raises Unreachable when there is none."""
        ...


def is_watch(request: Request) -> bool:
    return request.query.get("watch") in ("1", "true")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """read_s is the longest silence; a watch may be silent for its own timeoutSeconds more."""

    connect_s: float = 5.0
    read_s: float = 30.0

    def silence_s(self, request: Request) -> float:
        more = float(request.query.get("timeoutSeconds", 0)) if is_watch(request) else 0.0
        return self.read_s + more


class OpenTransport(Transport, Protocol):
    """A transport that holds connections."""

    async def aclose(self) -> None: ...


# --- A transport over which only so many requests are under way at once; the others wait their turn
# For processes that work on planes of other processes. Every request that is under way takes a
# connection, and to begin one costs both sides more than several requests over it. A process that
# sends a hundred writes at once would begin a hundred; many such processes together keep a server
# so busy with it that connections are given up before they stand, and begun again.
#
# Watches do not count: they hold a connection of their own for as long as they last. Nor does what
# leaves HTTP. Put it under the retries, so that nobody holds a turn while waiting to try again.


AT_ONCE = 8


class BoundedTransport:
    def __init__(self, inner: Transport, at_once: int = AT_ONCE) -> None:
        self._inner = inner
        self._turns = asyncio.Semaphore(at_once)

    async def send(self, request: Request) -> Response:
        if is_watch(request) or is_upgrade(request):
            return await self._inner.send(request)
        async with self._turns:
            return await self._inner.send(request)
