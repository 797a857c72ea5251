"""Connections to machines, which are on networks of this host.

A network is removed with its last machine. After that, packets to its addresses take the default
route, and another host may answer. These connections therefore never use a gateway: without the
network they fail immediately.
"""

from __future__ import annotations

import asyncio
import socket


async def connect_on_link(
    address: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    connection = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
        return await asyncio.open_connection(sock=connection)
    except BaseException:
        connection.close()
        raise
