"""Connections to machines never leave the host."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.drivers.local_network import connect_on_link
from tests.stream_servers import LOOPBACK, serve_tcp

# Reserved for documentation: on no network of this host, but any default route leads there.
UNREACHABLE = "198.51.100.7"


async def test_a_listener_on_a_network_of_this_host_is_reached() -> None:
    async def serve(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"hello")

    async with serve_tcp(serve) as port:
        reader, writer = await connect_on_link(LOOPBACK, port)
        assert await reader.read() == b"hello"
        writer.close()


async def test_an_address_behind_a_gateway_is_unreachable() -> None:
    with pytest.raises(OSError, match="unreachable"):
        await connect_on_link(UNREACHABLE, 80)
