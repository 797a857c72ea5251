"""One request and one response, independent of any HTTP library.

The server returns a Response to each Request. Transports send both over a socket, or pass them
within the process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from typing import Any, Protocol, runtime_checkable

import msgspec

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


# Larger chunks of a BufferedStream are sent alone: several streams may share their bytes.
LARGE_CHUNK_BYTES = 16 * 1024


class ByteStream(Protocol):
    """The chunks of a body as they arrive. A reader that stops early closes the stream."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes: ...

    async def aclose(self) -> None: ...


@runtime_checkable
class BufferedStream(ByteStream, Protocol):
    """A stream that a server produces: several chunks can be ready at once."""

    @property
    def is_initial(self) -> bool:
        """True until the reader has taken the chunks that existed when the stream began."""
        ...

    def take_ready(self, size_bytes: int) -> bytes:
        """Return further chunks that are ready, about ``size_bytes``. Stop before a chunk that is
        larger than ``LARGE_CHUNK_BYTES``, which ``__anext__`` returns."""
        ...

    def stop(self) -> None:
        """End the stream, also while a reader awaits the next chunk."""
        ...


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
    # The values of headers that were sent more than once. ``headers`` has them joined by a comma.
    repeated_headers: Mapping[str, tuple[str, ...]] = {}

    def header_values(self, name: str) -> tuple[str, ...]:
        """Return the values of a header in the order in which they were sent."""
        if name in self.repeated_headers:
            return self.repeated_headers[name]
        return (self.headers[name],) if name in self.headers else ()


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
