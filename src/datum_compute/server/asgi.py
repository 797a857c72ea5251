"""The server as a bare ASGI application, for uvicorn.

Bodies are read up to a limit. A watch is sent as it comes; it ends when the client goes, when the
client takes nothing for a while, or when ``ApiServer.close_streams`` is called. Uvicorn waits for
open responses before it ends, so whoever stops it calls ``close_streams`` first and sets
``timeout_graceful_shutdown`` for clients that do not read.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any, Protocol
from urllib.parse import parse_qsl

from datum_compute.api.errors import ApiError, BadRequest, RequestEntityTooLarge
from datum_compute.api.exchange import Request, Response
from datum_compute.server.access.impersonation import SEPARATOR
from datum_compute.server.answer import error_answer
from datum_compute.server.streams import OpenStreams, end_now
from datum_compute.server.watchstream import WatchStream

BODY_BYTES_MAX = 3 * 1024 * 1024
HEADERS_BYTES_MAX = 64 * 1024
QUERY_FIELDS_MAX = 100
BODY_TIMEOUT_S = 60.0
SEND_TIMEOUT_S = 60.0
_CHUNK_BYTES = 64 * 1024
# A request of HTTP/1.1 that has neither has no body; a GET is not even asked for one then.
_BODY_HEADERS = frozenset({"content-length", "transfer-encoding"})
_SINGLE = frozenset({"authorization", "content-type", "content-length", "host", "impersonate-user"})
_DIGITS = re.compile(r"[0-9]{1,18}")

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger(__name__)


class _Disconnected(Exception):
    """The client went away before its request was complete."""


class Dispatcher(Protocol):
    """What answers requests: the API server, or another that speaks as it does."""

    @property
    def streams(self) -> OpenStreams: ...

    async def dispatch(self, request: Request) -> Response: ...

    def close_streams(self) -> None: ...


class AsgiApp:
    def __init__(self, server: Dispatcher) -> None:
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        match scope["type"]:
            case "http":
                await self._http(scope, receive, send)
            case "lifespan":
                await self._lifespan(receive, send)
            case _:
                await send({"type": "websocket.close", "code": 1000})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._server.close_streams()
        await send({"type": "lifespan.shutdown.complete"})

    async def _http(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            request = await _read_request(scope, receive)
        except _Disconnected:
            return
        except ApiError as error:
            await _send_whole(error_answer(error), send, closing=True)
            return
        response = await self._server.dispatch(request)
        if isinstance(response.stream, WatchStream):
            await _WatchResponse(self._server.streams, response.stream, receive, send).run(response)
        else:
            await _send_whole(response, send)


class _WatchResponse:
    """Sends lines and listens for the client's leaving; whichever ends first ends the other."""

    def __init__(
        self, streams: OpenStreams, stream: WatchStream, receive: Receive, send: Send
    ) -> None:
        self._streams = streams
        self._stream = stream
        self._receive = receive
        self._send = send
        self._listening: asyncio.Timeout | None = None
        self._over = False

    async def run(self, response: Response) -> None:
        await asyncio.gather(self._forward(response), self._listen())

    async def _forward(self, response: Response) -> None:
        try:
            await self._send_part(_head(response))
            async for line in self._stream:
                more = self._stream.take_ready(_CHUNK_BYTES)
                await self._send_part(_chunk(line + more))
                if more:
                    await asyncio.sleep(0)  # a long initial state must not keep others waiting
            await self._send_part(_chunk(b"", more=False))
        except TimeoutError:
            logger.info("a watch was ended because its client took no data")
        finally:
            self._over = True
            if self._listening is not None:
                end_now(self._listening)

    async def _listen(self) -> None:
        try:
            async with asyncio.timeout(None) as self._listening:
                while not self._over and (await self._receive())["type"] != "http.disconnect":
                    pass
        except TimeoutError:
            return
        finally:
            self._listening = None
        self._stream.stop()

    async def _send_part(self, message: Message) -> None:
        async with self._streams.interruptible(SEND_TIMEOUT_S):
            await self._send(message)


async def _read_request(scope: Scope, receive: Receive) -> Request:
    headers = _headers(scope["headers"])
    bare = scope["method"] == "GET" and not headers.keys() & _BODY_HEADERS
    body = b"" if bare else await _timely_body(headers, receive)
    query = _query(scope["query_string"])
    return Request(scope["method"], scope["path"], query, headers, body, _certificate(scope))


async def _timely_body(headers: dict[str, str], receive: Receive) -> bytes:
    try:
        async with asyncio.timeout(BODY_TIMEOUT_S):
            return await _read_body(headers.get("content-length", ""), receive)
    except TimeoutError as error:
        raise BadRequest(f"the body did not arrive within {BODY_TIMEOUT_S:.0f} s") from error


def _headers(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Values of a repeated header are joined; one that may stand only once is refused, since two
    readers of the request could take different ones for the truth."""
    headers: dict[str, str] = {}
    size = 0
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        size += len(raw_name) + len(raw_value)
        if size > HEADERS_BYTES_MAX:
            raise BadRequest(f"the headers are larger than {HEADERS_BYTES_MAX} bytes")
        if name in headers and name in _SINGLE:
            raise BadRequest(f"the header {name} was sent more than once")
        separator = SEPARATOR if name.startswith("impersonate-") else ", "
        headers[name] = f"{headers[name]}{separator}{value}" if name in headers else value
    return headers


def _certificate(scope: Scope) -> str:
    """The certificate of the client, in the place the ASGI extension for TLS gives it."""
    chain = scope.get("extensions", {}).get("tls", {}).get("client_cert_chain", ())
    return next(iter(chain), "")


async def _read_body(declared: str, receive: Receive) -> bytes:
    if _DIGITS.fullmatch(declared) and int(declared) > BODY_BYTES_MAX:
        raise _too_large()
    parts, size = [], 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise _Disconnected
        part = message.get("body", b"")
        size += len(part)
        if size > BODY_BYTES_MAX:
            raise _too_large()
        parts.append(part)
        if not message.get("more_body"):
            return b"".join(parts)


def _query(raw: bytes) -> dict[str, str]:
    """The first value of every parameter; one without a value is there all the same."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("latin-1"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError as error:
        raise BadRequest(f"the query has more than {QUERY_FIELDS_MAX} fields") from error
    query: dict[str, str] = {}
    for name, value in pairs:
        query.setdefault(name, value)
    return query


def _too_large() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {BODY_BYTES_MAX}")


async def _send_whole(response: Response, send: Send, *, closing: bool = False) -> None:
    extra = [(b"content-length", str(len(response.body)).encode())]
    if closing:
        # The rest of the body was not read, so nothing can follow on this connection.
        extra.append((b"connection", b"close"))
    head = _head(response)
    head["headers"] += extra
    await send(head)
    await send(_chunk(response.body, more=False))


def _head(response: Response) -> Message:
    headers = [(b"content-type", response.content_type.encode("latin-1"))]
    headers += [(n.encode("latin-1"), v.encode("latin-1")) for n, v in response.headers.items()]
    return {"type": "http.response.start", "status": response.status, "headers": headers}


def _chunk(body: bytes, *, more: bool = True) -> Message:
    return {"type": "http.response.body", "body": body, "more_body": more}
