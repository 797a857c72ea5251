"""Responses: JSON bodies, Status errors, plain text."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from datum_compute.api.codec import encode
from datum_compute.api.errors import ApiError, to_status
from datum_compute.api.exchange import JSON, Response

TEXT = "text/plain; charset=utf-8"


def json_answer(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """``value`` is bytes that are JSON already, or a plain JSON value."""
    body = value if isinstance(value, bytes) else encode(value)
    return Response(status, body, JSON, headers or {})


def error_answer(error: ApiError) -> Response:
    headers = {"retry-after": str(error.retry_after_s)} if error.retry_after_s else {}
    return Response(error.code, encode(to_status(error)), JSON, headers)


def text_answer(text: str, *, status: int = 200) -> Response:
    return Response(status, text.encode(), TEXT)


def page_not_found() -> Response:
    """What Kubernetes answers to a path it does not know; not a Status on purpose."""
    return text_answer("404 page not found\n", status=404)
