"""Transport over HTTP/1.1 and TLS, on nothing but asyncio.

``http.py`` does the same on aiohttp, for those who have a proxy: there is none here. That library
takes twice the time for a request, and its import alone longer than a whole command should. The
same rules hold, and the same tests run over both: certificates are verified unless the caller says
otherwise in so many words; redirects are not followed; what goes wrong on the network becomes
Unreachable and carries no header of the request.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from types import TracebackType
from urllib.parse import urlencode, urlsplit

from msgspec.structs import replace

from datum_compute.api.errors import Unreachable
from datum_compute.api.http import JSON, Request, Response, is_upgrade
from datum_compute.client.auth.connection import Certificate, trust
from datum_compute.client.transport.http1_connection import BrokenError, Http1Connection
from datum_compute.client.transport.interface import KEPT_IDLE_S, Timeouts, is_watch

# --- What is said when a server does not answer as it should, over whichever transport: what
# happened, and what to do about it. Nothing of the request is in it.


ConnectFailure = tuple[str, str]  # why, and what to do about it

_RUNNING = "Check that it is running and that the address is right."

HANDSHAKE_FAILED: ConnectFailure = (
    "the TLS handshake failed",
    "Check that the address speaks https.",
)
NO_SUCH_NAME: ConnectFailure = ("its name cannot be resolved", "Check the spelling of the host.")
NOT_IN_TIME: ConnectFailure = ("no answer in time", _RUNNING)
LOST: ConnectFailure = (
    "the connection was lost",
    "Try again; a change may or may not have been made.",
)


def not_trusted(message: object) -> ConnectFailure:
    why = f"its certificate is not trusted ({message})"
    return why, "Check the certificate authority in the kubeconfig."


def not_connected(error: OSError) -> ConnectFailure:
    return (error.strerror or "no connection").lower(), _RUNNING


def not_running(what: str) -> ConnectFailure:
    return what, _RUNNING


def unreachable(server: object, silence: ConnectFailure) -> Unreachable:
    why, advice = silence
    return Unreachable(f"{server} does not answer: {why}. {advice}")


def redirected(server: object, status: int) -> Unreachable:
    return Unreachable(
        f"{server} answers with a redirect ({status}). Use the address it leads to as the server."
    )


# --- lean


_HEAD_MAX = 256 * 1024
_CHUNK_LINE_MAX = 1024

_NETWORK_ERRORS = (OSError, TimeoutError, EOFError, ValueError, BrokenError)


@dataclass(frozen=True, slots=True)
class _Head:
    status: int
    headers: Mapping[str, str]

    @property
    def is_chunked(self) -> bool:
        return "chunked" in self.headers.get("transfer-encoding", "").lower()

    @property
    def keeps_open(self) -> bool:
        told = self.is_chunked or "content-length" in self.headers or self.status in (204, 304)
        return told and self.headers.get("connection", "").lower() != "close"


@dataclass(frozen=True, slots=True)
class _Switched:
    """A connection that is its caller's now."""

    wire: Http1Connection

    async def read(self) -> bytes:
        try:
            return await self.wire.some()
        except OSError:
            return b""

    async def write(self, data: bytes) -> None:
        self.wire.write(data)
        await self.wire.flushed()

    async def aclose(self) -> None:
        self.wire.close()


class Http1Transport:
    """Connections to one server, reused; close it with ``async with`` or ``aclose``."""

    def __init__(
        self,
        server: str,
        *,
        ca_pem: bytes | None = None,
        insecure: bool = False,
        certificate: Certificate | None = None,
        server_name: str = "",
        timeouts: Timeouts | None = None,
    ) -> None:
        parts = urlsplit(server)
        self._is_tls = parts.scheme == "https"
        self._host = parts.hostname or ""
        self._port = parts.port or (443 if self._is_tls else 80)
        self._server = f"{parts.scheme}://{parts.netloc}"
        self._authority = parts.netloc.rpartition("@")[2]
        self._timeouts = timeouts or Timeouts()
        self._tls = trust(ca_pem, insecure=insecure, certificate=certificate)
        self._server_name = server_name
        self._wires: set[Http1Connection] = set()  # all, but those that have left HTTP
        self._idle: list[Http1Connection] = []

    def __repr__(self) -> str:
        return f"LeanTransport({self._server!r})"

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
        """Ends what is under way, too: whoever reads a stream hears that it was lost."""
        for wire in list(self._wires):
            self._close(wire)
        self._idle.clear()
        await asyncio.sleep(0)  # lets the closed sockets go before the loop does

    async def send(self, request: Request) -> Response:
        """The answer; a watch that succeeded comes as a stream, everything else as a body."""
        try:
            wire, head = await self._asked(request)
            try:
                if is_watch(request) and head.status == 200:
                    return _response(head, stream=self._pieces(wire, head))
                if head.status == 101:
                    return replace(_response(head), duplex=self._switched(wire))
                body = await _read_body(wire, head)
            except BaseException:
                self._close(wire)
                raise
        except _NETWORK_ERRORS as error:
            raise unreachable(self._server, _silence(error)) from None
        self._put_back(wire, head)
        if 300 <= head.status < 400:
            raise redirected(self._server, head.status)
        return _response(head, body)

    async def _asked(self, request: Request) -> tuple[Http1Connection, _Head]:
        """A connection that the request went over, and the head of the answer. One that lay idle
        may be dead by now; a request that only reads is then sent once more."""
        wire = await (self._connected() if is_upgrade(request) else self._wire())
        try:
            return wire, await self._exchange(wire, request)
        except _NETWORK_ERRORS:
            if not wire.is_used or request.method != "GET":
                raise
        wire = await self._connected()
        return wire, await self._exchange(wire, request)

    async def _exchange(self, wire: Http1Connection, request: Request) -> _Head:
        try:
            wire.patience_s = self._timeouts.silence_s(request)
            wire.write(self._encoded(request))
            return await _read_head(wire)
        except BaseException:
            self._close(wire)
            raise

    async def _wire(self) -> Http1Connection:
        oldest_s = asyncio.get_running_loop().time() - KEPT_IDLE_S
        while self._idle:
            wire = self._idle.pop()
            if wire.is_open and wire.idle_since_s > oldest_s:
                wire.is_used = True
                return wire
            self._close(wire)
        return await self._connected()

    async def _connected(self) -> Http1Connection:
        async with asyncio.timeout(self._timeouts.connect_s):
            _, wire = await asyncio.get_running_loop().create_connection(
                Http1Connection,
                self._host,
                self._port,
                ssl=self._tls if self._is_tls else None,
                server_hostname=(self._server_name or self._host) if self._is_tls else None,
            )
        self._wires.add(wire)
        return wire

    def _put_back(self, wire: Http1Connection, head: _Head) -> None:
        if head.keeps_open:
            wire.idle_since_s = asyncio.get_running_loop().time()
            self._idle.append(wire)
        else:
            self._close(wire)

    def _close(self, wire: Http1Connection) -> None:
        self._wires.discard(wire)
        wire.close()

    def _switched(self, wire: Http1Connection) -> _Switched:
        self._wires.discard(wire)
        wire.patience_s = None
        return _Switched(wire)

    def _encoded(self, request: Request) -> bytes:
        target = f"{request.path}?{urlencode(request.query)}" if request.query else request.path
        lines = [f"{request.method} {target} HTTP/1.1", f"host: {self._authority}"]
        lines += [f"{name}: {value}" for name, value in request.headers.items()]
        if request.body or request.method not in ("GET", "HEAD", "DELETE"):
            lines.append(f"content-length: {len(request.body)}")
        head = "\r\n".join((*lines, "", ""))
        if head.count("\r") + head.count("\n") != 2 * (len(lines) + 1):
            raise ValueError("a request holds a line break")
        return head.encode("latin-1") + request.body

    async def _pieces(self, wire: Http1Connection, head: _Head) -> AsyncGenerator[bytes, None]:
        try:
            while piece := await (_read_chunk(wire) if head.is_chunked else wire.some()):
                yield piece
        except _NETWORK_ERRORS as error:
            raise unreachable(self._server, _silence(error)) from None
        finally:
            self._close(wire)


async def _read_head(wire: Http1Connection) -> _Head:
    head = await wire.until(b"\r\n\r\n", _HEAD_MAX)
    first, *lines = head.decode("latin-1").split("\r\n")
    version, _, rest = first.partition(" ")
    code = rest[:3]
    if not version.startswith("HTTP/1.") or not code.isdigit():
        raise BrokenError
    pairs = (line.partition(":") for line in lines)
    return _Head(int(code), {name.strip().lower(): value.strip() for name, _, value in pairs})


async def _read_body(wire: Http1Connection, head: _Head) -> bytes:
    if head.is_chunked:
        parts = []
        while part := await _read_chunk(wire):
            parts.append(part)
        return b"".join(parts)
    if head.status in (204, 304):
        return b""
    if "content-length" in head.headers:
        return await wire.exactly(int(head.headers["content-length"]))
    return await wire.rest()


async def _read_chunk(wire: Http1Connection) -> bytes:
    line = await wire.until(b"\r\n", _CHUNK_LINE_MAX)
    return (await wire.exactly(int(line.split(b";")[0], 16) + 2))[:-2]


def _response(
    head: _Head, body: bytes = b"", stream: AsyncGenerator[bytes, None] | None = None
) -> Response:
    content_type = head.headers.get("content-type", JSON)
    return Response(head.status, body, content_type, head.headers, stream)


def _silence(error: BaseException) -> ConnectFailure:
    match error:
        case ssl.SSLCertVerificationError(verify_message=message):
            return not_trusted(message)
        case ssl.SSLError():
            return HANDSHAKE_FAILED
        case socket.gaierror():
            return NO_SUCH_NAME
        case TimeoutError():
            return NOT_IN_TIME
        case ConnectionRefusedError():
            return not_running("connect call failed")
        case BrokenError() | EOFError() | ConnectionError():
            return LOST
        case OSError():
            return not_connected(error)
        case _:
            return not_running("it does not speak HTTP/1.1")
