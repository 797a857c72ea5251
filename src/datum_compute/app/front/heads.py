"""The head of a request as values: path, query, headers. What is odd is refused with 400."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from urllib.parse import parse_qsl, unquote

import httptools

from datum_compute.api.errors import BadRequest, RequestHeaderFieldsTooLarge, UnsupportedFeature
from datum_compute.server.access.impersonation import SEPARATOR

HEAD_BYTES_MAX = 64 * 1024
HEADERS_MAX = 250
QUERY_FIELDS_MAX = 100
_NOT_IN_HOST = re.compile(r"[^!-~]|[/?#@\\\\<>\"{}|^`,]")
_SINGLE = frozenset({"authorization", "content-type", "content-length", "host", "impersonate-user"})

RawHeaders = list[tuple[bytes, bytes]]
Target = tuple[str, dict[str, str]]  # path and query


def count_header_bytes(raw: RawHeaders) -> int:
    """Return the size of the headers. Raise if it is above the limit."""
    size = sum([len(name) + len(value) for name, value in raw])
    if size > HEAD_BYTES_MAX:
        raise head_too_large()
    return size


def headers_of(raw: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Values of a repeated header are joined; one that may stand only once is refused, since two
    readers of the request could take different ones for the truth."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name not in headers:
            headers[name] = value
            continue
        if name in _SINGLE:
            raise BadRequest(f"the header {name} was sent more than once")
        separator = SEPARATOR if name.startswith("impersonate-") else ", "
        headers[name] = f"{headers[name]}{separator}{value}"
    return headers


def check_framing(version: str, headers: Mapping[str, str]) -> None:
    """Reject a head that a proxy could parse as a different request (request smuggling).

    The parser itself rejects ambiguous Content-Length, line ends and folded headers.
    """
    host = headers.get("host")
    if host is None:
        if version == "1.1":
            raise BadRequest("the header Host is missing; HTTP/1.1 requires it")
    elif _NOT_IN_HOST.search(host):
        raise BadRequest("the header Host is invalid; send host or host:port")
    encoding = headers.get("transfer-encoding")
    if encoding is None:
        return
    if version == "1.0":
        raise BadRequest(
            "the header Transfer-Encoding is not allowed in HTTP/1.0; send Content-Length"
        )
    if encoding.strip(" \t").lower() != "chunked":
        raise UnsupportedFeature(
            "the transfer encoding is not supported; send Transfer-Encoding: chunked"
        )


def target_of(url: bytes) -> Target:
    """Path and query of a request line; percent signs of the path are decoded once."""
    if len(url) > HEAD_BYTES_MAX:
        raise head_too_large()
    if not url.startswith(b"/") or b"#" in url:
        url = _path_and_query(url)
    raw_path, _, raw_query = url.partition(b"?")
    try:
        path = raw_path.decode("ascii")
    except UnicodeDecodeError as error:
        raise BadRequest("the path is not ASCII; encode other characters with %") from error
    return unquote(path) if "%" in path else path, query_of(raw_query)


def head_too_large() -> RequestHeaderFieldsTooLarge:
    return RequestHeaderFieldsTooLarge(f"the headers are larger than {HEAD_BYTES_MAX} bytes")


def too_many_headers() -> RequestHeaderFieldsTooLarge:
    return RequestHeaderFieldsTooLarge(
        f"the request has more than {HEADERS_MAX} headers; send fewer"
    )


def query_of(raw: bytes) -> dict[str, str]:
    """The first value of every parameter; one without a value is there all the same."""
    if not raw:
        return {}
    try:
        pairs = parse_qsl(
            raw.decode("latin-1"),
            keep_blank_values=True,
            errors="replace",
            max_num_fields=QUERY_FIELDS_MAX,
        )
    except ValueError as error:
        raise BadRequest(f"the query has more than {QUERY_FIELDS_MAX} fields") from error
    query: dict[str, str] = {}
    for name, value in pairs:
        query.setdefault(name, value)
    return query


def _path_and_query(url: bytes) -> bytes:
    """Of a whole URL, or of one with a fragment; proxies and odd clients send those."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserError as error:
        raise BadRequest("the URL of the request cannot be read") from error
    path: bytes = parsed.path or b"/"
    return path + b"?" + parsed.query if parsed.query else path
