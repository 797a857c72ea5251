"""A connection that has left HTTP: bytes both ways, at the pace of who reads them."""

from __future__ import annotations

import asyncio

from datum_compute.server.http.response_writer import Outgoing

BUFFER_BYTES_MAX = 256 * 1024


class Switched:
    """The ``Duplex`` of a client. What it sends waits here until somebody reads; when that is much,
    no more is taken from it."""

    def __init__(self, transport: asyncio.Transport, out: Outgoing, first: bytes) -> None:
        self._transport = transport
        self._out = out
        self._arrived = bytearray(first)
        self._news = asyncio.Event()
        self._is_paused = False
        self._has_ended = False
        if first:
            self._news.set()
        transport.resume_reading()

    # --- called by the connection

    def feed(self, data: bytes) -> None:
        self._arrived += data
        self._news.set()
        if len(self._arrived) > BUFFER_BYTES_MAX and not self._is_paused:
            self._is_paused = True
            self._transport.pause_reading()

    def end(self) -> None:
        """The client has gone, or the port stops."""
        self._has_ended = True
        self._news.set()

    # --- called by whoever talks

    async def read(self) -> bytes:
        await self._news.wait()
        data, self._arrived = bytes(self._arrived), bytearray()
        if not self._has_ended:
            self._news.clear()
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        if await self._out.wait_writable():
            self._out.write(data)

    async def aclose(self) -> None:
        self._has_ended = True
        self._news.set()
        self._out.close()
