"""Transport without HTTP: passes requests to the dispatch function of a server in this process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import unquote

from msgspec.structs import replace

from datum_compute.api.http import Request, Response

Dispatch = Callable[[Request], Awaitable[Response]]


class InProcessTransport:
    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def send(self, request: Request) -> Response:
        if "%" in request.path:  # the HTTP server decodes paths before it calls dispatch
            request = replace(request, path=unquote(request.path))
        return await self._dispatch(request)
