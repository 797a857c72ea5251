"""Responses: JSON bodies, Status errors, plain text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from datum_compute.admission.findings import invalid
from datum_compute.api.errors import (
    AlreadyExists,
    ApiError,
    Cause,
    Conflict,
    Forbidden,
    Invalid,
    NotFound,
    RequestEntityTooLarge,
    to_status,
)
from datum_compute.api.http import JSON, Request, Response
from datum_compute.api.meta.codec import JsonObject, encode
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.report import ValidationReport
from datum_compute.server.encoding.list_body import ListBody
from datum_compute.telemetry.logs import printable

TEXT = "text/plain; charset=utf-8"


def json_response(
    value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """``value`` is bytes that are JSON already, or a plain JSON value."""
    body = value if isinstance(value, bytes) else encode(value)
    return Response(status, with_newline(body), JSON, headers or {})


def with_newline(body: bytes) -> bytes:
    """Return a JSON body that ends with a newline, as those of kube-apiserver do."""
    return body if body.endswith(b"\n") else body + b"\n"


def list_response(request: Request, listed: bytes | ListBody) -> Response:
    """Return the response for a list. A large list is sent to a connection in pieces.

    Callers in the same process get the whole body.
    """
    if isinstance(listed, bytes):
        return json_response(listed)
    if request.peer is None:
        return json_response(b"".join(listed))
    return Response(200, pieces=listed)


def error_response(error: ApiError) -> Response:
    """Return the response of an error, without control characters in its messages.

    Clients print the messages to terminals and logs, and a name may come from another user.
    """
    headers = {"retry-after": str(error.retry_after_s)} if error.retry_after_s else {}
    status = to_status(error)
    status["message"] = printable(error.message)
    for cause in status.get("details", {}).get("causes", ()):
        cause["message"] = printable(cause["message"])
    return Response(error.code, with_newline(encode(status)), JSON, headers)


def text_response(text: str, *, status: int = 200) -> Response:
    return Response(status, text.encode(), TEXT)


def page_not_found() -> Response:
    """Respond to an unknown path as kube-apiserver does: with plain text, not with a Status."""
    return text_response("404 page not found\n", status=404)


# --- Errors about an object, worded as in Kubernetes, because clients match on these messages
# Details name the plural for 403, 404 and 409, and the kind for 422.


MODIFIED = (
    "the object has been modified; please apply your changes to the latest version and try again"
)


def not_found(kind: KindInfo[Any], name: str) -> NotFound:
    message = f'{kind.resource} "{name}" not found'
    return NotFound(message, name=name, group=kind.group, kind=kind.plural)


def already_exists(kind: KindInfo[Any], name: str) -> AlreadyExists:
    message = f'{kind.resource} "{name}" already exists'
    return AlreadyExists(message, name=name, group=kind.group, kind=kind.plural)


def conflict(kind: KindInfo[Any], name: str, why: str = MODIFIED) -> Conflict:
    message = f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}'
    return Conflict(message, name=name, group=kind.group, kind=kind.plural)


def forbidden(kind: KindInfo[Any], name: str, why: str, causes: Sequence[Cause] = ()) -> Forbidden:
    message = f'{kind.resource} "{name}" is forbidden: {why}'
    return Forbidden(message, name=name, group=kind.group, kind=kind.plural, causes=causes)


def stopped_check(
    error: Invalid | RequestEntityTooLarge,
    kind: KindInfo[Any],
    obj: JsonObject,
    report: ValidationReport,
) -> Invalid | RequestEntityTooLarge:
    """Return the error that stopped the check of an object, with the name of the object and the
    errors found before."""
    name, causes = obj["metadata"].get("name", ""), (*report.errors, *error.causes)
    if isinstance(error, Invalid):
        return invalid(kind, name, causes)
    message = f'{kind.resource} "{name}" is too large: {error.message}'
    about = {"name": name, "group": kind.group, "kind": kind.plural}
    return RequestEntityTooLarge(message, causes=causes, **about)
