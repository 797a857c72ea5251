"""HTTP/1.1 client: a pool of connections to one server, and the transport of an API client on it.

- A pool connects over TCP, TLS or a unix socket, directly or through a proxy. Through a proxy it
  tunnels https with CONNECT; the proxy sees no header of the request.
- Certificates are verified unless the caller disables it explicitly.
- Redirects are not followed, so a token is never sent to a host that the user did not name.
- A GET or HEAD is sent again on a new connection if a reused one turns out to be closed.
- ``Http1Transport`` reports every network failure as Unreachable. The error contains the server,
  the reason and a hint, and nothing of the request.

Start with ``Http1Pool.open``. The parser of responses is in http1_connection.py.
"""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import SplitResult, unquote, urlencode, urlsplit

from msgspec.structs import replace

from datum_compute import __version__
from datum_compute.api.errors import Unreachable
from datum_compute.api.http import JSON, Request, Response, is_upgrade
from datum_compute.client.transport.http1_connection import (
    Http1Connection,
    Http1Error,
    ResponseHead,
)
from datum_compute.client.transport.interface import IDLE_CONNECTION_MAX_S, Timeouts, is_watch
from datum_compute.client.transport.tls import Certificate, client_tls_context

CONNECT_TIMEOUT_S = 5.0
# TCP keepalive detects within 60 s that a peer is gone, also while a watch has no events.
_KEEPALIVE_OPTIONS = (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3))
# Every exception that an exchange raises when the network or the server fails.
NETWORK_ERRORS = (OSError, TimeoutError, ValueError, Http1Error)


class ConnectTimeout(TimeoutError):
    """The connection was not established in time."""


class ProxyError(Exception):
    """The proxy cannot be reached, or refused to connect to the server."""


@dataclass(frozen=True, slots=True)
class HttpEndpoint:
    """Where a pool connects to. ``server`` is a URL; its path is ignored.

    ``server_name`` is the name that the certificate must have; by default the host of the server.
    """

    server: str
    tls: ssl.SSLContext | None = None
    server_name: str = ""
    proxy: str = ""
    unix_socket: str = ""


class Http1Pool:
    """Connections to one endpoint, reused while they are idle; close it with ``aclose``."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        *,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        idle_max_s: float = IDLE_CONNECTION_MAX_S,
    ) -> None:
        url = urlsplit(endpoint.server)
        self.origin = f"{url.scheme}://{url.netloc}"
        self._authority = url.netloc.rpartition("@")[2]
        self._address = _host_and_port(url)
        self._server_name = endpoint.server_name or self._address[0]
        self._tls: ssl.SSLContext | None = None
        if url.scheme == "https":
            self._tls = endpoint.tls or client_tls_context(None)
        self._proxy = urlsplit(endpoint.proxy) if endpoint.proxy else None
        self._unix_socket = endpoint.unix_socket
        self._connect_timeout_s = connect_timeout_s
        self._idle_max_s = idle_max_s
        self._connections: set[Http1Connection] = set()  # without those that left HTTP
        self._idle: list[Http1Connection] = []

    async def aclose(self) -> None:
        """Close all connections. Exchanges that are in progress fail."""
        for connection in list(self._connections):
            self._discard(connection)
        self._idle.clear()
        await asyncio.sleep(0)  # the event loop closes the sockets in its next turn

    async def open(self, request: Request, read_timeout_s: float | None = None) -> Http1Exchange:
        """Send a request and return the exchange after its response head; the caller closes it.

        ``read_timeout_s`` limits the silence of the server, during the body too.
        """
        data = self._encode(request)
        connection = await (self._connect() if is_upgrade(request) else self._take_connection())
        try:
            head = await self._read_head(connection, request, data, read_timeout_s)
        except NETWORK_ERRORS:
            if not connection.is_reused or request.method not in ("GET", "HEAD"):
                raise
            connection = await self._connect()
            head = await self._read_head(connection, request, data, read_timeout_s)
        return Http1Exchange(self, connection, head)

    async def _read_head(
        self,
        connection: Http1Connection,
        request: Request,
        data: bytes,
        read_timeout_s: float | None,
    ) -> ResponseHead:
        try:
            connection.read_timeout_s = read_timeout_s
            connection.send_request(data, is_head_only=request.method == "HEAD")
            return await connection.read_head()
        except BaseException:
            self._discard(connection)
            raise

    async def _take_connection(self) -> Http1Connection:
        """Return an idle connection that is still open, or a new one."""
        oldest_s = asyncio.get_running_loop().time() - self._idle_max_s
        while self._idle:
            connection = self._idle.pop()
            if connection.is_reusable and connection.idle_since_s > oldest_s:
                connection.is_reused = True
                return connection
            self._discard(connection)
        return await self._connect()

    def _encode(self, request: Request) -> bytes:
        target = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        headers = request.headers
        if self._proxy is not None and self._tls is None:
            target = self.origin + target
            headers = {**headers, **_proxy_authorization(self._proxy)}
        if request.body or request.method not in ("GET", "HEAD", "DELETE"):
            headers = {**headers, "content-length": str(len(request.body))}
        head = _encode_head(f"{request.method} {target}", self._authority, headers)
        return head + request.body

    # --- connecting

    async def _connect(self) -> Http1Connection:
        try:
            async with asyncio.timeout(self._connect_timeout_s):
                if self._proxy is not None:
                    connection = await self._connect_through_proxy(self._proxy)
                else:
                    connection = await self._connect_directly()
        except TimeoutError as error:
            raise ConnectTimeout from error
        if not self._unix_socket:
            _enable_keepalive(connection.transport)
        self._connections.add(connection)
        return connection

    async def _connect_directly(self) -> Http1Connection:
        loop = asyncio.get_running_loop()
        if self._unix_socket:
            _, connection = await loop.create_unix_connection(Http1Connection, self._unix_socket)
            return connection
        server_hostname = self._server_name if self._tls is not None else None
        _, connection = await loop.create_connection(
            Http1Connection, *self._address, ssl=self._tls, server_hostname=server_hostname
        )
        return connection

    async def _connect_through_proxy(self, proxy: SplitResult) -> Http1Connection:
        """Connect to the proxy, and through it to the server if the server uses TLS."""
        loop = asyncio.get_running_loop()
        proxy_tls = client_tls_context(None) if proxy.scheme == "https" else None
        try:
            _, connection = await loop.create_connection(
                Http1Connection, *_host_and_port(proxy), ssl=proxy_tls
            )
        except OSError as error:
            raise ProxyError("the proxy cannot be reached") from error
        if self._tls is None:
            return connection
        try:
            await self._open_tunnel(connection, proxy)
            transport = await loop.start_tls(
                connection.transport, connection, self._tls, server_hostname=self._server_name
            )
            assert transport is not None
            connection.replace_transport(transport)
        except BaseException:
            connection.close()
            raise
        return connection

    async def _open_tunnel(self, connection: Http1Connection, proxy: SplitResult) -> None:
        host, port = self._address
        target = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        request = _encode_head(f"CONNECT {target}", target, _proxy_authorization(proxy))
        connection.send_request(request, is_head_only=True)
        head = await connection.read_head()
        if head.status != 200:
            raise ProxyError(f"the proxy refuses to connect ({head.status})")

    # --- called by exchanges

    def put_back(self, connection: Http1Connection) -> None:
        """Keep a connection for the next request, if its response was read to the end."""
        if connection.is_reusable and connection in self._connections:
            connection.idle_since_s = asyncio.get_running_loop().time()
            self._idle.append(connection)
        else:
            self._discard(connection)

    def release(self, connection: Http1Connection) -> None:
        """Drop a connection that left HTTP; its new owner closes it."""
        self._connections.discard(connection)
        connection.read_timeout_s = None

    def _discard(self, connection: Http1Connection) -> None:
        self._connections.discard(connection)
        connection.abort()


class Http1Exchange:
    """A request whose response head has arrived."""

    def __init__(self, pool: Http1Pool, connection: Http1Connection, head: ResponseHead) -> None:
        self._pool = pool
        self._connection = connection
        self._is_open = True
        self.status = head.status
        self.headers = head.headers

    async def read(self, bytes_max: int | None = None) -> bytes:
        """Return the body, cut off at ``bytes_max``."""
        parts: list[bytes] = []
        size = 0
        while (bytes_max is None or size < bytes_max) and (
            chunk := await self._connection.read_chunk()
        ):
            parts.append(chunk)
            size += len(chunk)
        return b"".join(parts)[:bytes_max]

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives."""
        while chunk := await self._connection.read_chunk():
            yield chunk

    def close(self) -> None:
        """Return the connection to the pool; close it unless the whole body was read."""
        if self._is_open:
            self._is_open = False
            self._pool.put_back(self._connection)

    def upgrade(self) -> RawConnection:
        """Return the connection after a response of 101. The caller closes it."""
        self._is_open = False
        self._pool.release(self._connection)
        return RawConnection(self._connection)


@dataclass(frozen=True, slots=True)
class RawConnection:
    """A connection that left HTTP: raw bytes in both directions."""

    connection: Http1Connection

    async def read(self) -> bytes:
        """Return bytes; empty when the peer closed the connection."""
        try:
            return await self.connection.read_chunk()
        except (OSError, Http1Error):
            return b""

    async def write(self, data: bytes) -> None:
        self.connection.write(data)
        await self.connection.drain()

    def close_input(self) -> None:
        """Close the sending direction of the connection. Reading continues."""
        with suppress(OSError):
            self.connection.transport.write_eof()

    def close(self) -> None:
        self.connection.close()

    async def aclose(self) -> None:
        self.connection.close()


# --- failures


@dataclass(frozen=True, slots=True)
class ConnectFailure:
    """Why a server cannot be reached, and what the user can do."""

    reason: str
    hint: str


_CHECK_SERVER = "Check that the server is running and that the address is right."
_CHECK_PROXY = "Check the proxy-url."
_LOST = ConnectFailure(
    "the connection was lost", "Try again; a change may or may not have been made."
)


def describe_failure(error: BaseException) -> ConnectFailure:
    """Return the reason of one of ``NETWORK_ERRORS`` or a ProxyError."""
    match error:
        case ProxyError():
            return ConnectFailure(str(error), _CHECK_PROXY)
        case ssl.SSLCertVerificationError(verify_message=message):
            return ConnectFailure(
                f"the certificate is not trusted ({message})",
                "Check the certificate authority in the kubeconfig.",
            )
        case ssl.SSLError():
            return ConnectFailure("the TLS handshake failed", "Check that the address uses https.")
        case socket.gaierror():
            return ConnectFailure(
                "the host name cannot be resolved", "Check the spelling of the host."
            )
        case TimeoutError():
            return ConnectFailure("no response in time", _CHECK_SERVER)
        case ConnectionRefusedError():
            return ConnectFailure("connection refused", _CHECK_SERVER)
        case Http1Error() | ConnectionError():
            return _LOST
        case OSError():
            return ConnectFailure((error.strerror or "no connection").lower(), _CHECK_SERVER)
        case _:
            return ConnectFailure("the response is not HTTP/1.1", _CHECK_SERVER)


# --- transport


class Http1Transport:
    """Transport of an API client; close it with ``async with`` or ``aclose``."""

    def __init__(
        self,
        server: str,
        *,
        ca_pem: bytes | None = None,
        insecure: bool = False,
        certificate: Certificate | None = None,
        server_name: str = "",
        proxy: str = "",
        timeouts: Timeouts | None = None,
    ) -> None:
        tls = client_tls_context(ca_pem, insecure=insecure, certificate=certificate)
        endpoint = HttpEndpoint(server, tls, server_name, proxy)
        self._timeouts = timeouts or Timeouts()
        self._pool = Http1Pool(endpoint, connect_timeout_s=self._timeouts.connect_s)

    def __repr__(self) -> str:
        return f"Http1Transport({self._pool.origin!r})"

    async def __aenter__(self) -> Http1Transport:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close all connections. Readers of a watch receive Unreachable."""
        await self._pool.aclose()

    async def send(self, request: Request) -> Response:
        """Return the response: a successful watch as a stream, all others with a body."""
        try:
            exchange = await self._pool.open(request, self._timeouts.read_timeout_s(request))
            if is_watch(request) and exchange.status == 200:
                return _response(exchange, stream=self._stream(exchange))
            if exchange.status == 101 and is_upgrade(request):
                return replace(_response(exchange), duplex=exchange.upgrade())
            try:
                body = await exchange.read()
            finally:
                exchange.close()
        except (*NETWORK_ERRORS, ProxyError) as error:
            # The cause is dropped: it may hold the request, which contains the token.
            raise self._unreachable(error) from None
        if 300 <= exchange.status < 400:
            raise Unreachable(
                f"{self._pool.origin} responds with a redirect ({exchange.status}). "
                "Use the target of the redirect as the server."
            )
        return _response(exchange, body)

    async def _stream(self, exchange: Http1Exchange) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in exchange.chunks():
                yield chunk
        except NETWORK_ERRORS as error:
            raise self._unreachable(error) from None
        finally:
            exchange.close()

    def _unreachable(self, error: BaseException) -> Unreachable:
        failure = describe_failure(error)
        server = self._pool.origin
        return Unreachable(f"cannot reach {server}: {failure.reason}. {failure.hint}")


def _response(
    exchange: Http1Exchange, body: bytes = b"", stream: AsyncGenerator[bytes, None] | None = None
) -> Response:
    content_type = exchange.headers.get("content-type", JSON)
    return Response(exchange.status, body, content_type, exchange.headers, stream)


# --- one request to any URL

# Some servers refuse requests without a user agent.
_FETCH_HEADERS = {"accept": "*/*", "user-agent": f"datum-compute/{__version__}"}


@dataclass(frozen=True, slots=True)
class FetchedResponse:
    status: int
    headers: Mapping[str, str]
    body: bytes


async def fetch(
    method: str,
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    body: bytes = b"",
    tls: ssl.SSLContext | None = None,
    bytes_max: int | None = None,
) -> FetchedResponse:
    """Send one request over a connection of its own. The caller limits the time.

    Raise one of ``NETWORK_ERRORS`` if there is no response.
    """
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("the URL is not an http or https address")
    path = f"{parts.path or '/'}?{parts.query}" if parts.query else parts.path or "/"
    request = Request(method, path, headers={**_FETCH_HEADERS, **(headers or {})}, body=body)
    pool = Http1Pool(HttpEndpoint(f"{parts.scheme}://{parts.netloc}", tls))
    try:
        exchange = await pool.open(request)
        return FetchedResponse(exchange.status, exchange.headers, await exchange.read(bytes_max))
    finally:
        await pool.aclose()


def _enable_keepalive(transport: asyncio.Transport) -> None:
    peer = transport.get_extra_info("socket")
    peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE_OPTIONS:
        if option := getattr(socket, name, None):  # not all systems have it
            peer.setsockopt(socket.IPPROTO_TCP, option, value)


def _host_and_port(url: SplitResult) -> tuple[str, int]:
    return url.hostname or "", url.port or (443 if url.scheme == "https" else 80)


def _proxy_authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"proxy-authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


def _encode_head(request_line: str, authority: str, headers: Mapping[str, str]) -> bytes:
    lines = [f"{request_line} HTTP/1.1", f"host: {authority}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    head = "\r\n".join((*lines, "", ""))
    if head.count("\r") + head.count("\n") != 2 * (len(lines) + 1):
        raise ValueError("a header of the request contains a line break")
    return head.encode("latin-1")
