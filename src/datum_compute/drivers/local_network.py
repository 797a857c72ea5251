"""Connections to machines, which are on networks of this host.

The network of a machine is removed with its last container. After that its address is reached over
the default route, where another host may answer. These connections therefore never use a gateway:
without the network they fail at once.
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
