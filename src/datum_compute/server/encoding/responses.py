"""Responses: JSON bodies, Status errors, plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datum_compute.api.errors import ApiError, to_status
from datum_compute.api.http import JSON, Request, Response
from datum_compute.api.meta.codec import encode
from datum_compute.server.encoding.list_body import ListBody
from datum_compute.telemetry.plaintext import printable

TEXT = "text/plain; charset=utf-8"


def json_answer(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """``value`` is bytes that are JSON already, or a plain JSON value."""
    body = value if isinstance(value, bytes) else encode(value)
    return Response(status, body, JSON, headers or {})


def list_answer(request: Request, listed: bytes | ListBody) -> Response:
    """Return the response for a list. A large list is sent to a connection in pieces.

    Callers in the same process get the whole body.
    """
    if isinstance(listed, bytes):
        return json_answer(listed)
    if request.peer is None:
        return json_answer(b"".join(listed))
    return Response(200, pieces=listed)


def error_answer(error: ApiError) -> Response:
    """Clients print the message: what a stranger wrote into a name must do nothing to a terminal
    or a log that shows it."""
    headers = {"retry-after": str(error.retry_after_s)} if error.retry_after_s else {}
    status = to_status(error)
    status["message"] = printable(error.message)
    for cause in status.get("details", {}).get("causes", ()):
        cause["message"] = printable(cause["message"])
    return Response(error.code, encode(status), JSON, headers)


def text_answer(text: str, *, status: int = 200) -> Response:
    return Response(status, text.encode(), TEXT)


def page_not_found() -> Response:
    """What Kubernetes answers to a path it does not know; not a Status on purpose."""
    return text_answer("404 page not found\n", status=404)
