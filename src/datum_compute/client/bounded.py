"""A transport over which only so many requests are under way at once; the others wait their turn.

For processes that work on planes of other processes. Every request that is under way takes a
connection, and to begin one costs both sides more than several requests over it. A process that
sends a hundred writes at once would begin a hundred; many such processes together keep a server so
busy with it that connections are given up before they stand, and begun again.

Watches do not count: they hold a connection of their own for as long as they last. Nor does what
leaves HTTP. Put it under the retries, so that nobody holds a turn while waiting to try again.
"""

from __future__ import annotations

import asyncio

from datum_compute.api.http import Request, Response, is_upgrade
from datum_compute.client.transport.interface import Transport, is_watch

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
