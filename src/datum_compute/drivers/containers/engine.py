"""Client of a container engine: the Docker-compatible HTTP API on a unix socket.

Requests are bounded in time, in size of the response and in number. A failed request raises

- TransientError   there is no engine, or it did not answer in time
- EngineError      the engine answered with an error status

The connection of an exec session switches from HTTP to raw streams. The API calls that a hijacked
connection.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from datum_compute.api.meta.codec import DecodeError, JsonObject, decode, encode
from datum_compute.drivers.driver import DriverError, TransientError
from datum_compute.drivers.logs import split_pieces

API_VERSION = "v1.40"  # podman 4, and Docker since 19.03
REQUEST_TIMEOUT_S = 30.0
PING_TIMEOUT_S = 5.0
CONNECT_TIMEOUT_S = 5.0
RESPONSE_BYTES_MAX = 32 * 1024 * 1024
CONCURRENT_REQUESTS_MAX = 8
JSON_LINE_BYTES_MAX = 1024 * 1024
_ERROR_BODY_BYTES_MAX = 64 * 1024
_ERROR_CHARACTERS_MAX = 1024
_READ_BYTES = 32 * 1024
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
_HOST = URL("http://engine")
_CLIENT_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)
_STREAM_ERRORS = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)

Query = Mapping[str, str | int]


class EngineError(DriverError):
    """The engine answered with an error; ``status`` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


class EngineTimeout(TransientError):
    """The engine accepted the request and did not answer in time."""


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
        self._session: aiohttp.ClientSession | None = None
        self.response_listeners: list[Callable[[], None]] = []
        self._request_slots = asyncio.Semaphore(CONCURRENT_REQUESTS_MAX)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def read_version(self, timeout_s: float = 5.0) -> EngineVersion:
        found = await self.request("GET", "/version", timeout_s=timeout_s)
        parts = found.get("Components") or [{}]
        name = str(parts[0].get("Name", "Docker"))
        return EngineVersion(name.removesuffix(" Engine"), str(found.get("Version", "")))

    async def ping(self, timeout_s: float = PING_TIMEOUT_S) -> None:
        """Raise TransientError if the engine does not answer.

        A ping takes no request slot: requests that the engine does not answer may hold all of them.
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
        """Return the headers of the response; their names ignore case."""
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
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        all_headers = dict(headers or {})
        if body is not None:
            all_headers["content-type"] = "application/json"
        timeouts = aiohttp.ClientTimeout(
            total=timeout_s, sock_connect=CONNECT_TIMEOUT_S, sock_read=idle_timeout_s
        )
        try:
            async with self._open_session().request(
                method,
                _HOST.with_path(f"/{API_VERSION}{path}").with_query(dict(query or {})),
                data=None if body is None else encode(body),
                headers=all_headers,
                timeout=timeouts,
            ) as response:
                self.notify_response()
                if response.status >= 400:
                    message = parse_error_message(await self._read_body(response))
                    raise EngineError(response.status, message)
                yield response
        except _CLIENT_ERRORS as error:
            # The cause is dropped: it holds the request, which may contain secrets.
            raise _translate_error(error) from None

    def notify_response(self) -> None:
        for listener in self.response_listeners:
            listener()

    def _open_session(self) -> aiohttp.ClientSession:
        """Return the session, created on first use because aiohttp requires a running loop."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self.socket, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def _read_body(self, response: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for chunk in response.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > RESPONSE_BYTES_MAX:
                raise TransientError(f"the engine's answer is over {RESPONSE_BYTES_MAX} bytes")
        return b"".join(parts)

    async def _chunks(self, response: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        async for chunk in response.content.iter_any():
            self.notify_response()
            yield chunk


def _translate_error(error: BaseException) -> TransientError:
    kind = TransientError
    match error:
        case aiohttp.ConnectionTimeoutError():
            reason = "no connection in time"
        case aiohttp.ClientConnectorError(os_error=cause):
            reason = (cause.strerror or "no connection").lower()
        case TimeoutError():
            kind, reason = EngineTimeout, "no answer in time"
        case _:
            reason = "the connection was lost"
    return kind(f"the container engine does not answer: {reason}")


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


class HijackedConnection:
    """Carries the input and output of one process. The input can be closed alone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Return output; empty when the process has ended or the connection was lost."""
        try:
            return await self._reader.read(_READ_BYTES)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        with suppress(OSError):  # the reader detects a lost connection
            self._writer.write(data)
            await self._writer.drain()

    def close_input(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


async def open_hijacked(socket: str, path: str, body: JsonObject) -> HijackedConnection:
    """Send a POST request and return the connection, which then carries raw streams."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            return await _request_upgrade(socket, path, body)
    except (TimeoutError, *_STREAM_ERRORS) as error:
        raise TransientError("the container engine does not answer") from error


async def _request_upgrade(socket: str, path: str, body: JsonObject) -> HijackedConnection:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        content = encode(body)
        lines = (
            f"POST /{API_VERSION}{path} HTTP/1.1",
            "host: engine",
            "content-type: application/json",
            f"content-length: {len(content)}",
            "connection: Upgrade",
            "upgrade: tcp",
        )
        writer.write("\r\n".join((*lines, "", "")).encode() + content)
        status, headers = _parse_head(await reader.readuntil(b"\r\n\r\n"))
        if status >= 400:
            size = min(int(headers.get("content-length", 0)), _ERROR_BODY_BYTES_MAX)
            raise EngineError(status, parse_error_message(await reader.readexactly(size)))
    except BaseException:
        writer.close()
        raise
    return HijackedConnection(reader, writer)


def _parse_head(head: bytes) -> tuple[int, Mapping[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split()[1]), {n.strip().lower(): v.strip() for n, _, v in pairs}
