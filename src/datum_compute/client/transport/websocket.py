"""Messages over a connection that has left HTTP: RFC 6455 by wsproto, for both of its sides.

Rules it keeps: a message larger than ``MESSAGE_BYTES_MAX`` ends the connection; pings are answered;
after a close nothing is sent any more. The end is ``None``, and ``closed`` says how it came about.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Message, Ping, TextMessage
from wsproto.utilities import LocalProtocolError
from wsproto.utilities import generate_accept_token as _accept_token
from wsproto.utilities import generate_nonce as _nonce

from datum_compute.api.errors import BadRequest
from datum_compute.api.http import Duplex, Request

MESSAGE_BYTES_MAX = 1024 * 1024
VERSION = "13"
NORMAL, GOING_AWAY, BAD_DATA, POLICY, TOO_LARGE, FAILED = 1000, 1001, 1002, 1008, 1009, 1011
LOST = 1006  # nobody said why


class Closed(NamedTuple):
    code: int
    reason: str


def question_headers(protocol: str) -> dict[str, str]:
    """What a client asks with."""
    return {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": VERSION,
        "sec-websocket-key": _nonce().decode(),
        "sec-websocket-protocol": protocol,
    }


def answer_headers(request: Request, protocol: str) -> dict[str, str]:
    """What a server answers with; raises BadRequest unless exactly that was asked for."""
    headers = request.headers
    offered = [word.strip() for word in headers.get("sec-websocket-protocol", "").split(",")]
    key = headers.get("sec-websocket-key", "")
    if request.method != "GET" or headers.get("upgrade", "").lower() != "websocket" or not key:
        raise BadRequest("this is done over a websocket: ask with GET and upgrade: websocket")
    if headers.get("sec-websocket-version") != VERSION:
        raise BadRequest(f"the websocket must be of version {VERSION}")
    if protocol not in offered:
        raise BadRequest(f"the websocket must offer the protocol {protocol}")
    return {
        "upgrade": "websocket",
        "sec-websocket-accept": _accept_token(key.encode("latin-1")).decode(),
        "sec-websocket-protocol": protocol,
    }


def is_answer(asked: Mapping[str, str], answered: Mapping[str, str]) -> bool:
    """Whether the other side has really read the question."""
    expected = _accept_token(asked["sec-websocket-key"].encode()).decode()
    return answered.get("sec-websocket-accept") == expected


class WebSocket:
    def __init__(self, duplex: Duplex, *, of_server: bool) -> None:
        self._duplex = duplex
        self._wire = Connection(ConnectionType.SERVER if of_server else ConnectionType.CLIENT)
        self._events: deque[Event] = deque()
        self._part = bytearray()
        self.closed: Closed | None = None
        self.heard = 0  # how often anything came at all

    async def receive(self) -> bytes | None:
        """The next message; None when there will be no more."""
        while self.closed is None:
            if self._events:
                message = await self._taken(self._events.popleft())
                if message is not None:
                    return message
                continue
            data = await self._duplex.read()
            self.heard += 1
            if data:
                self._wire.receive_data(data)
                self._events.extend(self._wire.events())
            else:
                self.closed = self.closed or Closed(LOST, "")
        return None

    async def send(self, message: bytes) -> None:
        await self._send(BytesMessage(message))

    async def ping(self) -> None:
        await self._send(Ping())

    async def close(self, code: int = NORMAL, reason: str = "") -> None:
        """Say why, and let go; whoever closes first is remembered."""
        self.closed = self.closed or Closed(code, reason)
        told = reason.encode()[:120].decode(errors="ignore")  # a frame of control is short
        await self._send(CloseConnection(code, told))
        await self._duplex.aclose()

    async def _taken(self, event: Event) -> bytes | None:
        """The message that is complete with this event, if one is."""
        match event:
            case TextMessage(data=text):
                self._part += text.encode()
            case BytesMessage(data=data):
                self._part += data
            case Ping():
                await self._send(event.response())
            case CloseConnection(code=code, reason=reason):
                self.closed = self.closed or Closed(code, reason or "")
                await self.close(code)
        if len(self._part) > MESSAGE_BYTES_MAX:
            await self.close(TOO_LARGE, f"a message is over {MESSAGE_BYTES_MAX} bytes")
            return None
        if isinstance(event, Message) and event.message_finished:
            message, self._part = bytes(self._part), bytearray()
            return message
        return None

    async def _send(self, event: Event) -> None:
        if self._wire.state is ConnectionState.CLOSED:
            return
        try:
            data = self._wire.send(event)
        except LocalProtocolError:
            return  # the other side closes already
        await self._duplex.write(data)
