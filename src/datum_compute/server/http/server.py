"""The HTTP server: accepts connections, enforces deadlines and stops."""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import ssl
from collections.abc import Callable

from prometheus_client import CollectorRegistry

from datum_compute.server.http.connection import Dispatch, HttpConnection, ServerState
from datum_compute.server.http.connection_table import ConnectionTable, Slot
from datum_compute.server.http.memory import MemoryTrimmer
from datum_compute.server.http.metrics import PortMetrics
from datum_compute.server.http.response_writer import HttpDate
from datum_compute.server.http.send_budget import PortLimits, SendBudget

# --- The acceptor applies the limits on connections before the TLS handshake. A connection counts
# from the moment it is accepted, so that the limits include clients that never finish their
# handshake. When the process has no file descriptor left, the acceptor closes a connection and
# pauses for ``ACCEPT_PAUSE_S``; meanwhile the kernel keeps new connections in its backlog.


TLS_HANDSHAKE_MAX_S = 10.0
TLS_SHUTDOWN_MAX_S = 1.0
ACCEPT_PAUSE_S = 0.2  # when the process has no file descriptors left
FILES_LIMIT = "files"
KERNEL_UNSENT_BYTES_MAX = 256 * 1024
_NOTSENT_LOWAT = getattr(socket, "TCP_NOTSENT_LOWAT", 25)
_BACKLOG = 2048
_ACCEPTS_PER_PASS = 64  # then the loop runs other callbacks
_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_log = logging.getLogger(__name__)


class _Handshake:
    """Occupies the slot of a connection during its TLS handshake."""

    def __init__(self, note_closed: Callable[[str, str], None]) -> None:
        self._note_closed = note_closed
        self.task: asyncio.Task[None] | None = None

    @property
    def is_idle(self) -> bool:
        return True

    def shed(self, reason: str) -> None:
        self._note_closed("handshake", reason)
        if self.task is not None:
            self.task.cancel()


class Acceptor:
    def __init__(
        self, shared: ServerState, bound: socket.socket, tls: ssl.SSLContext | None
    ) -> None:
        self._shared = shared
        self._bound = bound
        self._tls = tls
        self._loop = asyncio.get_running_loop()
        self._pause_timer: asyncio.TimerHandle | None = None
        self._handshakes: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._bound.setblocking(False)
        self._bound.listen(_BACKLOG)
        self._loop.add_reader(self._bound.fileno(), self._accept)

    def close(self) -> None:
        """Stop accepting connections and cancel handshakes in progress."""
        if self._pause_timer is not None:
            self._pause_timer.cancel()
        self._loop.remove_reader(self._bound.fileno())
        self._bound.close()
        for task in self._handshakes:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(_ACCEPTS_PER_PASS):
            try:
                accepted, address = self._bound.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _OUT_OF_RESOURCES:
                    raise
                self._wait_for_files(error)
                return
            self._open(accepted, address[0])

    def _wait_for_files(self, error: OSError) -> None:
        self._shared.metrics.note_limit(FILES_LIMIT, error.strerror or "")
        self._shared.table.shed_one(FILES_LIMIT)
        self._loop.remove_reader(self._bound.fileno())
        self._pause_timer = self._loop.call_later(ACCEPT_PAUSE_S, self._resume)

    def _resume(self) -> None:
        self._pause_timer = None
        self._loop.add_reader(self._bound.fileno(), self._accept)

    def _open(self, accepted: socket.socket, address: str) -> None:
        handshake = _Handshake(self._shared.metrics.note_closed)
        slot = self._shared.table.admit(address, handshake)
        if slot is None:
            self._shared.metrics.note_closed("handshake", "refused")
            accepted.close()
            return
        accepted.setblocking(False)
        # By default the kernel buffers several megabytes for a client that does not read.
        accepted.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, KERNEL_UNSENT_BYTES_MAX)
        task = self._loop.create_task(self._connect(accepted, slot))
        handshake.task = task
        self._handshakes.add(task)
        task.add_done_callback(self._handshakes.discard)

    async def _connect(self, accepted: socket.socket, slot: Slot) -> None:
        with_tls = self._tls is not None
        try:
            await self._loop.connect_accepted_socket(
                lambda: HttpConnection(self._shared, slot),
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=TLS_HANDSHAKE_MAX_S if with_tls else None,
                ssl_shutdown_timeout=TLS_SHUTDOWN_MAX_S if with_tls else None,
            )
        except OSError as error:  # includes ssl.SSLError and TimeoutError
            _log.debug("connection from %s failed: %s", slot.address, error)
            self._shared.table.release(slot)
        except BaseException:
            self._shared.table.release(slot)
            raise


# --- The server


HOST = "127.0.0.1"
STOP_S = 3.0
SWEEP_S = 1.0


class HttpServer:
    """Serves one socket. End all watches before ``stop``: a watch keeps its connection open."""

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
        self._shared = ServerState(
            dispatch,
            HttpDate(unix_s),
            self._schedule_sweep,
            self._on_last_closed,
            self.table,
            self.budget,
            self._metrics,
            self._trimmer.note_released,
        )
        self._acceptor: Acceptor | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._all_closed = asyncio.Event()

    async def start(self, bound: socket.socket, tls: ssl.SSLContext | None) -> None:
        """Start to accept connections on a bound socket. Without ``tls`` it serves plain HTTP."""
        self._acceptor = Acceptor(self._shared, bound, tls)
        self._acceptor.start()
        self._trimmer.start()

    @property
    def metrics(self) -> PortMetrics:
        return self._metrics

    def build_connection(self) -> HttpConnection:
        """Return the protocol of a connection that another listener has accepted."""
        return HttpConnection(self._shared)

    async def stop(self) -> None:
        """Finish the responses in progress and accept nothing else. Abort what remains after
        ``STOP_S``."""
        if self._acceptor is not None:
            self._acceptor.close()
            self._acceptor = None
        self._shared.stopping = True
        for connection in list(self._shared.connections):
            connection.stop()
        try:
            async with asyncio.timeout(STOP_S):
                while self._shared.connections:
                    self._all_closed.clear()
                    await self._all_closed.wait()
        except TimeoutError:
            for connection in list(self._shared.connections):
                connection.abort()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._trimmer.stop()

    @property
    def connections(self) -> int:
        return len(self._shared.connections)

    def _on_last_closed(self) -> None:
        self._all_closed.set()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    def _schedule_sweep(self) -> None:
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        self._sweep_timer = asyncio.get_running_loop().call_later(SWEEP_S, self._sweep)

    def _sweep(self) -> None:
        """Check all deadlines. One sweep a second costs less than a timer for each request."""
        now_s = asyncio.get_running_loop().time()
        for connection in list(self._shared.connections):
            if connection.deadline_s <= now_s:
                connection.on_deadline()
        if self._shared.connections:
            self._schedule_sweep()
