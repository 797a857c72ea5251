"""Connections to machines on networks of this host, and to nobody else.

A machine's network goes with its last container. From then on its address is whatever the default
route leads to, and a stranger might answer in its name: to a visitor, or to a probe. So no such
connection ever takes a gateway; without the network it fails at once.
"""

from __future__ import annotations

import asyncio
import socket


async def connect_on_link(
    address: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    peer = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
    try:
        peer.setblocking(False)
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_DONTROUTE, 1)
        await asyncio.get_running_loop().sock_connect(peer, (address, port))
        return await asyncio.open_connection(sock=peer)
    except BaseException:
        peer.close()
        raise
