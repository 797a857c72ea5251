"""A connection to a machine never leaves the host."""

from __future__ import annotations

import asyncio

import pytest

from datum_compute.drivers.local_network import connect_on_link

# Reserved for documentation: on no network of this host, but any default route leads there.
ELSEWHERE = "198.51.100.7"


async def test_who_listens_on_a_network_of_this_host_is_reached() -> None:
    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"here")
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        reader, writer = await connect_on_link(*server.sockets[0].getsockname())
        assert await reader.read() == b"here"
        writer.close()


async def test_an_address_that_only_a_gateway_could_reach_is_refused() -> None:
    with pytest.raises(OSError, match="unreachable"):
        await connect_on_link(ELSEWHERE, 80)
