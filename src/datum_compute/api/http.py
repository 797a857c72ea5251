"""One request and one response, independent of any HTTP library.

The server turns a Request into a Response. Transports carry them over a socket or in the process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Protocol

import msgspec

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class ByteStream(Protocol):
    """Chunks of a response. A reader that stops early must close it."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes: ...

    async def aclose(self) -> None: ...


class Duplex(Protocol):
    """Both directions of a connection after a response with status 101."""

    async def read(self) -> bytes:
        """Return the next bytes, or none if the other side has disconnected."""
        ...

    async def write(self, data: bytes) -> None:
        """Write when the other side can receive. Does nothing after it has disconnected."""
        ...

    async def aclose(self) -> None: ...


class BodyPieces(Protocol):
    """A large body that is built piece by piece, as the client reads it."""

    @property
    def size_bytes(self) -> int: ...

    def __iter__(self) -> Iterator[bytes | memoryview]: ...


class Peer(Protocol):
    """The connection of a request."""

    def identify(self, user: str, *, reserved: bool) -> None:
        """Count the connection for a user. ``reserved`` users (controllers, cells, operators) may
        use reserved connections. Raises TooManyRequests if the user has too many."""
        ...


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}  # names in lower case
    body: bytes = b""
    certificate_pem: str = ""  # of the client, signature checked by the TLS port
    peer: Peer | None = None  # None for requests inside the process


class Response(msgspec.Struct, frozen=True):
    """A body, or a stream of chunks, such as one JSON line for each event of a watch."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    stream: ByteStream | None = None
    created: str = ""  # name of the created object for the audit log; not on the wire
    # With 101: the server handles the connection with ``switched``, the client uses ``duplex``.
    switched: Callable[[Duplex], Coroutine[Any, Any, None]] | None = None
    duplex: Duplex | None = None
    # Instead of ``body``, for a large response to a request of a connection.
    pieces: BodyPieces | None = None


def is_upgrade(request: Request) -> bool:
    """Return True for a request that leaves HTTP. It must not be sent twice."""
    return "upgrade" in request.headers
