"""Transport without HTTP: hands the request to the server's dispatch in the same process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from datum_compute.api.exchange import Request, Response

Dispatch = Callable[[Request], Awaitable[Response]]


class InProcessTransport:
    def __init__(self, dispatch: Dispatch) -> None:
        self._dispatch = dispatch

    async def send(self, request: Request) -> Response:
        return await self._dispatch(request)
