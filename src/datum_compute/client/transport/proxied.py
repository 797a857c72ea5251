"""Transport over HTTP/1.1 and TLS, on aiohttp: through a proxy. Without one: ``lean.py``.

Rules it keeps: certificates are verified unless the caller says otherwise in so many words;
redirects are not followed, so a token never travels to a host nobody named; what goes wrong on
the network becomes Unreachable with the host and the next step, and carries no header of the
request. A watch is handed on chunk by chunk, as it arrives: the client cuts the lines.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator
from types import TracebackType

import aiohttp
from yarl import URL

from datum_compute.api.http import JSON, ByteStream, Request, Response, is_upgrade
from datum_compute.client.auth.connection import Certificate, trust
from datum_compute.client.transport.http1 import (
    HANDSHAKE_FAILED,
    LOST,
    NO_SUCH_NAME,
    NOT_IN_TIME,
    ConnectFailure,
    not_connected,
    not_running,
    not_trusted,
    redirected,
    unreachable,
)
from datum_compute.client.transport.interface import KEPT_IDLE_S, Timeouts, is_watch

# What aiohttp lets out when there is no answer; OSError and TimeoutError slip through at times.
_NETWORK_ERRORS = (aiohttp.ClientError, OSError, TimeoutError)
_NO_UPGRADE = ("through a proxy only plain requests go", "Connect without the proxy-url.")


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
        if is_upgrade(request):
            raise unreachable(self._server, _NO_UPGRADE)
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
            raise unreachable(self._server, _silence(error)) from None
        if 300 <= answer.status < 400:
            raise redirected(self._server, answer.status)
        return _response(answer, body)

    def _opened(self) -> aiohttp.ClientSession:
        """The session, made on first use because aiohttp wants a running loop for it."""
        if self._session is None:
            self._session = aiohttp.ClientSession(
                # Watches hold their connections, so a limit would starve the requests.
                connector=aiohttp.TCPConnector(
                    ssl=self._tls, limit=0, keepalive_timeout=KEPT_IDLE_S
                ),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    def _patience(self, request: Request) -> aiohttp.ClientTimeout:
        timeouts = self._timeouts
        return aiohttp.ClientTimeout(
            total=None, sock_connect=timeouts.connect_s, sock_read=timeouts.silence_s(request)
        )

    async def _chunks(self, answer: aiohttp.ClientResponse) -> AsyncGenerator[bytes, None]:
        try:
            async for chunk in answer.content.iter_any():
                yield chunk
        except _NETWORK_ERRORS as error:
            raise unreachable(self._server, _silence(error)) from None
        finally:
            answer.close()


def _response(
    answer: aiohttp.ClientResponse, body: bytes = b"", stream: ByteStream | None = None
) -> Response:
    headers = {name.lower(): value for name, value in answer.headers.items()}
    content_type = headers.get("content-type", JSON)
    return Response(answer.status, body, content_type, headers, stream)


def _silence(error: BaseException) -> ConnectFailure:
    match error:
        case aiohttp.ClientConnectorCertificateError(certificate_error=ssl.SSLError() as cause):
            return not_trusted(getattr(cause, "verify_message", cause))
        case aiohttp.ClientSSLError():
            return HANDSHAKE_FAILED
        case aiohttp.ClientHttpProxyError(status=status):
            return f"the proxy refuses to connect ({status})", "Check the proxy-url."
        case aiohttp.ClientProxyConnectionError():
            return "the proxy cannot be reached", "Check the proxy-url."
        case aiohttp.ClientConnectorDNSError():
            return NO_SUCH_NAME
        case aiohttp.ClientConnectorError(os_error=cause):
            return not_connected(cause)
        case TimeoutError():
            return NOT_IN_TIME
        case aiohttp.ServerDisconnectedError() | aiohttp.ClientPayloadError() | OSError():
            return LOST
        case _:
            return not_running(type(error).__name__)
