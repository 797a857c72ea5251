"""The one-method seam between a client and whatever answers it.

Transports stack: retries (``retrying.py``) over signing in (``authenticated.py``) over the socket
(``http.py``); or straight to the server's dispatch (``inprocess.py``).
"""

from __future__ import annotations

from typing import Protocol

from datum_compute.api.exchange import Request, Response


class Transport(Protocol):
    async def send(self, request: Request) -> Response:
        """The answer, whatever its status; raises Unreachable when there is none."""
        ...


def is_watch(request: Request) -> bool:
    return request.query.get("watch") in ("1", "true")
