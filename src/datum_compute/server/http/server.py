"""Listening on the TLS port, and stopping: from the first connection to the last."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from datum_compute.app.certificates import ServerCertificate
from datum_compute.app.front.acceptor import Acceptor
from datum_compute.app.front.answers import HttpDate
from datum_compute.app.front.limits import PortLimits
from datum_compute.server.http.connection import Connection, Dispatch, Shared
from datum_compute.server.http.connection_table import ConnectionTable
from datum_compute.server.http.memory import MemoryTrimmer
from datum_compute.server.http.metrics import PortMetrics
from datum_compute.server.http.send_budget import SendBudget

HOST = "127.0.0.1"
STOP_S = 3.0
SWEEP_S = 1.0


class Front:
    """Whoever stops it ends the watches first; they would keep their connections open."""

    def __init__(
        self,
        dispatch: Dispatch,
        unix_s: Callable[[], float],
        limits: PortLimits | None = None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        clock = asyncio.get_running_loop().time
        limits = limits or PortLimits()
        self._metrics = PortMetrics(registry, clock)
        self.table = ConnectionTable(limits, self._metrics.note_limit)
        self.budget = SendBudget(limits.unsent_bytes_per_user_max, limits.unsent_bytes_max, clock)
        self._trimmer = MemoryTrimmer(self._metrics.note_trim)
        self._metrics.states = self.table.count_by_state
        self._metrics.unsent = lambda: self.budget.total_bytes
        self._shared = Shared(
            dispatch,
            HttpDate(unix_s),
            self._sweep_later,
            self._none_left,
            self.table,
            self.budget,
            self._metrics,
            self._trimmer.note_released,
        )
        self._acceptor: Acceptor | None = None
        self._sweeping: asyncio.TimerHandle | None = None
        self._empty = asyncio.Event()

    async def start(self, bound: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Take connections on a bound socket from here on."""
        self._acceptor = Acceptor(self._shared, bound, tls)
        self._acceptor.start()
        self._trimmer.start()

    @property
    def metrics(self) -> PortMetrics:
        return self._metrics

    def connection(self) -> Connection:
        """The protocol of one more connection."""
        return Connection(self._shared)

    async def stop(self) -> None:
        """Answer what is under way, take nothing new; after ``STOP_S`` everybody must go."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        self._shared.stopping = True
        for connection in list(self._shared.connections):
            connection.stop()
        try:
            async with asyncio.timeout(STOP_S):
                while self._shared.connections:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            for connection in list(self._shared.connections):
                connection.abort()
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._trimmer.stop()

    @property
    def connections(self) -> int:
        return len(self._shared.connections)

    def _none_left(self) -> None:
        self._empty.set()
        if self._sweeping is not None:
            self._sweeping.cancel()

    def _sweep_later(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._sweeping = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """One look at all deadlines now and then costs less than a timer for every request."""
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._shared.connections):
            if connection.deadline_s <= now_s:
                connection.late()
        if self._shared.connections:
            self._sweep_later()


def tls_of(certificate: ServerCertificate) -> ssl.SSLContext:
    """A client may show a certificate; one that our authority did not sign ends the handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(certificate.certificate, certificate.key)
    context.load_verify_locations(certificate.authority)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


def listening_socket(port: int, host: str = HOST) -> socket.socket:
    """Bound to loopback unless told otherwise; it can be used again right after a restart."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise OSError(
            f"port {port} of {host} cannot be used ({error.strerror}); "
            "choose another, or 0 for any free one"
        ) from error
    bound.set_inheritable(False)
    return bound
