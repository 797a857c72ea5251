"""Websocket (RFC 6455, by wsproto) over an upgraded connection, for clients and servers.

Rules:
- A message larger than ``MESSAGE_BYTES_MAX`` closes the connection.
- Pings are answered.
- After a close, nothing is sent. ``receive`` returns None, and ``closed`` has the code and reason.
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
LOST = 1006  # closed without a close frame


class Closed(NamedTuple):
    code: int
    reason: str


def client_handshake(protocol: str) -> dict[str, str]:
    """Return the headers of a client's upgrade request."""
    return {
        "connection": "upgrade",
        "upgrade": "websocket",
        "sec-websocket-version": VERSION,
        "sec-websocket-key": _nonce().decode(),
        "sec-websocket-protocol": protocol,
    }


def server_handshake(request: Request, protocol: str) -> dict[str, str]:
    """Return the headers of the 101 response to an upgrade request.

    Raise BadRequest if it is not an upgrade to a websocket that offers ``protocol``.
    """
    headers = request.headers
    offered = [word.strip() for word in headers.get("sec-websocket-protocol", "").split(",")]
    key = headers.get("sec-websocket-key", "")
    if request.method != "GET" or headers.get("upgrade", "").lower() != "websocket" or not key:
        raise BadRequest("this path requires a websocket: send GET with upgrade: websocket")
    if headers.get("sec-websocket-version") != VERSION:
        raise BadRequest(f"sec-websocket-version must be {VERSION}")
    if protocol not in offered:
        raise BadRequest(f"sec-websocket-protocol must contain {protocol}")
    return {
        "upgrade": "websocket",
        "sec-websocket-accept": _accept_token(key.encode("latin-1")).decode(),
        "sec-websocket-protocol": protocol,
    }


def accepts_upgrade(request_headers: Mapping[str, str], headers: Mapping[str, str]) -> bool:
    """Return True if the response has the sec-websocket-accept that the key of the request
    requires."""
    expected = _accept_token(request_headers["sec-websocket-key"].encode()).decode()
    return headers.get("sec-websocket-accept") == expected


class WebSocket:
    def __init__(self, duplex: Duplex, *, of_server: bool) -> None:
        self._duplex = duplex
        self._wire = Connection(ConnectionType.SERVER if of_server else ConnectionType.CLIENT)
        self._events: deque[Event] = deque()
        self._part = bytearray()
        self.closed: Closed | None = None
        self.read_count = 0  # socket reads, including those of pings and of partial messages

    async def receive(self) -> bytes | None:
        """Return the next message, or None after the end."""
        while self.closed is None:
            if self._events:
                message = await self._handle(self._events.popleft())
                if message is not None:
                    return message
                continue
            data = await self._duplex.read()
            self.read_count += 1
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
        """Send a close frame and close the connection. ``closed`` keeps the first reason."""
        self.closed = self.closed or Closed(code, reason)
        short = reason.encode()[:120].decode(errors="ignore")  # control frames have 125 bytes
        await self._send(CloseConnection(code, short))
        await self._duplex.aclose()

    async def _handle(self, event: Event) -> bytes | None:
        """Handle one event. Return the message if the event completes one, otherwise None."""
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
            await self.close(TOO_LARGE, f"a message is larger than {MESSAGE_BYTES_MAX} bytes")
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
            return  # the peer has sent a close frame
        await self._duplex.write(data)
