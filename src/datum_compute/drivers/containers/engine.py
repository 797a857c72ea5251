"""Client of a container engine: the Docker-compatible HTTP API on a unix socket.

Requests are bounded in time, in size of the response and in number. A failed request raises

- TransientError   there is no engine, or it did not respond in time
- EngineError      the engine answered with an error status

The connection of an exec session leaves HTTP and carries raw streams.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from datum_compute.api.http import JSON, Request
from datum_compute.api.meta.codec import DecodeError, JsonObject, decode, decode_as, encode
from datum_compute.client.transport.http1 import (
    CONNECT_TIMEOUT_S,
    ConnectTimeout,
    Http1Exchange,
    Http1Pool,
    HttpEndpoint,
    RawConnection,
)
from datum_compute.client.transport.http1_connection import Http1Error
from datum_compute.drivers.driver import DriverError, TransientError
from datum_compute.drivers.logs import split_pieces

API_VERSION = "v1.40"  # podman 4, and Docker since 19.03
REQUEST_TIMEOUT_S = 30.0
PING_TIMEOUT_S = 5.0
IDLE_CONNECTION_MAX_S = 15.0
RESPONSE_BYTES_MAX = 32 * 1024 * 1024
CONCURRENT_REQUESTS_MAX = 8
JSON_LINE_BYTES_MAX = 1024 * 1024
_ERROR_CHARACTERS_MAX = 1024
# Host paths of engines and runtimes: storage, state and sockets.
_ENGINE_PATH = re.compile(
    r"""(?x)
    (?<![\w.-])
    (?:
        /var/lib/(?:docker|containers|containerd)
        | /(?:var/)?run/(?:user/[0-9]+/)?
          (?:docker|podman|containers|containerd|crun|runc|netns|libpod)(?=[/.\s:"',;)]|$)
        | /[^\s:"',;)]*?/(?:containers/storage|\.local/share/containers|libpod/tmp)
        | /proc/[0-9]+
        | /sys/fs/cgroup
    )
    [^\s:"',;)]*
    """
)
_PATH_CHARACTERS = "/:@!$&'()*+,;=~"  # not quoted
_CLIENT_ERRORS = (OSError, TimeoutError, Http1Error)

Query = Mapping[str, str | int]


class EngineError(DriverError):
    """The engine answered with an error; ``status`` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class EngineTimeout(TransientError):
    """The engine accepted the request and did not respond in time."""


@dataclass(frozen=True, slots=True)
class EngineVersion:
    name: str
    version: str


class Engine:
    """A pool of connections to one engine; close it with ``aclose``.

    ``response_listeners`` are called for every response, also an error, and for every piece of a
    stream. The drivers of all cells of a process share one Engine.
    """

    def __init__(self, socket: str) -> None:
        self.socket = socket
        endpoint = HttpEndpoint("http://engine", unix_socket=socket)
        self._pool = Http1Pool(endpoint, idle_max_s=IDLE_CONNECTION_MAX_S)
        self.response_listeners: list[Callable[[], None]] = []
        self._request_slots = asyncio.Semaphore(CONCURRENT_REQUESTS_MAX)

    async def aclose(self) -> None:
        await self._pool.aclose()

    async def read_version(self, timeout_s: float = 5.0) -> EngineVersion:
        """Return name and version. This request takes no request slot, like a ping."""
        async with self._request("GET", "/version", None, None, timeout_s=timeout_s) as response:
            data = await self._read_body(response)
        try:
            found = decode_as(data, dict[str, Any])
        except DecodeError as error:
            raise TransientError("the engine answers no JSON to GET /version") from error
        parts = found.get("Components") or [{}]
        name = str(parts[0].get("Name", "Docker"))
        return EngineVersion(name.removesuffix(" Engine"), str(found.get("Version", "")))

    async def ping(self, timeout_s: float = PING_TIMEOUT_S) -> None:
        """Raise TransientError if the engine does not respond.

        A ping takes no request slot: requests without a response may hold all of them.
        """
        with suppress(EngineError):
            async with self._request("GET", "/_ping", None, None, timeout_s=timeout_s):
                return

    async def request(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        """Return the JSON of the response; None if its body is empty."""
        data = await self.request_bytes(method, path, query, body, timeout_s=timeout_s)
        if not data.strip():
            return None
        try:
            return decode(data)
        except DecodeError as error:
            raise TransientError(f"the engine answers no JSON to {method} {path}") from error

    async def request_bytes(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """Return the body of the response. ``timeout_s`` starts when the request gets a slot."""
        async with self._request_slots:
            opened = self._request(method, path, query, body, timeout_s=timeout_s)
            async with opened as response:
                return await self._read_body(response)

    async def read_into(
        self,
        consume: Callable[[bytes], bool],
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        bytes_max: int | None = None,
    ) -> bool:
        """Pass the body to ``consume`` in pieces, until it returns True or has ``bytes_max`` bytes.

        Other tasks run after every piece. Return True if the whole body was passed.
        """
        size = 0
        async with self._request_slots:
            opened = self._request(method, path, query, body, timeout_s=timeout_s)
            async with opened as response:
                async for chunk in self._chunks(response):
                    for piece in split_pieces(chunk):
                        size += len(piece)
                        if consume(piece) or (bytes_max is not None and size >= bytes_max):
                            return False
                        await asyncio.sleep(0)
        return True

    async def head(self, path: str, query: Query | None = None) -> Mapping[str, str]:
        """Return the headers of the response. Their names are in lower case."""
        async with (
            self._request_slots,
            self._request("HEAD", path, query, None, timeout_s=REQUEST_TIMEOUT_S) as response,
        ):
            return response.headers

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        idle_timeout_s: float | None = None,
    ) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        """Return the chunks of the response as they arrive. A stream takes no request slot."""
        opened = self._request(
            method, path, query, None, headers, timeout_s=None, idle_timeout_s=idle_timeout_s
        )
        async with opened as response:
            yield self._chunks(response)

    @asynccontextmanager
    async def _request(
        self,
        method: str,
        path: str,
        query: Query | None,
        body: JsonObject | None,
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None,
        idle_timeout_s: float | None = None,
    ) -> AsyncGenerator[Http1Exchange, None]:
        request = _build_request(method, path, query, body, headers)
        try:
            async with asyncio.timeout(timeout_s):
                exchange = await self._pool.open(request, idle_timeout_s)
                try:
                    self.notify_response()
                    await self._raise_for_status(exchange)
                    yield exchange
                finally:
                    exchange.close()
        except _CLIENT_ERRORS as error:
            # The cause is dropped: it holds the request, which may contain secrets.
            raise _translate_error(error, timeout_s) from None

    async def upgrade(self, path: str, body: JsonObject) -> RawConnection:
        """Send a POST request and return the connection, which then carries raw streams."""
        headers = {"connection": "Upgrade", "upgrade": "tcp"}
        request = _build_request("POST", path, None, body, headers)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                exchange = await self._pool.open(request)
                if exchange.status == 101:
                    return exchange.upgrade()
                try:
                    await self._raise_for_status(exchange)
                finally:
                    exchange.close()
        except _CLIENT_ERRORS as error:
            raise _translate_error(error, REQUEST_TIMEOUT_S) from None
        raise TransientError(f"the engine answers {exchange.status} instead of 101 to POST {path}")

    async def _raise_for_status(self, exchange: Http1Exchange) -> None:
        if exchange.status >= 400:
            message = parse_error_message(await self._read_body(exchange))
            raise EngineError(exchange.status, message)

    def notify_response(self) -> None:
        for listener in self.response_listeners:
            listener()

    async def _read_body(self, response: Http1Exchange) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for chunk in response.chunks():
            parts.append(chunk)
            size += len(chunk)
            if size > RESPONSE_BYTES_MAX:
                raise TransientError(f"the engine's answer is over {RESPONSE_BYTES_MAX} bytes")
        return b"".join(parts)

    async def _chunks(self, response: Http1Exchange) -> AsyncGenerator[bytes, None]:
        async for chunk in response.chunks():
            self.notify_response()
            yield chunk


def _build_request(
    method: str,
    path: str,
    query: Query | None,
    body: JsonObject | None,
    headers: Mapping[str, str] | None,
) -> Request:
    all_headers = dict(headers or {})
    if body is not None:
        all_headers["content-type"] = JSON
    return Request(
        method,
        f"/{API_VERSION}{quote(path, safe=_PATH_CHARACTERS)}",
        {name: str(value) for name, value in (query or {}).items()},
        all_headers,
        b"" if body is None else encode(body),
    )


def _translate_error(error: BaseException, timeout_s: float | None) -> TransientError:
    kind = TransientError
    match error:
        case ConnectTimeout():
            reason = f"no connection within {CONNECT_TIMEOUT_S:g} s"
        case TimeoutError():
            kind = EngineTimeout
            reason = (
                "no response in time"
                if timeout_s is None
                else f"no response within {timeout_s:g} s"
            )
        case ConnectionRefusedError():
            reason = "connection refused"
        case Http1Error() | ConnectionError():
            reason = "the connection was lost"
        case OSError():
            reason = (error.strerror or "no connection").lower()
        case _:
            reason = "the connection was lost"
    return kind(f"cannot reach the container engine: {reason}")


async def parse_json_lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[JsonObject, None]:
    """Yield the object of each line. Lines that are not a JSON object are skipped."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if found := _parse_object(line):
                yield found
        if len(rest) > JSON_LINE_BYTES_MAX:
            raise TransientError(f"a line of the engine is over {JSON_LINE_BYTES_MAX} bytes")
    if found := _parse_object(rest):
        yield found


def encode_filters(**values: list[str]) -> str:
    return json.dumps(values)


def _parse_object(line: bytes) -> JsonObject | None:
    try:
        found = decode(line) if line.strip() else None
    except DecodeError:
        return None
    return found if isinstance(found, dict) else None


def parse_error_message(body: bytes) -> str:
    """Return the message of an error response, without host paths."""
    found = _parse_object(body)
    message = str(found.get("message") or found.get("cause") or "") if found else ""
    message = message or body.decode(errors="replace")
    # Cut twice: before the search for paths, which is slow, and after it, which changes the length.
    message = hide_engine_paths(message.strip()[: 4 * _ERROR_CHARACTERS_MAX])
    return message[:_ERROR_CHARACTERS_MAX] or "no reason given"


def hide_engine_paths(message: str) -> str:
    """Replace host paths in a message of the engine that users see.

    Paths inside the container, such as that of a missing program, stay.
    """
    return _ENGINE_PATH.sub("(path on the host)", message)
