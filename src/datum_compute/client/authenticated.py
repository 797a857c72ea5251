"""A transport that signs in, and signs in anew when the server no longer knows who we are.

A refused request (401) is sent once more if there is another credential to show. A new client
certificate means new connections; streams on the old ones break off, and are resumed by those who
read them.
"""

from __future__ import annotations

from collections.abc import Callable
from types import TracebackType

from msgspec.structs import replace

from datum_compute.api.errors import Unauthorized
from datum_compute.api.http import Request, Response
from datum_compute.client.auth.connection import Certificate
from datum_compute.client.auth.credentials import Credential, Credentials
from datum_compute.client.transport.interface import OpenTransport

Connect = Callable[[Certificate | None], OpenTransport]


class AuthenticatedTransport:
    def __init__(self, credentials: Credentials, connect: Connect) -> None:
        self._credentials = credentials
        self._connect = connect
        self._transport: OpenTransport | None = None
        self._shown: Certificate | None = None

    async def __aenter__(self) -> AuthenticatedTransport:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        if self._transport is not None:
            await self._transport.aclose()

    async def send(self, request: Request) -> Response:
        credential = await self._credentials.current()
        response = await self._send(request, credential)
        if response.status != 401:
            return response
        renewed = await self._credentials.renewed(credential)
        return response if renewed == credential else await self._send(request, renewed)

    async def _send(self, request: Request, credential: Credential) -> Response:
        transport = await self._showing(credential.certificate)
        if credential.token:
            headers = {**request.headers, "authorization": f"Bearer {credential.token}"}
            request = replace(request, headers=headers)
        return await transport.send(request)

    async def _showing(self, certificate: Certificate | None) -> OpenTransport:
        if self._transport is not None and certificate == self._shown:
            return self._transport
        try:
            connected = self._connect(certificate)
        except ValueError as error:
            raise Unauthorized(f"cannot sign in: {error}") from None
        old, self._transport, self._shown = self._transport, connected, certificate
        if old is not None:
            await old.aclose()
        return connected
