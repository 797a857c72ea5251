"""The one-method seam between a client and whatever answers it.

Transports stack: retries (``retrying.py``) over signing in (``authenticated.py``) over the socket
(``lean.py``; ``http.py`` through a proxy); or straight to the server's dispatch (``inprocess.py``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from datum_compute.api.http import Request, Response

# Shorter than our own servers wait for the next request, so that none is sent into a closing one.
KEPT_IDLE_S = 60.0


class Transport(Protocol):
    async def send(self, request: Request) -> Response:
        """The answer, whatever its status; raises Unreachable when there is none."""
        ...


def is_watch(request: Request) -> bool:
    return request.query.get("watch") in ("1", "true")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """read_s is the longest silence; a watch may be silent for its own timeoutSeconds more."""

    connect_s: float = 5.0
    read_s: float = 30.0

    def silence_s(self, request: Request) -> float:
        more = float(request.query.get("timeoutSeconds", 0)) if is_watch(request) else 0.0
        return self.read_s + more


class OpenTransport(Transport, Protocol):
    """A transport that holds connections."""

    async def aclose(self) -> None: ...
