"""The gateway of a plane: below the plane itself, or where the plane has a notice of it.

The embedded server serves both. A plane of Kubernetes itself has no gateway; there a manager serves
it, and a ConfigMap that everybody may read says where. That is looked for only after the plane has
said that it knows nothing of a gateway. Such a gateway may be away while the plane is there: that
is an answer (503), and only what cannot do without it fails.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from datum_compute.api.errors import Forbidden, NotFound, ServiceUnavailable, Unreachable
from datum_compute.api.gateway import NOTICE_AUTHORITY, NOTICE_NAME, NOTICE_NAMESPACE, NOTICE_URL
from datum_compute.api.kinds import CONFIG_MAP
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import Ref
from datum_compute.cli.errors import OtherError
from datum_compute.client.auth.connection import Connection
from datum_compute.client.auth.kubeconfig import build_client
from datum_compute.client.client import Client
from datum_compute.client.transport.interface import Transport

if TYPE_CHECKING:
    from datum_compute.client.transport.websocket import WebSocket

T = TypeVar("T")
OpenTransport = Callable[[Connection], AbstractAsyncContextManager[Transport]]

_NOTICE = f"ConfigMap {NOTICE_NAMESPACE}/{NOTICE_NAME}"


class PlaneGateway:
    """Asked with the caller's own credentials for the plane, wherever it is."""

    def __init__(
        self,
        plane: Client,
        connection: Connection,
        open_transport: OpenTransport,
        stack: AsyncExitStack,
    ) -> None:
        self._client = plane
        self._connection = connection
        self._open_transport = open_transport
        self._stack = stack
        self._turn = asyncio.Lock()
        self._elsewhere: Client | None = None

    async def ask(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        return await self._tried(lambda client: client.ask(path, query))

    async def websocket(
        self, path: str, protocol: str, query: Mapping[str, str] | None = None
    ) -> WebSocket:
        return await self._tried(lambda client: client.websocket(path, protocol, query))

    async def _tried(self, call: Callable[[Client], Awaitable[T]]) -> T:
        if self._elsewhere is not None:
            return await _answer_of(call(self._elsewhere))
        try:
            return await call(self._client)
        except (NotFound, Forbidden) as error:
            elsewhere = await self._noticed() if knows_no_gateway(error) else None
            if elsewhere is None:
                raise
        return await _answer_of(call(elsewhere))

    async def _noticed(self) -> Client | None:
        async with self._turn:
            if self._elsewhere is None:
                ref = Ref(NOTICE_NAMESPACE, NOTICE_NAME)
                try:
                    notice = (await self._client.get(CONFIG_MAP, ref)).data
                except (NotFound, Forbidden):
                    return None
                self._elsewhere = await self._opened(notice)
            return self._elsewhere

    async def _opened(self, notice: Mapping[str, str]) -> Client:
        url = urlsplit(notice.get(NOTICE_URL, ""))
        if url.scheme != "https" or not url.netloc:
            raise OtherError(f"{_NOTICE} of this plane names no https address of a gateway.")
        authority = notice.get(NOTICE_AUTHORITY, "")
        there = replace(
            self._connection,
            server=f"https://{url.netloc}",
            path_prefix=url.path.rstrip("/"),
            ca_pem=authority.encode() or None,
            tls_server_name="",
            insecure=False,
        )
        try:
            opened = self._open_transport(there)
        except ValueError as error:  # a certificate authority that is none
            raise OtherError(f"{_NOTICE} of this plane: {error}.") from error
        return build_client(there, await self._stack.enter_async_context(opened))


async def _answer_of(asked: Awaitable[T]) -> T:
    try:
        return await asked
    except Unreachable as error:
        told = f"Where the gateway is, and who signed it, says {_NOTICE}."
        raise ServiceUnavailable(f"{error} {told}") from error


def knows_no_gateway(error: NotFound | Forbidden) -> bool:
    """An API server without one takes it for any path, and refuses that to most people."""
    told = " path " if isinstance(error, Forbidden) else "page not found"
    return told in error.message
