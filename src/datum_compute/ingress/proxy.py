"""Proxy: publishes ports of this host and forwards connections to machines.

``balancer.py`` chooses the machine. The proxy holds a connection until a machine accepts it, and
closes it after a time limit. TCP keepalive detects dead clients, so that their connections do not
keep a machine awake.
"""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType

from datum_compute.api.traffic import Backend, CellUnavailable
from datum_compute.ingress.balancer import (
    BackendConnection,
    LoadBalancer,
    MachineActivity,
    PublishedPort,
    WakeRecorder,
)
from datum_compute.server.http.listen import bind_listener

HOST = "127.0.0.1"
CONNECT_TIMEOUT_S = 2.0
# TCP keepalive starts after this idle time. A silent peer is dropped after another 30 s.
KEEPALIVE_IDLE_S = 30
CHUNK_BYTES = 64 * 1024
CONNECTIONS_MAX = 4096  # per published port
BACKLOG = 512
# When a client should retry if a machine sleeps and the process of its cell does not run.
RETRY_AFTER_S = 5
# How long a refused connection may take to send its first bytes, which show if it uses HTTP.
REFUSED_READ_TIMEOUT_S = 2.0
_HTTP_REQUEST = re.compile(rb"[A-Z]+ [^ ]+ HTTP/1\.[01]\r?\n")


def _format_refusal(text: bytes, headers: bytes = b"") -> bytes:
    return (
        b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nConnection: close\r\n"
        b"%sContent-Length: %d\r\n\r\n%s" % (headers, len(text), text)
    )


_STOPPED = _format_refusal(b"The workload is stopped.\n")
_CELL_UNAVAILABLE = _format_refusal(
    b"The instance sleeps, and the platform that wakes it does not run.\n",
    b"Retry-After: %d\r\n" % RETRY_AFTER_S,
)

PortKey = tuple[str, str]  # owner and name
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
# Connects to an address and port of a machine.
Connect = Callable[[str, int], Awaitable[Streams]]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Listener:
    server: asyncio.Server
    listening: socket.socket
    number: int
    port: PublishedPort = field(default_factory=PublishedPort)
    connections: int = 0
    # One for each connection that waits for a machine; its deadline is set to refuse it.
    waits: set[asyncio.Timeout] = field(default_factory=set)


class Proxy:
    """``inherited`` are the listening sockets of a previous process, by port number."""

    def __init__(
        self,
        machines: MachineActivity,
        wakes: WakeRecorder,
        elapsed_s: Callable[[], float],
        connect: Connect,
        inherited: Mapping[int, socket.socket] = MappingProxyType({}),
    ) -> None:
        self._connect_to = connect
        self._balancer = LoadBalancer(machines, wakes, self._open_backend, elapsed_s)
        self._inherited = dict(inherited)
        self._listeners: dict[PortKey, _Listener] = {}
        self._refused: set[str] = set()  # owners
        self._connection_tasks: set[asyncio.Task[None]] = set()

    async def publish(
        self, owner: str, name: str, backends: Sequence[Backend], last_port: int
    ) -> tuple[str, int]:
        listener = self._listeners.get((owner, name))
        if listener is None:
            listener = self._listeners[owner, name] = await self._listen(owner, name, last_port)
        self._balancer.set_backends(listener.port, backends)
        self._remove_unused_state()
        return HOST, listener.number

    def refuse(self, owner: str, *, refused: bool) -> None:
        if not refused:
            self._refused.discard(owner)
            return
        self._refused.add(owner)
        now_s = asyncio.get_running_loop().time()
        for (listener_owner, _), listener in self._listeners.items():
            if listener_owner == owner:
                for wait in listener.waits:
                    wait.reschedule(now_s)

    async def withdraw(self, owner: str, kept: Collection[str] = ()) -> None:
        for key in [k for k in self._listeners if k[0] == owner and k[1] not in kept]:
            self._listeners.pop(key).server.close()
        if not kept:
            self._refused.discard(owner)
        self._remove_unused_state()

    async def close(self) -> None:
        for listener in self._listeners.values():
            listener.server.close()
        self._listeners.clear()
        tasks = list(self._connection_tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._balancer.machines.close()

    @property
    def ports(self) -> dict[PortKey, int]:
        """The numbers of the published ports."""
        return {key: listener.number for key, listener in self._listeners.items()}

    @property
    def connections(self) -> int:
        """The number of open and waiting connections."""
        return len(self._connection_tasks)

    def listening_sockets(self) -> dict[int, socket.socket]:
        return {listener.number: listener.listening for listener in self._listeners.values()}

    def close_inherited(self) -> None:
        """Close the inherited sockets that no published port uses."""
        for unused in self._inherited.values():
            unused.close()
        self._inherited.clear()

    def stop_listening(self) -> None:
        """Accept no more connections. Open connections continue, and waiting ones keep waiting."""
        for listener in self._listeners.values():
            listener.server.close()

    async def drain(self, machine_id: str) -> int:
        """Give the machine no new connections. Return the number of its open connections."""
        return await self._balancer.drain(machine_id)

    @property
    def draining(self) -> frozenset[str]:
        """The machines that get no new connections."""
        return self._balancer.draining

    def end_drain(self, machine_id: str) -> None:
        self._balancer.end_drain(machine_id)

    def _remove_unused_state(self) -> None:
        self._balancer.keep_only(listener.port for listener in self._listeners.values())

    async def _listen(self, owner: str, name: str, last_port: int) -> _Listener:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._connection_tasks.add(task)
            try:
                await self._serve(owner, name, reader, writer)
            except asyncio.CancelledError:
                writer.close()  # cancelled by close(); the event loop would log it as an error
            finally:
                self._connection_tasks.discard(task)

        listening = self._bind(owner, name, last_port)
        server = await asyncio.start_server(handle, sock=listening, backlog=BACKLOG)
        return _Listener(server, listening, listening.getsockname()[1])

    def _bind(self, owner: str, name: str, last_port: int) -> socket.socket:
        """Return a socket with the last port if it is inherited or free, else with a free port."""
        if last_port in self._inherited:
            return self._inherited.pop(last_port)
        if last_port:
            try:
                return bind_listener(last_port, HOST)
            except OSError:
                _log.warning("%s %s: port %d is in use; selecting another", owner, name, last_port)
        return bind_listener(0, HOST)

    async def _serve(
        self, owner: str, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        listener = self._listeners.get((owner, name))
        if listener is None or listener.connections >= CONNECTIONS_MAX:
            writer.close()
            return
        listener.connections += 1
        try:
            opened = None if owner in self._refused else await self._connect(listener)
            if opened is not None:
                await self._forward(opened, reader, writer)
            elif owner in self._refused:
                await _refuse_connection(reader, writer, _STOPPED)
        except CellUnavailable:
            await _refuse_connection(reader, writer, _CELL_UNAVAILABLE)
        finally:
            listener.connections -= 1
            writer.close()

    async def _connect(self, listener: _Listener) -> BackendConnection[Streams] | None:
        """Connect to a machine. Return None if none accepts in time, or on ``refuse()``."""
        wait = asyncio.timeout(None)
        listener.waits.add(wait)
        try:
            async with wait:
                return await self._balancer.connect(listener.port)
        except TimeoutError:
            return None
        finally:
            listener.waits.discard(wait)

    async def _open_backend(self, backend: Backend) -> Streams | None:
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                return await self._connect_to(backend.address, backend.port)
        except (OSError, TimeoutError):
            return None

    async def _forward(
        self,
        opened: BackendConnection[Streams],
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        """Copy both directions until both have ended. The end of one direction is forwarded."""
        backend_reader, backend_writer = opened.connection
        record_first_byte = partial(self._balancer.record_first_byte, opened)
        try:
            _enable_keepalive(writer)
            await asyncio.gather(
                _copy(reader, backend_writer),
                _copy(backend_reader, writer, on_first_byte=record_first_byte),
            )
        finally:
            backend_writer.close()
            self._balancer.release(opened)


async def _refuse_connection(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, response: bytes
) -> None:
    """Answer an HTTP request with the response; the caller closes the connection.

    The head of the request is read first. Otherwise the client may receive a reset instead of the
    response.
    """
    try:
        async with asyncio.timeout(REFUSED_READ_TIMEOUT_S):
            head = await reader.read(CHUNK_BYTES)
            if _HTTP_REQUEST.match(head):
                writer.write(response)
                await writer.drain()
    except (OSError, TimeoutError):
        return


def _enable_keepalive(writer: asyncio.StreamWriter) -> None:
    peer = writer.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    options = (("TCP_KEEPIDLE", KEEPALIVE_IDLE_S), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
    for option, value in options:
        if number := getattr(socket, option, None):  # missing on some systems
            peer.setsockopt(socket.IPPROTO_TCP, number, value)


async def _copy(
    source: asyncio.StreamReader,
    target: asyncio.StreamWriter,
    on_first_byte: Callable[[], None] | None = None,
) -> None:
    """Copy until the end of ``source``, which is forwarded to ``target``."""
    try:
        while chunk := await source.read(CHUNK_BYTES):
            if on_first_byte is not None:
                on_first_byte()
                on_first_byte = None
            target.write(chunk)
            await target.drain()
        if target.can_write_eof():
            target.write_eof()
    except OSError:
        target.close()  # the other direction ends with it
