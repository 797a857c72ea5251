"""Transport over HTTP/1.1 and TLS, on aiohttp.

Rules it keeps: certificates are verified unless the caller says otherwise in so many words;
redirects are not followed, so a token never travels to a host nobody named; what goes wrong on
the network becomes Unreachable with the host and the next step, and carries no header of the
request. A watch is handed on chunk by chunk, as it arrives: the client cuts the lines.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from types import TracebackType

import aiohttp
from yarl import URL

from datum_compute.api.errors import Unreachable
from datum_compute.api.exchange import JSON, ByteStream, Request, Response
from datum_compute.client.connection import Certificate
from datum_compute.client.tls import trust
from datum_compute.client.transport import is_watch

# What aiohttp lets out when there is no answer; OSError and TimeoutError slip through at times.
_NETWORK_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)


@dataclass(frozen=True, slots=True)
class Timeouts:
    """read_s is the longest silence; a watch may be silent for its own timeoutSeconds more."""

    connect_s: float = 5.0
    read_s: float = 30.0


class HttpTransport:
    """Connections to one server, reused; close it with ``async with`` or ``aclose``."""

    def __init__(
        self,
        server: str,
        *,
        ca_pem: bytes | None = None,
        insecure: bool = False,
        certificate: Certificate | None = None,
        proxy: str = "",
        server_name: str = "",
        timeouts: Timeouts | None = None,
    ) -> None:
        self._server = URL(server).origin()
        self._timeouts = timeouts or Timeouts()
        self._tls = trust(ca_pem, insecure=insecure, certificate=certificate)
        self._proxy = proxy or None
        self._server_name = server_name or None  # None: the host of the server
        self._session: aiohttp.ClientSession | None = None

    def __repr__(self) -> str:
        return f"HttpTransport({str(self._server)!r})"

    async def __aenter__(self) -> HttpTransport:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def send(self, request: Request) -> Response:
        """The answer; a watch that succeeded comes as a stream, everything else as a body."""
        try:
            answer = await self._opened().request(
                request.method,
                self._server.with_path(request.path, encoded=True).with_query(request.query),
                headers=request.headers,
                data=request.body or None,
                allow_redirects=False,
                timeout=self._patience(request),
                proxy=self._proxy,
                server_hostname=self._server_name,
            )
            if is_watch(request) and answer.status == 200:
                return _response(answer, stream=self._chunks(answer))
            body = await answer.read()
        except _NETWORK_ERRORS as error:
            # The library's error may hold the request and with it the token: cut it off.
            raise self._unreachable(error) from None
        if 300 <= answer.status < 400:
            raise Unreachable(
                f"{self._server} answers with a redirect ({answer.status}). "
                "Use the address it leads to as the server."
            )
        return _response(answer, body)

    def _opened(self) -> aiohttp.ClientSession:
        """The session, made on first use because aiohttp wants a running loop for it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Watches hold their connections, so a limit would starve the requests.
                connector=aiohttp.TCPConnector(ssl=self._tls, limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _patience(self, request: Request) -> aiohttp.ClientTimeout:
        read_s = self._timeouts.read_s
        if is_watch(request):
            read_s += float(request.query.get("timeoutSeconds", 0))
        return aiohttp.ClientTimeout(
            total=None, sock_connect=self._timeouts.connect_s, sock_read=read_s
        )

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in answer.content.iter_any():
                yield chunk
        except _NETWORK_ERRORS as error:
            raise self._unreachable(error) from None
        finally:
            answer.close()

    def _unreachable(self, error: BaseException) -> Unreachable:
        why, advice = _explained(error)
        return Unreachable(f"{self._server} does not answer: {why}. {advice}")


def _response(
    answer: aiohttp.ClientResponse, body: bytes = b"", stream: ByteStream | None = None
) -> Response:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    content_type = headers.get("content-type", JSON)
    return Response(answer.status, body, content_type, headers, stream)


def _explained(error: BaseException) -> tuple[str, str]:
    """Why there is no answer, and what to do about it."""
    running = "Check that it is running and that the address is right."
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLError() as cause):
            why = f"its certificate is not trusted ({getattr(cause, 'verify_message', cause)})"
            return why, "Check the certificate authority in the kubeconfig."
        case aiohttp.ClientSSLError():
            return "the TLS handshake failed", "Check that the address speaks https."
        case aiohttp.ClientHttpProxyError(status=status):
            return f"the proxy refuses to connect ({status})", "Check the proxy-url."
        case aiohttp.ClientProxyConnectionError():
            return "the proxy cannot be reached", "Check the proxy-url."
        case aiohttp.ClientConnectorDNSError():
            return "its name cannot be resolved", "Check the spelling of the host."
        case aiohttp.ClientConnectorError(os_error=cause):
            return (cause.strerror or "no connection").lower(), running
        case TimeoutError():
            return "no answer in time", running
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | OSError():
            return "the connection was lost", "Try again; a change may or may not have been made."
        case _:
            return type(error).__name__, running
