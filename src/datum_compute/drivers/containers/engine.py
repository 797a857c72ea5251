"""A connection to the engine that leaves HTTP for the streams of one process."""
# MERGED-DOC """The engine behind its socket: requests with a bound on time, size and number, and streams.
#
# What goes wrong becomes one of
# - TransientError   no engine, no answer in time, or it is busy
# - EngineRefusal    it answered, and said no: status and its own words
# """

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Any

import aiohttp
from yarl import URL

from datum_compute.api.codec import DecodeError, JsonObject, decode, encode
from datum_compute.drivers.driver import DriverError, TransientError
from datum_compute.drivers.logs import split_pieces

API = "v1.40"  # podman 4 and every Docker since 19.03
REQUEST_TIMEOUT_S = 30.0
PING_TIMEOUT_S = 5.0
RESPONSE_BYTES_MAX = 32 * 1024 * 1024
CONCURRENT_REQUESTS_MAX = 8
JSON_LINE_BYTES_MAX = 1024 * 1024
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
_LOST = (aiohttp.ClientError, OSError, TimeoutError)

Query = Mapping[str, str | int]


class EngineError(DriverError):
    """The engine answered with an error; ``status`` is its HTTP code, ``words`` are its own."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(words)
        self.status = status
        self.words = words


class EngineTimeout(TransientError):
    """The engine accepted the request and did not answer in time."""


@dataclass(frozen=True, slots=True)
class EngineVersion:
    """Who answers."""

    name: str
    version: str


class Engine:
    """Connections to one engine, reused; close it with ``aclose``.

    Every answer, also a refusal, and every piece of a stream is announced to ``answer_listeners``.
    The drivers of all cells of a process share one Engine.
    """

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._session: aiohttp.ClientSession | None = None
        self.answer_listeners: list[Callable[[], None]] = []
        self._turns = asyncio.Semaphore(CONCURRENT_REQUESTS_MAX)

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def facts(self, timeout_s: float = 5.0) -> EngineVersion:
        found = await self.ask("GET", "/version", timeout_s=timeout_s)
        parts = found.get("Components") or [{}]
        name = str(parts[0].get("Name", "Docker"))
        return EngineVersion(name.removesuffix(" Engine"), str(found.get("Version", "")))

    async def ping(self, timeout_s: float = PING_TIMEOUT_S) -> None:
        """Raise TransientError if the engine does not answer. Waits for no turn: all of them may be
        taken by requests that the engine does not answer."""
        with suppress(EngineError):
            async with self._request("GET", "/_ping", None, None, timeout_s=timeout_s):
                return

    async def ask(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> Any:
        """The JSON of the answer; None if it has none."""
        data = await self.fetch(method, path, query, body, timeout_s=timeout_s)
        if not data.strip():
            return None
        try:
            return decode(data)
        except DecodeError as error:
            raise TransientError(f"the engine answers no JSON to {method} {path}") from error

    async def fetch(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> bytes:
        """The bytes of the answer. ``timeout_s`` counts from the turn of the request."""
        async with self._turns:
            opened = self._request(method, path, query, body, timeout_s=timeout_s)
            async with opened as answer:
                return await self._read(answer)

    async def fetch_into(
        self,
        take: Callable[[bytes], bool],
        method: str,
        path: str,
        query: Query | None = None,
        body: JsonObject | None = None,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        bytes_max: int | None = None,
    ) -> bool:
        """Pass the response to ``take`` piece by piece, until ``take`` returns True or has received
        ``bytes_max``. Other work runs after every piece. Return True if it received all."""
        size = 0
        async with self._turns:
            opened = self._request(method, path, query, body, timeout_s=timeout_s)
            async with opened as answer:
                async for chunk in self._chunks(answer):
                    for piece in split_pieces(chunk):
                        size += len(piece)
                        if take(piece) or (bytes_max is not None and size >= bytes_max):
                            return False
                        await asyncio.sleep(0)
        return True

    async def head(self, path: str, query: Query | None = None) -> Mapping[str, str]:
        """Return the headers of the answer; their names ignore case."""
        async with (
            self._turns,
            self._request("HEAD", path, query, None, timeout_s=REQUEST_TIMEOUT_S) as answer,
        ):
            return answer.headers

    @asynccontextmanager
    async def stream(
        self,
        method: str,
        path: str,
        query: Query | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        silence_s: float | None = None,
    ) -> AsyncGenerator[AsyncGenerator[bytes, None], None]:
        """Chunks as they come, for as long as the caller stays; not counted as a request."""
        opened = self._request(
            method, path, query, None, headers, timeout_s=None, silence_s=silence_s
        )
        async with opened as answer:
            yield self._chunks(answer)

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
        silence_s: float | None = None,
    ) -> AsyncGenerator[aiohttp.ClientResponse, None]:
        sent = dict(headers or {})
        if body is not None:
            sent["content-type"] = "application/json"
        patience = aiohttp.ClientTimeout(total=timeout_s, sock_connect=5.0, sock_read=silence_s)
        try:
            async with self._opened().request(
                method,
                _HOST.with_path(f"/{API}{path}").with_query(dict(query or {})),
                data=None if body is None else encode(body),
                headers=sent,
                timeout=patience,
            ) as answer:
                self.announce_answer()
                if answer.status >= 400:
                    raise EngineError(answer.status, error_message(await self._read(answer)))
                yield answer
        except _LOST as error:
            raise self._lost(error) from None  # its request may hold secrets: cut it off

    def announce_answer(self) -> None:
        for listener in self.answer_listeners:
            listener()

    def _opened(self) -> aiohttp.ClientSession:
        """The session, made on first use because aiohttp wants a running loop for it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.UnixConnector(self.socket, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def _read(self, answer: aiohttp.ClientResponse) -> bytes:
        parts: list[bytes] = []
        size = 0
        async for chunk in answer.content.iter_any():
            parts.append(chunk)
            size += len(chunk)
            if size > RESPONSE_BYTES_MAX:
                raise TransientError(f"the engine's answer is over {RESPONSE_BYTES_MAX} bytes")
        return b"".join(parts)

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        async for chunk in answer.content.iter_any():
            self.announce_answer()
            yield chunk

    def _lost(self, error: BaseException) -> TransientError:
        kind = TransientError
        match error:
            case aiohttp.ConnectionTimeoutError():
                why = "no connection in time"
            case aiohttp.ClientConnectorError(os_error=cause):
                why = (cause.strerror or "no connection").lower()
            case TimeoutError():
                kind, why = EngineTimeout, "no answer in time"
            case _:
                why = "the connection was lost"
        return kind(f"the container engine does not answer: {why}")


Stream = AbstractAsyncContextManager[AsyncGenerator[bytes, None]]


async def parse_json_lines(chunks: AsyncGenerator[bytes, None]) -> AsyncGenerator[JsonObject, None]:
    """One object for each line; what is no JSON is passed over."""
    rest = b""
    async for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            if found := _object(line):
                yield found
        if len(rest) > JSON_LINE_BYTES_MAX:
            raise TransientError(f"a line of the engine is over {JSON_LINE_BYTES_MAX} bytes")
    if found := _object(rest):
        yield found


def encode_filters(**values: list[str]) -> str:
    return json.dumps(values)


def _object(line: bytes) -> JsonObject | None:
    try:
        found = decode(line) if line.strip() else None
    except DecodeError:
        return None
    return found if isinstance(found, dict) else None


def error_message(body: bytes) -> str:
    """What the engine says, without its own wrapping."""
    found = _object(body)
    words = str(found.get("message") or found.get("cause") or "") if found else ""
    words = hide_engine_paths((words or body.decode(errors="replace")).strip()[:4096])
    return words[:1024] or "it gives no reason"


def hide_engine_paths(words: str) -> str:
    """Replace host paths in a message of the engine that users see. Paths inside the container,
    such as that of a missing program, stay."""
    return _ENGINE_PATH.sub("(path on the host)", words)


REQUEST_TIMEOUT_S = 30.0
_PIECE = 32 * 1024
_REFUSAL_BYTES_MAX = 64 * 1024
_BROKEN = (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError)


class HijackedConnection:
    """Bytes of a process and for it; its input can be ended alone."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        """Empty when the process has ended, or the engine is gone."""
        try:
            return await self._reader.read(_PIECE)
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        with suppress(OSError):  # the end is heard by who reads
            self._writer.write(data)
            await self._writer.drain()

    def end_input(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    def close(self) -> None:
        self._writer.close()


async def open_hijacked(socket: str, path: str, body: JsonObject) -> HijackedConnection:
    """Start what the path names and stay attached to it."""
    try:
        async with asyncio.timeout(REQUEST_TIMEOUT_S):
            return await _open_hijacked(socket, path, body)
    except (TimeoutError, *_BROKEN) as error:
        why = "the container engine does not answer"
        raise TransientError(why) from error


async def _open_hijacked(socket: str, path: str, body: JsonObject) -> HijackedConnection:
    reader, writer = await asyncio.open_unix_connection(socket)
    try:
        sent = encode(body)
        lines = (
            f"POST /{API}{path} HTTP/1.1",
            "host: engine",
            "content-type: application/json",
            f"content-length: {len(sent)}",
            "connection: Upgrade",
            "upgrade: tcp",
        )
        writer.write("\r\n".join((*lines, "", "")).encode() + sent)
        status, headers = _read_head(await reader.readuntil(b"\r\n\r\n"))
        if status >= 400:
            size = min(int(headers.get("content-length", 0)), _REFUSAL_BYTES_MAX)
            raise EngineError(status, error_message(await reader.readexactly(size)))
    except BaseException:
        writer.close()
        raise
    return HijackedConnection(reader, writer)


def _read_head(head: bytes) -> tuple[int, Mapping[str, str]]:
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    pairs = (line.partition(":") for line in lines)
    return int(first.split()[1]), {n.strip().lower(): v.strip() for n, _, v in pairs}
