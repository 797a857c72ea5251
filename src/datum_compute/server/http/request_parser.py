"""Parses the bytes of one connection into requests, with httptools.

A request is complete when its head and its body have arrived, within their limits. The first error
becomes ``error``; the parser ignores everything after it.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Mapping
from enum import Enum, auto
from urllib.parse import parse_qsl, unquote

import httptools
import msgspec

from datum_compute.api.errors import (
    ApiError,
    BadRequest,
    RequestEntityTooLarge,
    RequestHeaderFieldsTooLarge,
    UnsupportedFeature,
)
from datum_compute.api.http import Peer, Request

# --- The head of a request: path, query and headers. An ambiguous head is rejected with 400


HEAD_BYTES_MAX = 64 * 1024
HEADERS_MAX = 250
QUERY_FIELDS_MAX = 100
_NOT_IN_HOST = re.compile(r"[^!-~]|[/?#@\\\\<>\"{}|^`,]")
_SINGLE_VALUE_HEADERS = frozenset(
    {"authorization", "content-type", "content-length", "host", "impersonate-user"}
)

RawHeaders = list[tuple[bytes, bytes]]
Target = tuple[str, dict[str, str]]  # path and query
Headers = tuple[dict[str, str], dict[str, tuple[str, ...]]]  # by name, and repeated values


def count_header_bytes(raw: RawHeaders) -> int:
    """Return the size of the headers. Raise if it is above the limit."""
    size = sum([len(name) + len(value) for name, value in raw])
    if size > HEAD_BYTES_MAX:
        raise _head_too_large()
    return size


def parse_headers(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Return the headers, with the values of repeated headers joined by commas, and the single
    values of repeated headers.

    Headers that have one value must not be repeated: a proxy and this server could read different
    values from the same request.
    """
    headers: dict[str, str] = {}
    repeated: dict[str, tuple[str, ...]] = {}
    for raw_name, raw_value in raw:
        name, value = raw_name.decode("latin-1").lower(), raw_value.decode("latin-1")
        if name not in headers:
            headers[name] = value
            continue
        if name in _SINGLE_VALUE_HEADERS:
            raise BadRequest(f"the header {name} was sent more than once")
        repeated[name] = (*repeated.get(name, (headers[name],)), value)
        headers[name] = f"{headers[name]}, {value}"
    return headers, repeated


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


def parse_target(url: bytes) -> Target:
    """Return path and query of a request line. The path is percent-decoded once."""
    if len(url) > HEAD_BYTES_MAX:
        raise _head_too_large()
    if not url.startswith(b"/") or b"#" in url:
        url = _extract_path_and_query(url)
    raw_path, _, raw_query = url.partition(b"?")
    try:
        path = raw_path.decode("ascii")
    except UnicodeDecodeError as error:
        raise BadRequest("the path is not ASCII; encode other characters with %") from error
    return unquote(path) if "%" in path else path, parse_query(raw_query)


def _head_too_large() -> RequestHeaderFieldsTooLarge:
    return RequestHeaderFieldsTooLarge(f"the headers are larger than {HEAD_BYTES_MAX} bytes")


def _too_many_headers() -> RequestHeaderFieldsTooLarge:
    return RequestHeaderFieldsTooLarge(
        f"the request has more than {HEADERS_MAX} headers; send fewer"
    )


def parse_query(raw: bytes) -> dict[str, str]:
    """Return the first value of each parameter. A parameter without a value has an empty one."""
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


def _extract_path_and_query(url: bytes) -> bytes:
    """Return path and query of a URL that is absolute or has a fragment."""
    try:
        parsed = httptools.parse_url(url)
    except httptools.HttpParserError as error:
        raise BadRequest("the URL of the request cannot be read") from error
    path: bytes = parsed.path or b"/"
    return path + b"?" + parsed.query if parsed.query else path


# --- The parser


BODY_BYTES_MAX = 3 * 1024 * 1024
# A chunked body includes the frames of its chunks and the trailers.
_FRAMED_BODY_BYTES_MAX = 8 * BODY_BYTES_MAX
# An idle connection keeps the URL and the headers of its last request up to this size each.
_CACHED_BYTES_MAX = 4 * 1024
_VERSIONS = ("1.0", "1.1")


class Stage(Enum):
    """How much of the next request has arrived."""

    IDLE = auto()
    HEAD = auto()
    BODY = auto()


class ParsedRequest(msgspec.Struct, frozen=True):
    """A complete request. ``closes`` is True if the connection must be closed after the response.
    A client of HTTP/1.0 does not support chunked responses."""

    request: Request
    closes: bool
    is_http10: bool


class RequestParser:
    def __init__(self, certificate_pem: str, peer: Peer | None = None) -> None:
        self.requests: deque[ParsedRequest] = deque()
        self.error: ApiError | None = None
        self.stage = Stage.IDLE
        self.wants_continue = False
        self.upgrade = False
        self.upgrade_data = b""  # bytes after a request for an upgrade
        self._certificate_pem = certificate_pem
        self._peer = peer
        self._parser: httptools.HttpRequestParser | None = httptools.HttpRequestParser(self)
        self._url = b""
        self._raw_headers: RawHeaders = []
        self._version = ""
        self._message_bytes = 0
        self._body: bytes | bytearray = b""
        # Clients often repeat the URL or the headers of their last request: parse them once.
        self._last_url: bytes | None = None
        self._target: Target = ("", {})
        self._last_headers: RawHeaders | None = None
        self._headers: dict[str, str] = {}
        self._repeated_headers: dict[str, tuple[str, ...]] = {}
        self._header_bytes = 0

    def close(self) -> None:
        """Stop parsing, drop unanswered requests, and break the reference cycles of parser,
        requests and connection."""
        self._parser = self._peer = None
        self.requests.clear()

    def feed(self, data: bytes) -> None:
        if self.upgrade:
            self.upgrade_data += data
            return
        if self.error is not None or self._parser is None:
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._start_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError as error:
            self._reject(BadRequest(f"this is not a valid HTTP/1.1 request: {error}"))
        if self.stage is not Stage.IDLE:
            self._check_message_size(len(data))

    # --- Callbacks of httptools

    def on_message_begin(self) -> None:
        self.stage = Stage.HEAD
        self.wants_continue = False
        self._url, self._raw_headers = b"", []
        self._body, self._message_bytes = b"", 0

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.stage is not Stage.HEAD:
            return  # trailers of a chunked body are ignored
        if len(self._raw_headers) < HEADERS_MAX:
            self._raw_headers.append((name, value))
        else:
            self._reject(_too_many_headers())

    def on_headers_complete(self) -> None:
        self.stage = Stage.BODY
        if self.error is not None:
            return
        assert self._parser is not None
        version, last_version = self._parser.get_http_version(), self._version
        self._version = version
        url, raw = self._url, self._raw_headers
        try:
            if version not in _VERSIONS:
                raise BadRequest("this server supports HTTP/1.1 only")
            if url != self._last_url:
                self._target, self._last_url = parse_target(url), url
            if raw != self._last_headers:
                self._header_bytes = count_header_bytes(raw)
                self._headers, self._repeated_headers = parse_headers(raw)
                check_framing(version, self._headers)
                self._last_headers = raw
            elif version != last_version:
                check_framing(version, self._headers)
            # httptools has checked that it is a number.
            if int(self._headers.get("content-length", 0)) > BODY_BYTES_MAX:
                raise _too_large()
        except ApiError as error:
            self._reject(error)
        else:
            self.wants_continue = self._headers.get("expect", "").lower() == "100-continue"

    def on_body(self, part: bytes) -> None:
        if self.error is not None:
            return
        if len(self._body) + len(part) > BODY_BYTES_MAX:
            self._reject(_too_large())
        elif not self._body:
            self._body = part
        else:  # extend in place: a body of a million small chunks must not need more than its size
            self._body = self._body if isinstance(self._body, bytearray) else bytearray(self._body)
            self._body += part

    def on_message_complete(self) -> None:
        self.stage = Stage.IDLE
        self.wants_continue = False
        if self.error is not None:
            return
        parser = self._parser
        assert parser is not None
        path, query = self._target
        request = Request(
            parser.get_method().decode("ascii"),
            path,
            query,
            self._headers,
            bytes(self._body),
            self._certificate_pem,
            self._peer,
            self._repeated_headers,
        )
        is_http10 = self._version == "1.0"
        closes = is_http10 or not parser.should_keep_alive()
        self.requests.append(ParsedRequest(request, closes, is_http10))
        # An idle connection, or one with an open watch, keeps only small parts of the request.
        self._body, self._url, self._raw_headers = b"", b"", []
        if self._last_url is not None and len(self._last_url) > _CACHED_BYTES_MAX:
            self._last_url, self._target = None, ("", {})
        if self._header_bytes > _CACHED_BYTES_MAX:
            self._last_headers, self._headers, self._header_bytes = None, {}, 0
            self._repeated_headers = {}

    def _start_upgrade(self, data: bytes) -> None:
        """Stop parsing: the following bytes are not HTTP. If the response is not 101, it is the
        last one of the connection."""
        self.upgrade = True
        self.upgrade_data += data
        if self.error is None and self.requests:
            last = self.requests.pop()
            self.requests.append(ParsedRequest(last.request, True, last.is_http10))

    def _reject(self, error: ApiError) -> None:
        if self.error is None:
            self.error = error
            self._body = b""

    def _check_message_size(self, size_bytes: int) -> None:
        """Reject a message that does not end. The count includes the end of the previous message if
        that was in the same read, whose size is limited."""
        self._message_bytes += size_bytes
        if self.stage is Stage.HEAD and self._message_bytes > 2 * HEAD_BYTES_MAX:
            self._reject(_head_too_large())
        if self._message_bytes > _FRAMED_BODY_BYTES_MAX:
            self._reject(_too_large())


def _too_large() -> RequestEntityTooLarge:
    return RequestEntityTooLarge(f"Request entity too large: limit is {BODY_BYTES_MAX}")
