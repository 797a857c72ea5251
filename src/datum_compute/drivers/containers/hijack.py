"""A connection to the engine that leaves HTTP for the streams of one process."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress

from datum_compute.api.codec import JsonObject, encode
from datum_compute.drivers.containers.engine import API, EngineRefusal, engine_words
from datum_compute.drivers.driver import TransientError

ANSWER_S = 30.0
_PIECE = 32 * 1024
_REFUSAL_BYTES_MAX = 64 * 1024
_BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)


class Hijacked:
    """Bytes of a process and for it; its input can be ended alone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Empty when the process has ended, or the engine is gone."""
        try:
            return await self._reader.read(_PIECE)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        with suppress(OSError):  # the end is heard by who reads
            self._writer.write(data)
            await self._writer.drain()

    def end_input(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


async def hijack(socket: str, path: str, body: JsonObject) -> Hijacked:
    """Start what the path names and stay attached to it."""
    try:
        async with asyncio.timeout(ANSWER_S):
            return await _hijacked(socket, path, body)
    except (TimeoutError, *_BROKEN) as error:
        why = "the container engine does not answer"
        raise TransientError(why) from error


async def _hijacked(socket: str, path: str, body: JsonObject) -> Hijacked:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        sent = encode(body)
        lines = (
            f"POST /{API}{path} HTTP/1.1",
            "host: engine",
            "content-type: application/json",
            f"content-length: {len(sent)}",
            "connection: Upgrade",
            "upgrade: tcp",
        )
        writer.write("\r\n".join((*lines, "", "")).encode() + sent)
        status, headers = _read_head(await reader.readuntil(b"\r\n\r\n"))
        if status >= 400:
            size = min(int(headers.get("content-length", 0)), _REFUSAL_BYTES_MAX)
            raise EngineRefusal(status, engine_words(await reader.readexactly(size)))
    except BaseException:
        writer.close()
        raise
    return Hijacked(reader, writer)


def _read_head(head: bytes) -> tuple[int, Mapping[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split()[1]), {n.strip().lower(): v.strip() for n, _, v in pairs}
