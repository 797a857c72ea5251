"""The one-method seam between a client and whatever answers it."""

from __future__ import annotations

from typing import Protocol

from datum_compute.api.exchange import Request, Response


class Transport(Protocol):
    async def send(self, request: Request) -> Response:
        """The answer, whatever its status; raises Unreachable when there is none."""
        ...
