"""Client of the gateway of a plane, which serves logs, exec, usage and crash reports.

The embedded server serves the plane and its gateway. A Kubernetes cluster has no gateway: there a
manager serves it, and a ConfigMap that every user may read contains its address. That ConfigMap is
read after the plane responded that it has no gateway. If such a gateway is down while the plane
responds, its requests fail with 503, and only commands that need the gateway fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import urlsplit

from datum_compute.api.errors import Forbidden, NotFound, ServiceUnavailable, Unreachable
from datum_compute.api.gateway import (
    NOTICE_AUTHORITY,
    NOTICE_NAME,
    NOTICE_NAMESPACE,
    NOTICE_URL,
    is_missing_gateway,
)
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
    """Sends requests to the gateway with the user's credentials for the plane."""

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
        self._lock = asyncio.Lock()
        self._external: Client | None = None

    async def get_raw(self, path: str, query: Mapping[str, str] | None = None) -> JsonObject:
        return await self._send(lambda client: client.get_raw(path, query))

    async def websocket(
        self, path: str, protocol: str, query: Mapping[str, str] | None = None
    ) -> WebSocket:
        return await self._send(lambda client: client.websocket(path, protocol, query))

    async def _send(self, call: Callable[[Client], Awaitable[T]]) -> T:
        if self._external is not None:
            return await _response(call(self._external))
        try:
            return await call(self._client)
        except (NotFound, Forbidden) as error:
            external = await self._find_external() if is_missing_gateway(error) else None
            if external is None:
                raise
        return await _response(call(external))

    async def _find_external(self) -> Client | None:
        async with self._lock:
            if self._external is None:
                ref = Ref(NOTICE_NAMESPACE, NOTICE_NAME)
                try:
                    notice = (await self._client.get(CONFIG_MAP, ref)).data
                except (NotFound, Forbidden):
                    return None
                self._external = await self._connect(notice)
            return self._external

    async def _connect(self, notice: Mapping[str, str]) -> Client:
        url = urlsplit(notice.get(NOTICE_URL, ""))
        if url.scheme != "https" or not url.netloc:
            raise OtherError(f"{_NOTICE} of this plane contains no https address of a gateway.")
        authority = notice.get(NOTICE_AUTHORITY, "")
        gateway = replace(
            self._connection,
            server=f"https://{url.netloc}",
            path_prefix=url.path.rstrip("/"),
            ca_pem=authority.encode() or None,
            tls_server_name="",
            insecure=False,
        )
        try:
            opened = self._open_transport(gateway)
        except ValueError as error:  # an invalid certificate authority
            raise OtherError(f"{_NOTICE} of this plane: {error}.") from error
        return build_client(gateway, await self._stack.enter_async_context(opened))


async def _response(request: Awaitable[T]) -> T:
    try:
        return await request
    except Unreachable as error:
        source = f"The address and the certificate authority of the gateway are in {_NOTICE}."
        raise ServiceUnavailable(f"{error} {source}") from error
