"""A transport to a plane that is far away: everything takes so much longer, at the same pace."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from msgspec.structs import replace

from datum_compute.api.http import ByteStream, Request, Response
from datum_compute.client.transport.interface import Transport

# Events of one watch that are on their way at most.
_UNDER_WAY = 10_000


class DistantTransport:
    def __init__(self, inner: Transport, latency_s: float) -> None:
        self._inner = inner
        self._latency_s = latency_s

    async def send(self, request: Request) -> Response:
        await asyncio.sleep(self._latency_s)
        response = await self._inner.send(request)
        if response.stream is None:
            return response
        return replace(response, stream=_DistantStream(response.stream, self._latency_s))


class _DistantStream:
    """Takes lines as they come, and hands out each when it would have arrived."""

    def __init__(self, inner: ByteStream, latency_s: float) -> None:
        self._inner = inner
        self._latency_s = latency_s
        self._lines: asyncio.Queue[tuple[float, bytes | Exception]] = asyncio.Queue(_UNDER_WAY)
        self._taking = asyncio.get_running_loop().create_task(self._take())

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        due_s, line = await self._lines.get()
        wait_s = due_s - asyncio.get_running_loop().time()
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if isinstance(line, Exception):
            raise line
        return line

    async def aclose(self) -> None:
        self._taking.cancel()
        await asyncio.wait([self._taking])
        await self._inner.aclose()

    async def _take(self) -> None:
        loop = asyncio.get_running_loop()
        end: Exception = StopAsyncIteration()
        try:
            async for line in self._inner:
                await self._lines.put((loop.time() + self._latency_s, line))
        except Exception as error:
            end = error
        await self._lines.put((loop.time() + self._latency_s, end))
