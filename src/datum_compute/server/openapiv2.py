"""OpenAPI v2: a document without any kinds, for clients that will not go on without one.

kubectl checks the items of a ``kind: List`` itself, against this document, before it sends them. A
kind that it does not find there it leaves to the server, which checks every field of every request
anyway; a document that is missing makes it give up. What the kinds look like is told in v3.
"""

from __future__ import annotations

from datum_compute import __version__
from datum_compute.api.http import JSON, Request, Response
from datum_compute.api.meta.codec import encode
from datum_compute.server.encoding.request_options import MediaType, preferred

PATH = "/openapi/v2"
_TITLE = "datum-compute; the kinds are described in /openapi/v3"
_PROTOBUF = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_PROTOBUF_ANSWER = _PROTOBUF.replace("@", ".")  # what is asked for is no valid media type


def openapi_v2_answer(request: Request, path: str) -> Response | None:
    """The answer to the path of the document, or None for any other."""
    if path != PATH:
        return None
    wanted = preferred(request.headers.get("accept", ""), (MediaType(_PROTOBUF),))
    headers = {"vary": "Accept"}
    if wanted.name == _PROTOBUF:
        return Response(200, _AS_PROTOBUF, _PROTOBUF_ANSWER, headers)
    return Response(200, _AS_JSON, JSON, headers)


def _field(number: int, content: bytes) -> bytes:
    """A text or a message inside a protobuf message; all of these are short."""
    assert len(content) < 128
    return bytes([number << 3 | 2, len(content)]) + content


_INFO = _field(1, _TITLE.encode()) + _field(2, __version__.encode())
_AS_PROTOBUF = _field(1, b"2.0") + _field(2, _INFO)
_AS_JSON = encode(
    {"swagger": "2.0", "info": {"title": _TITLE, "version": __version__}, "paths": {}}
)
