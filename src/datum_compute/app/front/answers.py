"""The bytes of answers: heads, chunks, the date."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate
from functools import lru_cache
from http import HTTPStatus

from datum_compute.api.http import Response

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


class HttpDate:
    """The date as HTTP writes it; made once a second."""

    def __init__(self, unix_s: Callable[[], float]) -> None:
        self._unix_s = unix_s
        self._second = -1
        self._text = ""

    def __call__(self) -> str:
        now = int(self._unix_s())
        if now != self._second:
            self._second, self._text = now, formatdate(now, usegmt=True)
        return self._text


def whole_head(response: Response, date: str, *, closing: bool) -> bytes:
    pieces = response.pieces
    size_bytes = len(response.body) if pieces is None else pieces.size_bytes
    return _head(response, date, f"content-length: {size_bytes}\r\n", closing)


def stream_head(response: Response, date: str, *, chunked: bool) -> bytes:
    """Without chunks the end of the connection is the end of the answer."""
    framing = "transfer-encoding: chunked\r\n" if chunked else ""
    return _head(response, date, framing, not chunked)


def switch_head(response: Response, date: str) -> bytes:
    """The connection leaves HTTP after it; the headers say for what."""
    return _head(response, date, "connection: upgrade\r\n", closing=False)


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _head(response: Response, date: str, framing: str, closing: bool) -> bytes:
    headers = response.headers
    more = "".join([f"{name}: {value}\r\n" for name, value in headers.items()])
    if more.count("\n") != len(headers) or more.count("\r") != len(headers):
        raise ValueError("a header of an answer has a line break in it")
    start = _start(response.status, response.content_type)
    end = "connection: close\r\n\r\n" if closing else "\r\n"
    return f"{start}{framing}date: {date}\r\n{more}{end}".encode("latin-1", "replace")


@lru_cache(maxsize=64)
def _start(status: int, content_type: str) -> str:
    phrase = HTTPStatus(status).phrase
    return f"HTTP/1.1 {status} {phrase}\r\ncontent-type: {content_type}\r\n"
