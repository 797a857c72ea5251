"""One connection: requests in, answers out, in order.

A request is dispatched when it has arrived as a whole and the answers before it are with the
transport. While one is being answered no more is read than the next one.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any, cast

from datum_compute.api.errors import ApiError, BadRequest
from datum_compute.api.http import BufferedStream, Duplex, Request, Response
from datum_compute.server.encoding.list_body import WHOLE_BYTES_MAX
from datum_compute.server.encoding.responses import error_response
from datum_compute.server.http.connection_table import ConnectionTable, Slot
from datum_compute.server.http.eager import begun
from datum_compute.server.http.metrics import PortMetrics
from datum_compute.server.http.request_parser import ParsedRequest, RequestParser, Stage
from datum_compute.server.http.response_writer import (
    CONTINUE,
    HttpDate,
    Outgoing,
    UpgradedConnection,
    WriteBatcher,
    encode_head,
    stream_head,
    switch_head,
)
from datum_compute.server.http.send_budget import SendBudget

IDLE_S = 75.0  # between two requests
HEAD_S = 30.0
BODY_S = 60.0
SEND_S = 60.0  # in which the client must read some data
# In which the client must read a whole response, or the initial events of a watch: until then the
# connection keeps old versions of objects in memory.
RESPONSE_S = 300.0
LINGER_S = 1.0
_NEVER = float("inf")
_PATIENCE_S = {Stage.NOTHING: IDLE_S, Stage.HEAD: HEAD_S, Stage.BODY: BODY_S}

Dispatch = Callable[[Request], Coroutine[Any, Any, Response]]

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ServerState:
    """What the connections of one port have in common."""

    dispatch: Dispatch
    date: HttpDate
    on_first: Callable[[], None]  # when there is one, after there was none
    on_none: Callable[[], None]
    table: ConnectionTable
    budget: SendBudget
    metrics: PortMetrics
    note_released: Callable[[int], None]  # takes the bytes that a connection has freed
    turns: WriteBatcher = field(default_factory=WriteBatcher)
    stopping: bool = False
    # A dict, so that they are stopped in the order they came.
    connections: dict[Connection, None] = field(default_factory=dict)


# Memory of a TLS connection without its buffers.
_CONNECTION_BYTES = 64 * 1024


class Connection(asyncio.Protocol):
    """``slot`` is its place in the table of connections. Without one, ``connection_made`` requests
    one."""

    def __init__(self, shared: ServerState, slot: Slot | None = None) -> None:
        self._shared = shared
        self._slot = slot
        self._refused = False  # at a limit: close after the response to this request
        self._loop = asyncio.get_running_loop()
        self._busy = False  # a request is being answered
        self._ending = False  # nothing that still arrives counts
        self._reading = True
        self._awaited: Stage | None = None  # what the deadline is about
        self._stream: BufferedStream | None = None
        self._task: asyncio.Task[Any] | None = None
        self._switched: UpgradedConnection | None = None  # once it has left HTTP
        self._response_deadline_s = _NEVER
        self.deadline_s = _NEVER

    # --- called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by birth
        shared = self._shared
        self._account = shared.budget.open_account(self)
        self._out = Outgoing(self._transport, shared.turns, self._account)
        self._reader = RequestParser(_certificate_of(transport), self)
        self._wait_for_client(HEAD_S)
        shared.connections[self] = None
        if len(shared.connections) == 1:
            shared.on_first()
        if self._slot is None:
            self._slot = shared.table.admit("", self)
            if self._slot is None:
                self.shed("refused")
        else:
            self._slot.occupant = self

    def connection_lost(self, exc: Exception | None) -> None:
        self._ending = True
        shared = self._shared
        shared.note_released(_CONNECTION_BYTES + self._account.size_bytes)
        shared.connections.pop(self, None)
        if self._stream is not None:
            self._stream.stop()
        self._out.end()
        if self._switched is not None:
            self._switched.end()
        self._break_reference_cycles()
        if not shared.connections:
            shared.on_none()

    def _break_reference_cycles(self) -> None:
        """Drop all references back to the connection, so that its memory is freed at once: the
        garbage collector runs rarely and does not traverse the parser."""
        self._reader.close()
        self._account.close()
        if self._slot is not None:
            self._shared.table.release(self._slot)
            self._slot = None

    def data_received(self, data: bytes) -> None:
        if self._switched is not None:
            self._switched.feed(data)
        elif not self._ending:
            self._reader.feed(data)
            self._shared.turns.schedule(self._advance)

    def pause_writing(self) -> None:
        self._out.pause()
        if self._switched is None:  # whoever talks there has patience of its own
            self._wait_for_client(SEND_S)
            if self._stream is None or self._stream.is_initial:
                self.deadline_s = min(self.deadline_s, self._response_deadline_s)

    def resume_writing(self) -> None:
        if not self._ending and self._switched is None:
            self._clear_deadline()
        self._out.resume()  # may pause again at once, with a new deadline
        if not self._ending and self._switched is None:
            self._advance()

    # --- called by the server

    def identify(self, user: str, *, reserved: bool) -> None:
        """Count this connection for the user who sends requests on it."""
        slot = self._slot
        if slot is None or slot.user == user:
            return
        try:
            self._shared.table.identify(slot, user, reserved=reserved)
        except ApiError:
            self._refused = True
            raise
        self._account.set_user(user, is_reserved=reserved)

    # --- called when a limit is reached

    @property
    def is_idle(self) -> bool:
        """True while the connection waits for a request."""
        return not self._busy and not self._reader.arrived and not self._out.blocked

    def measure_unsent(self) -> int:
        return self._out.measure_unsent()

    def shed(self, reason: str) -> None:
        """Close the connection because of a limit, without waiting for the client."""
        self._shared.metrics.note_closed(self._activity, reason)
        if self._account.size_bytes:
            self._shared.metrics.note_limit(reason, self._account.user)
        self._ending = True
        self._transport.abort()

    @property
    def _activity(self) -> str:
        if self._stream is not None:
            return "watch"
        if self._busy or self._out.blocked:
            return "response"
        return "idle" if self._reader.stage is Stage.NOTHING else "request"

    # --- called by the port

    def stop(self) -> None:
        """Take no more requests, and close as soon as the one under way is answered."""
        if self._stream is not None and self._out.blocked:
            self._transport.abort()  # its client would have to read first
        elif self._switched is not None:
            self._switched.end()
        elif not self._busy and not self._reader.arrived:
            self._close()

    def abort(self) -> None:
        self._transport.abort()

    def late(self) -> None:
        """The client has let its time pass."""
        self.deadline_s = _NEVER
        if self._out.blocked:
            logger.info(
                "closed a connection with %d unsent bytes: its client did not read in time",
                self._out.measure_unsent(),
            )
            self._shared.metrics.note_closed(self._activity, "slow")
            self._transport.abort()
        elif self._reader.stage is Stage.BODY and not self._ending:
            self._refuse(BadRequest(f"the body did not arrive within {BODY_S:.0f} s"))
        else:
            self._close()

    # --- reading

    def _wait_for_client(self, seconds: float) -> None:
        self.deadline_s = self._loop.time() + seconds

    def _clear_deadline(self) -> None:
        self._awaited, self.deadline_s = None, _NEVER

    def _advance(self) -> None:
        """Do what can be done now: answer a request, refuse what is none, or wait for more."""
        reader = self._reader
        if self._ending:
            return
        if self._busy or self._out.blocked:
            # A watch can last for hours: do not buffer the next request until it ends.
            is_early = self._stream is not None and reader.stage is not Stage.NOTHING
            if reader.arrived or reader.upgrade or is_early:
                self._read_on(False)
        elif reader.arrived:
            self._answer(reader.arrived.popleft())
        elif reader.refusal is not None:
            self._refuse(reader.refusal)
        elif self._shared.stopping and reader.stage is Stage.NOTHING:
            self._close()
        else:
            self._read_on(True)
            if reader.wants_continue:
                reader.wants_continue = False
                self._out.write(CONTINUE)
            if reader.stage is not self._awaited:  # what drips in gets no more time for it
                self._awaited = reader.stage
                self._wait_for_client(_PATIENCE_S[reader.stage])

    def _read_on(self, wanted: bool) -> None:
        if self._reading is not wanted:
            self._reading = wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    # --- answering

    def _answer(self, arrived: ParsedRequest) -> None:
        self._busy = True
        self._clear_deadline()
        try:
            found = begun(self._loop, self._shared.dispatch(arrived.request))
            if isinstance(found, Response):
                self._send(arrived, found)
                return
        except Exception:
            self._give_up()
            raise
        self._task = found
        sending = partial(self._dispatched, arrived, found)
        found.add_done_callback(lambda _: self._shared.turns.schedule(sending))

    def _dispatched(self, arrived: ParsedRequest, task: asyncio.Task[Response]) -> None:
        self._task = None
        if task.cancelled():
            self._give_up()
            return
        try:
            response = task.result()
            if self._out.lost and response.switched is None:
                self._give_up()
                return
            self._send(arrived, response)
        except Exception:
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Nothing can be answered any more: the client goes, or the dispatch has a defect."""
        self._ending = True
        self._transport.abort()

    def _send(self, arrived: ParsedRequest, response: Response) -> None:
        closing = arrived.closes or self._shared.stopping or self._refused
        if response.stream is not None:
            assert isinstance(response.stream, BufferedStream)
            self._stream, chunked = response.stream, not arrived.plain
            head = stream_head(response, self._shared.date(), chunked=chunked)
            sending = self._out.send_stream(head, response.stream, chunked=chunked)
            self._wait_for(sending, closing=closing)
            return
        if response.switched is not None:
            self._out.write(switch_head(response, self._shared.date()))
            self._switch(response.switched)
            return
        head = encode_head(response, self._shared.date(), closing=closing)
        if arrived.request.method == "HEAD":
            self._out.write(head)
        elif response.pieces is not None:
            self._wait_for(self._out.send_pieces(head, response.pieces), closing=closing)
            return
        elif len(response.body) > WHOLE_BYTES_MAX:
            self._wait_for(self._out.send_body(head, response.body), closing=closing)
            return
        else:
            self._out.write(head + response.body)
        self._answered(closing=closing)

    def _wait_for(self, sending: Coroutine[Any, Any, None], *, closing: bool) -> None:
        def sent(task: asyncio.Task[None]) -> None:
            self._task = self._stream = None
            self._response_deadline_s = _NEVER
            if task.cancelled() or task.exception() is not None:
                self._give_up()
                if not task.cancelled():
                    logger.error("an answer could not be sent", exc_info=task.exception())
            else:
                self._answered(closing=closing or self._shared.stopping)

        self._response_deadline_s = self._loop.time() + RESPONSE_S
        self._task = self._loop.create_task(sending)
        self._task.add_done_callback(sent)

    def _switch(self, talk: Callable[[Duplex], Coroutine[Any, Any, None]]) -> None:
        """Hand the connection over; it is closed when that has ended."""
        self._switched = UpgradedConnection(self._transport, self._out, self._reader.rest)
        if self._out.lost:
            self._switched.end()  # whoever was to talk learns that, and cleans up
        self._reading = True
        self._wait_for(talk(self._switched), closing=True)
        self._response_deadline_s = _NEVER

    def _answered(self, *, closing: bool) -> None:
        self._busy = False
        if closing:
            self._close()
        elif self._reader.arrived:
            self._shared.turns.schedule(self._advance)  # others first
        else:
            self._advance()

    def _refuse(self, error: ApiError) -> None:
        """The last answer. What the client still sends is let pass for a moment: closing on it
        would take the answer from those who send everything before they read."""
        self._ending = True
        response = error_response(error)
        head = encode_head(response, self._shared.date(), closing=True)
        self._out.write(head + response.body)
        self._read_on(True)
        self._wait_for_client(LINGER_S)

    def _close(self) -> None:
        """Close the connection when the client has read everything, or its time is over."""
        self._ending = True
        if self._out.blocked:
            self._wait_for_client(SEND_S)
        self._out.close()


def _certificate_of(transport: asyncio.BaseTransport) -> str:
    session = transport.get_extra_info("ssl_object")
    found = session.getpeercert(binary_form=True) if session is not None else None
    return ssl.DER_cert_to_PEM_cert(found) if found else ""
