"""Accepting connections at the limits, over real sockets."""

from __future__ import annotations

import asyncio
import errno
import gc
import logging
import socket
import ssl
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pytest

from datum_compute.api.http import Request, Response
from datum_compute.app.certificates import ensure_certificate
from datum_compute.server.http.listen import ServerCertificate, api_tls_context, bind_listener
from datum_compute.server.http.metrics import LOG_EVERY_S, PortMetrics
from datum_compute.server.http.send_budget import PortLimits, raise_file_limit
from datum_compute.server.http.server import HttpServer
from tests.server.http.wire import request

ENOUGH_S = 30


async def answer(_request: Request) -> Response:
    return Response(200, b"{}")


@dataclass
class Port:
    front: HttpServer
    number: int

    async def connect(self, tls: ssl.SSLContext | None = None) -> tuple[asyncio.StreamReader, ...]:
        name = "127.0.0.1" if tls is not None else None
        return await asyncio.open_connection(  # type: ignore[return-value]
            "127.0.0.1", self.number, ssl=tls, server_hostname=name
        )


@asynccontextmanager
async def serving(
    files: ServerCertificate | None = None, bound: socket.socket | None = None, **limits: int
) -> AsyncIterator[Port]:
    front = HttpServer(answer, lambda: 0.0, PortLimits(**limits))
    with bound or bind_listener(0) as listening:
        await front.start(listening, api_tls_context(files) if files is not None else None)
        yield Port(front, listening.getsockname()[1])
        await front.stop()


async def test_the_oldest_handshake_of_an_address_makes_room_for_a_new_connection(
    tmp_path: Path,
) -> None:
    files = ensure_certificate(tmp_path, datetime.now(UTC))
    trusted = ssl.create_default_context(cafile=str(files.authority))
    async with serving(files, anonymous_connections_per_address_max=2) as port:
        silent = [await port.connect() for _ in range(2)]
        async with asyncio.timeout(ENOUGH_S):
            while port.front.table.count_by_state()["anonymous"] < 2:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
            reader, writer = await port.connect(trusted)
            writer.write(request(target="/version"))  # type: ignore[attr-defined]
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
            assert await silent[0][0].read() == b""
        assert port.front.metrics.closed_count("handshake", "address") == 1
        for _, open_writer in (*silent, (reader, writer)):
            open_writer.close()  # type: ignore[attr-defined]


async def test_a_refused_connection_is_closed_before_any_tls_work() -> None:
    async with serving(connections_max=1, reserved_connections=1) as port:
        port.front.table.admit("10.0.0.1", _Busy())
        port.front.table.admit("10.0.0.2", _Busy())
        reader, writer = await port.connect()
        async with asyncio.timeout(ENOUGH_S):
            assert await reader.read() == b""
        writer.close()  # type: ignore[attr-defined]
        assert port.front.metrics.closed_count("handshake", "refused") == 1
        assert port.front.metrics.limit_count("total") >= 1


class _Busy:
    is_idle = False

    def shed(self, reason: str) -> None:
        raise AssertionError("it is not idle")


class _WithoutFiles(socket.socket):
    """A listening socket of a process that has no file descriptor left for some time."""

    failures = 2

    def accept(self) -> tuple[socket.socket, object]:
        if self.failures:
            self.failures -= 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


async def test_without_file_descriptors_accepting_continues_when_there_are_some() -> None:
    bound = _WithoutFiles(socket.AF_INET, socket.SOCK_STREAM)
    bound.bind(("127.0.0.1", 0))
    async with serving(bound=bound) as port:
        reader, writer = await port.connect()
        writer.write(request(target="/version"))  # type: ignore[attr-defined]
        async with asyncio.timeout(ENOUGH_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        writer.close()  # type: ignore[attr-defined]
        assert port.front.metrics.limit_count("files") == 2


async def test_a_closed_connection_is_freed_without_the_garbage_collector(tmp_path: Path) -> None:
    files = ensure_certificate(tmp_path, datetime.now(UTC))
    trusted = ssl.create_default_context(cafile=str(files.authority))
    async with serving(files) as port:
        reader, writer = await port.connect(trusted)
        writer.write(request(target="/version"))  # type: ignore[attr-defined]
        await reader.readline()
        (connection,) = port.front._shared.connections
        parts: list[weakref.ref[object]] = [
            weakref.ref(connection),
            weakref.ref(connection._parser),
        ]
        del connection
        gc.disable()
        try:
            writer.close()  # type: ignore[attr-defined]
            async with asyncio.timeout(ENOUGH_S):
                while port.front.connections or any(part() is not None for part in parts):  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
        finally:
            gc.enable()


def test_a_limit_that_is_reached_often_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now_s = 0.0
    metrics = PortMetrics(None, lambda: now_s)
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            metrics.note_limit("user", "eve")
        metrics.note_limit("address", "10.0.0.1")
        now_s = LOG_EVERY_S
        metrics.note_limit("user", "eve")
    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert "user reached by 'eve' (1 times" in messages[0]
    assert "(100 times" in messages[2]
    assert metrics.limit_count("user") == 101


def test_the_limit_of_open_files_is_as_high_as_it_may_be() -> None:
    resource = pytest.importorskip("resource")
    raise_file_limit()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert soft == hard or soft >= 65_536
