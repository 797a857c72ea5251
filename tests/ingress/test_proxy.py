"""Connections over real sockets of the loopback."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from datum_compute.api.planes import cell_plane
from datum_compute.drivers.traffic import Backend
from datum_compute.ingress.activations import WakeBook
from datum_compute.ingress.idle_scaler import IdleScaler
from datum_compute.ingress.proxy import Proxy
from tests.stream_servers import LOOPBACK, serve_tcp

CELL = cell_plane("dfw")

pytestmark = pytest.mark.e2e


@asynccontextmanager
async def a_machine(name: str) -> AsyncIterator[Backend]:
    """Says its name and then repeats what it hears."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(f"{name}\n".encode())
        while chunk := await reader.read(1024):
            writer.write(chunk)

    async with serve_tcp(talk) as port:
        yield Backend(CELL, name, LOOPBACK, port)


_OPEN: list[asyncio.StreamWriter] = []


@pytest.fixture
async def proxy() -> AsyncIterator[Proxy]:
    book = WakeBook(time.time, time.monotonic)
    made = Proxy(IdleScaler({}, time.monotonic, book), book, time.monotonic)
    yield made
    while _OPEN:
        writer = _OPEN.pop()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
    await made.close()
    await asyncio.sleep(0.01)  # transports close in the next turns of the loop


async def connected(port: int) -> tuple[str, asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    _OPEN.append(writer)
    return (await reader.readline()).decode().strip(), reader, writer


async def test_connections_go_to_whoever_has_the_fewest(proxy: Proxy) -> None:
    async with a_machine("one") as one, a_machine("two") as two:
        _, port = await proxy.publish("web", "http", [one, two], 0)
        open_now = [await connected(port) for _ in range(4)]
        assert sorted(name for name, _, _ in open_now) == ["one", "one", "two", "two"]
        for _, reader, writer in open_now:
            writer.write(b"hello")
            writer.write_eof()
            assert await reader.read() == b"hello"
            writer.close()


async def test_a_machine_that_was_taken_out_keeps_its_connections_and_gets_no_more(
    proxy: Proxy,
) -> None:
    async with a_machine("one") as one, a_machine("two") as two:
        _, port = await proxy.publish("web", "http", [one], 0)
        name, reader, writer = await connected(port)
        assert (name, proxy.take_out("one")) == ("one", 1)
        await proxy.publish("web", "http", [one, two], 0)
        assert (await connected(port))[0] == "two"
        writer.write(b"still here")
        writer.write_eof()
        assert await reader.read() == b"still here"
        writer.close()


async def test_a_machine_that_does_not_accept_is_passed_over(proxy: Proxy) -> None:
    async with a_machine("two") as two:
        dead = Backend(CELL, "dead", "127.0.0.1", 1)
        _, port = await proxy.publish("web", "http", [dead, two], 0)
        assert (await connected(port))[0] == "two"


async def test_who_comes_too_early_waits_for_the_first_machine(proxy: Proxy) -> None:
    _, port = await proxy.publish("web", "http", [], 0)
    early = asyncio.create_task(connected(port))
    await asyncio.sleep(0)
    async with a_machine("late") as late:
        await proxy.publish("web", "http", [late], 0)
        assert (await early)[0] == "late"


async def test_a_port_is_had_again_and_is_free_after_it_was_withdrawn(proxy: Proxy) -> None:
    _, port = await proxy.publish("web", "http", [], 0)
    await proxy.withdraw("web")
    with pytest.raises(OSError):  # noqa: PT011 - refused
        await asyncio.open_connection("127.0.0.1", port)
    assert await proxy.publish("web", "http", [], port) == ("127.0.0.1", port)
    _, other = await proxy.publish("api", "http", [], port)
    assert other != port, "one that is taken is not insisted on"
