"""One HTTP connection: parses requests, dispatches them and sends the responses in order.

A request is dispatched when it is complete and the previous responses have been passed to the
transport. While a request is being answered, at most the next one is read.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Coroutine, Generator
from contextvars import copy_context
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from datum_compute.api.errors import ApiError, BadRequest
from datum_compute.api.http import BufferedStream, Duplex, Request, Response
from datum_compute.server.encoding.list_body import WHOLE_BYTES_MAX
from datum_compute.server.encoding.responses import error_response
from datum_compute.server.http.connection_table import ConnectionTable, Slot
from datum_compute.server.http.metrics import PortMetrics
from datum_compute.server.http.request_parser import ParsedRequest, RequestParser, Stage
from datum_compute.server.http.response_writer import (
    CONTINUE,
    ConnectionBatcher,
    HttpDate,
    ResponseWriter,
    UpgradedConnection,
    encode_head,
    encode_stream_head,
    encode_upgrade_head,
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
_DEADLINES_S = {Stage.IDLE: IDLE_S, Stage.HEAD: HEAD_S, Stage.BODY: BODY_S}

Dispatch = Callable[[Request], Coroutine[Any, Any, Response]]

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class ServerState:
    """State that the connections of a server share."""

    dispatch: Dispatch
    date: HttpDate
    on_first: Callable[[], None]  # called when the first connection opens
    on_last: Callable[[], None]  # called when the last connection has closed
    table: ConnectionTable
    budget: SendBudget
    metrics: PortMetrics
    note_released: Callable[[int], None]  # takes the bytes that a connection has freed
    batcher: ConnectionBatcher = field(default_factory=ConnectionBatcher)
    # Number of requests by user that wait, or whose large response is being sent; never 0.
    unfinished: dict[str, int] = field(default_factory=dict)
    stopping: bool = False
    # A dict, so that connections are stopped in the order in which they opened.
    connections: dict[HttpConnection, None] = field(default_factory=dict)


# Memory of a TLS connection without its buffers.
_CONNECTION_BYTES = 64 * 1024


class HttpConnection(asyncio.Protocol):
    """``slot`` is its place in the connection table. Without a slot, ``connection_made`` requests
    one."""

    def __init__(self, shared: ServerState, slot: Slot | None = None) -> None:
        self._shared = shared
        self._slot = slot
        self._refused = False  # at a limit: close after the response to this request
        self._loop = asyncio.get_running_loop()
        self._is_busy = False  # a request is being answered
        self._unfinished_user: str | None = None  # in ``unfinished``
        self._is_ending = False  # received bytes are ignored
        self._is_reading = True
        self._waits_for_turn = False  # received bytes wait for ``_advance_in_turn``
        self._deadline_stage: Stage | None = None  # the stage for which the deadline was set
        self._stream: BufferedStream | None = None
        self._task: asyncio.Task[Any] | None = None
        self._upgraded: UpgradedConnection | None = None  # after an upgrade
        self._response_deadline_s = _NEVER
        self.deadline_s = _NEVER

    # --- Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is no subclass
        shared = self._shared
        self._account = shared.budget.open_account(self)
        self._writer = ResponseWriter(self._transport, shared.batcher, self._account)
        self._parser = RequestParser(_client_certificate(transport), self)
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
        self._is_ending = True
        shared = self._shared
        shared.note_released(_CONNECTION_BYTES + self._account.size_bytes)
        shared.connections.pop(self, None)
        if self._stream is not None:
            self._stream.stop()
        self._writer.disconnect()
        if self._upgraded is not None:
            self._upgraded.end()
        self._break_reference_cycles()
        if not shared.connections:
            shared.on_last()

    def _break_reference_cycles(self) -> None:
        """Drop all references back to the connection, so that its memory is freed at once: the
        garbage collector runs rarely and does not traverse the parser."""
        self._parser.close()
        self._account.close()
        if self._slot is not None:
            self._shared.table.release(self._slot)
            self._slot = None

    def data_received(self, data: bytes) -> None:
        if self._upgraded is not None:
            self._upgraded.feed(data)
        elif not self._is_ending:
            self._parser.feed(data)
            if self._waits_for_turn:
                self._set_reading(False)  # other connections of the user come first
            elif self._shared.unfinished and self._parser.requests and self._can_run_immediately():
                self._advance()
            else:
                self._waits_for_turn = True
                self._schedule(self._advance_in_turn)

    def pause_writing(self) -> None:
        self._writer.pause()
        if self._upgraded is None:  # after an upgrade the responder has its own deadlines
            self._wait_for_client(SEND_S)
            if self._stream is None or self._stream.is_initial:
                self.deadline_s = min(self.deadline_s, self._response_deadline_s)

    def resume_writing(self) -> None:
        if not self._is_ending and self._upgraded is None:
            self._deadline_stage, self.deadline_s = None, _NEVER
        self._writer.resume()  # may pause again at once, with a new deadline
        if not self._is_ending and self._upgraded is None:
            self._advance()

    # --- Called by the dispatched request

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

    # --- Called when a limit is reached

    @property
    def is_idle(self) -> bool:
        """True while the connection waits for a request."""
        return not self._is_busy and not self._parser.requests and not self._writer.is_blocked

    def measure_unsent(self) -> int:
        return self._writer.measure_unsent()

    def shed(self, reason: str) -> None:
        """Close the connection because of a limit, without waiting for the client."""
        self._shared.metrics.note_closed(self._activity, reason)
        if self._account.size_bytes:
            self._shared.metrics.note_limit(reason, self._account.user)
        self._is_ending = True
        self._transport.abort()

    @property
    def _activity(self) -> str:
        if self._stream is not None:
            return "watch"
        if self._is_busy or self._writer.is_blocked:
            return "response"
        return "idle" if self._parser.stage is Stage.IDLE else "request"

    # --- Called by the server

    def stop(self) -> None:
        """Accept no more requests, and close after the response in progress."""
        if self._stream is not None and self._writer.is_blocked:
            self._transport.abort()  # the client does not read
        elif self._upgraded is not None:
            self._upgraded.end()
        elif not self._is_busy and not self._parser.requests:
            self._close()

    def abort(self) -> None:
        self._transport.abort()

    def on_deadline(self) -> None:
        """Close the connection: the client did not send or read in time."""
        self.deadline_s = _NEVER
        if self._writer.is_blocked:
            _log.info(
                "closed a connection with %d unsent bytes: its client did not read in time",
                self._writer.measure_unsent(),
            )
            self._shared.metrics.note_closed(self._activity, "slow")
            self._transport.abort()
        elif self._parser.stage is Stage.BODY and not self._is_ending:
            self._reject(BadRequest(f"the body did not arrive within {BODY_S:.0f} s"))
        else:
            self._close()

    # --- Reading

    def _can_run_immediately(self) -> bool:
        """Return True if the request may be dispatched before the next batch.

        This is so if only other users have unfinished requests. The batch of a flood of requests
        takes most of a pass of the event loop, and this user does not wait for it.
        """
        if self._account.user in self._shared.unfinished:
            return False
        return self._shared.batcher.try_immediate()

    def _schedule(self, step: Callable[[], None]) -> None:
        self._shared.batcher.schedule(step, self._account.user)

    def _count_unfinished(self) -> None:
        user, unfinished = self._account.user, self._shared.unfinished
        self._unfinished_user = user
        unfinished[user] = unfinished.get(user, 0) + 1

    def _count_finished(self) -> None:
        user, unfinished = self._unfinished_user, self._shared.unfinished
        if user is None:
            return
        self._unfinished_user = None
        unfinished[user] -= 1
        if not unfinished[user]:
            del unfinished[user]

    def _wait_for_client(self, seconds: float) -> None:
        self.deadline_s = self._loop.time() + seconds

    def _advance(self) -> None:
        """Take the next step: dispatch a request, reject invalid bytes, or wait for more."""
        parser = self._parser
        if self._is_ending:
            return
        if self._is_busy or self._writer.is_blocked:
            # A watch can last for hours: do not buffer the next request until it ends.
            is_early = self._stream is not None and parser.stage is not Stage.IDLE
            if parser.requests or parser.upgrade or is_early:
                self._set_reading(False)
        elif parser.requests:
            self._dispatch(parser.requests.popleft())
        elif parser.error is not None:
            self._reject(parser.error)
        elif self._shared.stopping and parser.stage is Stage.IDLE:
            self._close()
        else:
            if not self._is_reading:
                self._set_reading(True)
            if parser.wants_continue:
                parser.wants_continue = False
                self._writer.write(CONTINUE)
            # Partial data does not extend the deadline.
            if parser.stage is not self._deadline_stage:
                self._deadline_stage = parser.stage
                self._wait_for_client(_DEADLINES_S[parser.stage])

    def _advance_in_turn(self) -> None:
        self._waits_for_turn = False
        if not self._is_ending:
            if not self._is_reading:
                self._set_reading(True)
            self._advance()

    def _set_reading(self, enabled: bool) -> None:
        if self._is_reading is not enabled:
            self._is_reading = enabled
            (self._transport.resume_reading if enabled else self._transport.pause_reading)()

    # --- Responding

    def _dispatch(self, parsed: ParsedRequest) -> None:
        self._is_busy = True
        self._deadline_stage, self.deadline_s = None, _NEVER
        try:
            result = run_eagerly(self._loop, self._shared.dispatch(parsed.request))
            if isinstance(result, Response):
                self._send(parsed, result)
                return
        except Exception:
            self._abort()
            raise
        self._task = result
        self._count_unfinished()
        finish = partial(self._finish_dispatch, parsed, result)
        result.add_done_callback(lambda _: self._schedule(finish))

    def _finish_dispatch(self, parsed: ParsedRequest, task: asyncio.Task[Response]) -> None:
        self._task = None
        self._count_finished()
        if task.cancelled():
            self._abort()
            return
        try:
            response = task.result()
            if self._writer.is_lost and response.switched is None:
                self._abort()
                return
            self._send(parsed, response)
        except Exception:
            self._abort()
            raise

    def _abort(self) -> None:
        """Close without a response: the client has disconnected, or the dispatch failed."""
        self._is_ending = True
        self._transport.abort()

    def _send(self, parsed: ParsedRequest, response: Response) -> None:
        closing = parsed.closes or self._shared.stopping or self._refused
        if response.stream is not None:
            assert isinstance(response.stream, BufferedStream)
            self._stream, chunked = response.stream, not parsed.is_http10
            head = encode_stream_head(response, self._shared.date(), chunked=chunked)
            sending = self._writer.send_stream(head, response.stream, chunked=chunked)
            self._send_in_task(sending, closing=closing)
            return
        if response.switched is not None:
            self._writer.write(encode_upgrade_head(response, self._shared.date()))
            self._upgrade(response.switched)
            return
        head = encode_head(response, self._shared.date(), closing=closing)
        if parsed.request.method == "HEAD":
            self._writer.write(head)
        elif response.pieces is not None:
            self._count_unfinished()
            self._send_in_task(self._writer.send_pieces(head, response.pieces), closing=closing)
            return
        elif len(response.body) > WHOLE_BYTES_MAX:
            self._count_unfinished()
            self._send_in_task(self._writer.send_body(head, response.body), closing=closing)
            return
        else:
            self._writer.write(head + response.body)
        self._finish_response(closing=closing)

    def _send_in_task(self, sending: Coroutine[Any, Any, None], *, closing: bool) -> None:
        def finish(task: asyncio.Task[None]) -> None:
            self._task = self._stream = None
            self._count_finished()
            self._response_deadline_s = _NEVER
            if task.cancelled() or task.exception() is not None:
                self._abort()
                if not task.cancelled():
                    _log.error("cannot send a response", exc_info=task.exception())
            else:
                self._finish_response(closing=closing or self._shared.stopping)

        self._response_deadline_s = self._loop.time() + RESPONSE_S
        self._task = self._loop.create_task(sending)
        self._task.add_done_callback(finish)

    def _upgrade(self, relay: Callable[[Duplex], Coroutine[Any, Any, None]]) -> None:
        """Pass the connection to the responder. It is closed when the responder has finished."""
        self._upgraded = UpgradedConnection(
            self._transport, self._writer, self._parser.upgrade_data
        )
        if self._writer.is_lost:
            self._upgraded.end()  # the responder observes the end and cleans up
        self._is_reading = True
        self._send_in_task(relay(self._upgraded), closing=True)
        self._response_deadline_s = _NEVER

    def _finish_response(self, *, closing: bool) -> None:
        self._is_busy = False
        if closing:
            self._close()
        elif self._parser.requests:
            self._schedule(self._advance)  # other connections are served first
        else:
            self._advance()

    def _reject(self, error: ApiError) -> None:
        """Send an error as the last response. Data that the client still sends is ignored for a
        moment: closing at once could discard the response before the client reads it."""
        self._is_ending = True
        response = error_response(error)
        head = encode_head(response, self._shared.date(), closing=True)
        self._writer.write(head + response.body)
        self._set_reading(True)
        self._wait_for_client(LINGER_S)

    def _close(self) -> None:
        """Close the connection when the client has read everything, or at the deadline."""
        self._is_ending = True
        if self._writer.is_blocked:
            self._wait_for_client(SEND_S)
        self._writer.close()


def _client_certificate(transport: asyncio.BaseTransport) -> str:
    session = transport.get_extra_info("ssl_object")
    found = session.getpeercert(binary_form=True) if session is not None else None
    return ssl.DER_cert_to_PEM_cert(found) if found else ""


# --- Running the coroutine of a request up to its first wait
# A task is created only for a request that has to wait. Most reads are answered from memory: on one
# connection they cost 4 to 11 % less CPU time than with a task for each request (figures:
# docs/internals/performance.md). Python 3.12 has ``Task(eager_start=True)``, which replaces this
# when 3.11 is dropped.
#
# Before its first wait the coroutine has no current task, so ``asyncio.timeout`` raises there. Code
# that runs in a request uses ``asyncio.wait_for`` or waits first.


R = TypeVar("R")

_TASK_WAITS = object()  # the task has received ``awaited`` and waits for it


def run_eagerly(
    loop: asyncio.AbstractEventLoop, coroutine: Coroutine[Any, Any, R]
) -> R | asyncio.Task[R]:
    """Return the result of the coroutine, or a task that continues it after its first wait."""
    context = copy_context()
    try:
        awaited = context.run(coroutine.send, None)
    except StopIteration as stop:
        result: R = stop.value
        return result
    return loop.create_task(_StartedCoroutine(coroutine, awaited), context=context)


class _StartedCoroutine(Coroutine[Any, Any, R]):
    """A coroutine that has run up to its first wait, which is for ``awaited``."""

    def __init__(self, coroutine: Coroutine[Any, Any, R], awaited: Any) -> None:
        self._coroutine = coroutine
        self._awaited = awaited

    def send(self, value: Any) -> Any:
        if self._awaited is _TASK_WAITS:
            return self._coroutine.send(value)
        awaited, self._awaited = self._awaited, _TASK_WAITS
        return awaited

    def throw(self, *error: Any) -> Any:
        self._awaited = _TASK_WAITS
        return self._coroutine.throw(*error)

    def close(self) -> None:
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, R]:
        raise NotImplementedError("only a task may run this coroutine")
