"""Publishes ports of this host and passes connections on to machines, which ``balance.py`` chooses.

A connection is held until its machine serves, and closed without a word if none does in time. Peers
that went without a farewell are noticed, so that nobody is kept awake for ever.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

from datum_compute.drivers.local_network import connect_on_link
from datum_compute.drivers.traffic import Backend
from datum_compute.ingress.activations import WakeBook
from datum_compute.ingress.balancer import Balance, Port, Reached
from datum_compute.ingress.idle_scaler import IdleScaler

HOST = "127.0.0.1"
CONNECT_S = 2.0
# After so long without a byte a peer is asked whether it is there, and given up after a minute.
KEEPALIVE_S = 30
CHUNK_BYTES = 64 * 1024
CONNECTIONS_MAX = 4096  # of one published port

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Published:
    server: asyncio.Server
    number: int
    port: Port = field(default_factory=Port)
    connections: int = 0


class Proxy:
    def __init__(
        self, sleepers: IdleScaler, book: WakeBook, elapsed_s: Callable[[], float]
    ) -> None:
        self._balance = Balance(sleepers, book, _connected, elapsed_s)
        self._published: dict[tuple[str, str], _Published] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def publish(
        self, owner: str, name: str, backends: Sequence[Backend], last_port: int
    ) -> tuple[str, int]:
        found = self._published.get((owner, name))
        if found is None:
            found = self._published[owner, name] = await self._listen(owner, name, last_port)
        self._balance.set_backends(found.port, backends)
        self._forget_the_gone()
        return HOST, found.number

    async def withdraw(self, owner: str, kept: Collection[str] = ()) -> None:
        for key in [k for k in self._published if k[0] == owner and k[1] not in kept]:
            self._published.pop(key).server.close()
        self._forget_the_gone()

    async def close(self) -> None:
        for published in self._published.values():
            published.server.close()
        self._published.clear()
        serving = list(self._serving)
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await self._balance.sleepers.close()

    def take_out(self, machine_id: str) -> int:
        return self._balance.take_out(machine_id)

    def _forget_the_gone(self) -> None:
        self._balance.keep_only(published.port for published in self._published.values())

    async def _listen(self, owner: str, name: str, last_port: int) -> _Published:
        async def accepted(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._serving.add(task)
            try:
                await self._serve(owner, name, reader, writer)
            except asyncio.CancelledError:
                writer.close()  # only we cancel it; the loop would report it as an error
            finally:
                self._serving.discard(task)

        for port in (last_port, 0) if last_port else (0,):
            try:
                server = await asyncio.start_server(accepted, HOST, port, backlog=512)
            except OSError as error:
                if port == 0:
                    raise
                _log.warning("%s %s: port %d is taken (%s)", owner, name, port, error.strerror)
                continue
            return _Published(server, server.sockets[0].getsockname()[1])
        raise AssertionError("unreachable: a free port was asked for")

    async def _serve(
        self, owner: str, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        published = self._published.get((owner, name))
        if published is None or published.connections >= CONNECTIONS_MAX:
            writer.close()
            return
        published.connections += 1
        try:
            reached = await self._balance.reach(published.port)
            if reached is not None:
                await self._pass_on(reached, reader, writer)
        finally:
            published.connections -= 1
            writer.close()

    async def _pass_on(
        self, reached: Reached[Streams], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        """Both directions until both have ended; an end of one is passed on as such."""
        inner_reader, inner_writer = reached.connection
        answered = partial(self._balance.answered, reached)
        try:
            _notice_when_gone(writer)
            await asyncio.gather(
                _copy(reader, inner_writer), _copy(inner_reader, writer, first=answered)
            )
        finally:
            inner_writer.close()
            self._balance.release(reached)


async def _connected(backend: Backend) -> Streams | None:
    try:
        async with asyncio.timeout(CONNECT_S):
            return await connect_on_link(backend.address, backend.port)
    except (OSError, TimeoutError):
        return None


def _notice_when_gone(writer: asyncio.StreamWriter) -> None:
    peer = writer.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", KEEPALIVE_S), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
        if number := getattr(socket, option, None):  # not everywhere
            peer.setsockopt(socket.IPPROTO_TCP, number, value)


async def _copy(
    source: asyncio.StreamReader,
    target: asyncio.StreamWriter,
    first: Callable[[], None] | None = None,
) -> None:
    """``first`` is called when the first byte has come."""
    try:
        while chunk := await source.read(CHUNK_BYTES):
            if first is not None:
                first()
                first = None
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:
        target.close()  # the other direction ends with it
