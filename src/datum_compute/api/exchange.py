"""One request and one response, free of any HTTP library.

The server's dispatch takes a Request and gives a Response; transports carry them over a socket
or hand them over in process.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Protocol

import msgspec

JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
MERGE_PATCH = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"


class ByteStream(Protocol):
    """Chunks as they come; whoever stops reading early closes it."""

    def __aiter__(self) -> AsyncIterator[bytes]: ...

    async def __anext__(self) -> bytes: ...

    async def aclose(self) -> None: ...


class Request(msgspec.Struct, frozen=True):
    method: str
    path: str
    query: Mapping[str, str] = {}
    headers: Mapping[str, str] = {}  # names in lower case
    body: bytes = b""
    certificate_pem: str = ""  # of the client, signature checked by the TLS port


class Response(msgspec.Struct, frozen=True):
    """Either a whole body, or a stream of chunks (a watch: one JSON line each)."""

    status: int
    body: bytes = b""
    content_type: str = JSON
    headers: Mapping[str, str] = {}
    stream: ByteStream | None = None
    created: str = ""  # the name of the object that is new, for the trail; not on the wire
