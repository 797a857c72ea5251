"""Transport without HTTP: hands the request to the server's dispatch in the same process."""

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
        if "%" in request.path:  # a port hands on the path as it is meant, and so must this
            request = replace(request, path=unquote(request.path))
        return await self._dispatch(request)
