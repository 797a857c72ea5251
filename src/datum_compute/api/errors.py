"""Errors of the API, with their HTTP codes and reasons. Server and clients use the same table.

ApiError                         code  reason
|- BadRequest                     400  BadRequest
|- Unauthorized                   401  Unauthorized
|- Forbidden                      403  Forbidden
|- NotFound                       404  NotFound
|- MethodNotAllowed               405  MethodNotAllowed
|- NotAcceptable                  406  NotAcceptable
|- AlreadyExists                  409  AlreadyExists
|- Conflict                       409  Conflict
|- Expired                        410  Expired
|- RequestEntityTooLarge          413  RequestEntityTooLarge
|- UnsupportedMediaType           415  UnsupportedMediaType
|- Invalid                        422  Invalid
|- TooManyRequests                429  TooManyRequests
|- RequestHeaderFieldsTooLarge    431  RequestHeaderFieldsTooLarge
|- InternalError                  500  InternalError
|- UnsupportedFeature             501  UnsupportedFeature
|- ServiceUnavailable             503  ServiceUnavailable
`- Timeout                        504  Timeout

A transport raises Unreachable if there is no response. A write may or may not have happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


def shorten(text: str, length_max: int = 120) -> str:
    """Return text of a caller as an error message may repeat it."""
    return text if len(text) <= length_max else text[: length_max - 3] + "..."


@dataclass(frozen=True, slots=True)
class Cause:
    """An invalid field: its path, a reason for programs, and a message for people.

    The constructors below build the messages of kube-apiserver. ``why`` states what is wrong and
    how to fix it.
    """

    field: str
    reason: str
    message: str

    @classmethod
    def invalid(cls, field: str, why: str, value: object = None) -> Cause:
        """``value`` is repeated in the message: a string in double quotes, shortened."""
        shown = f'"{shorten(value)}": ' if isinstance(value, str) else ""
        shown = shown or ("" if value is None else f"{value}: ")
        return cls(field, "FieldValueInvalid", f"Invalid value: {shown}{why}")

    @classmethod
    def required(cls, field: str, why: str = "") -> Cause:
        return cls(
            field, "FieldValueRequired", f"Required value: {why}" if why else "Required value"
        )

    @classmethod
    def forbidden(cls, field: str, why: str) -> Cause:
        return cls(field, "FieldValueForbidden", f"Forbidden: {why}")

    @classmethod
    def unsupported(
        cls, field: str, value: object, supported: Iterable[str] = (), why: str = ""
    ) -> Cause:
        """Pass either the supported values or ``why``."""
        shown = f'"{shorten(value)}"' if isinstance(value, str) else str(value)
        listed = ", ".join(f'"{name}"' for name in supported)
        reason = why or f"supported values: {listed}"
        return cls(field, "FieldValueNotSupported", f"Unsupported value: {shown}: {reason}")

    @classmethod
    def too_many(cls, field: str, count: int, why: str) -> Cause:
        return cls(field, "FieldValueTooMany", f"Too many: {count}: {why}")

    @classmethod
    def too_long(cls, field: str, why: str) -> Cause:
        return cls(field, "FieldValueTooLong", f"Too long: {why}")

    @classmethod
    def duplicate(cls, field: str, value: str) -> Cause:
        return cls(field, "FieldValueDuplicate", f'Duplicate value: "{shorten(value)}"')

    @classmethod
    def not_found(cls, field: str, value: str, why: str = "") -> Cause:
        suffix = f": {why}" if why else ""
        return cls(field, "FieldValueNotFound", f'Not found: "{shorten(value)}"{suffix}')


class ApiError(Exception):
    """An error response of the API."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(
        self,
        message: str,
        *,
        name: str = "",
        group: str = "",
        kind: str = "",
        causes: Sequence[Cause] = (),
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.name = name
        self.group = group
        self.kind = kind
        self.causes = tuple(causes)
        self.retry_after_s = retry_after_s
        self.request_id = ""  # ID of the refused request, if the server sent it


class BadRequest(ApiError):
    code, reason = 400, "BadRequest"


class Unauthorized(ApiError):
    code, reason = 401, "Unauthorized"


class Forbidden(ApiError):
    code, reason = 403, "Forbidden"


class NotFound(ApiError):
    code, reason = 404, "NotFound"


class MethodNotAllowed(ApiError):
    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(ApiError):
    code, reason = 406, "NotAcceptable"


class AlreadyExists(ApiError):
    code, reason = 409, "AlreadyExists"


class Conflict(ApiError):
    code, reason = 409, "Conflict"


class Expired(ApiError):
    code, reason = 410, "Expired"


class RequestEntityTooLarge(ApiError):
    code, reason = 413, "RequestEntityTooLarge"


class UnsupportedMediaType(ApiError):
    code, reason = 415, "UnsupportedMediaType"


class Invalid(ApiError):
    code, reason = 422, "Invalid"


class TooManyRequests(ApiError):
    code, reason = 429, "TooManyRequests"


class RequestHeaderFieldsTooLarge(ApiError):
    code, reason = 431, "RequestHeaderFieldsTooLarge"


class InternalError(ApiError):
    code, reason = 500, "InternalError"


class UnsupportedFeature(ApiError):
    """The request uses an optional feature of HTTP that this server does not implement."""

    code, reason = 501, "UnsupportedFeature"


class ServiceUnavailable(ApiError):
    code, reason = 503, "ServiceUnavailable"


class Timeout(ApiError):
    code, reason = 504, "Timeout"


class Unreachable(Exception):
    """The plane did not answer; whether a write happened is unknown."""


ERRORS: tuple[type[ApiError], ...] = (
    BadRequest,
    Unauthorized,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    AlreadyExists,
    Conflict,
    Expired,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    Invalid,
    TooManyRequests,
    RequestHeaderFieldsTooLarge,
    InternalError,
    UnsupportedFeature,
    ServiceUnavailable,
    Timeout,
)
_BY_REASON = {error.reason: error for error in ERRORS}
_BY_CODE = {error.code: error for error in reversed(ERRORS) if error is not AlreadyExists}


_WITHOUT_DETAILS = (400, 401)


def to_status(error: ApiError) -> dict[str, Any]:
    """Return the Kubernetes Status object of an error."""
    about = {"name": error.name, "group": error.group, "kind": error.kind}
    details: dict[str, Any] = {key: value for key, value in about.items() if value}
    if error.causes:
        details["causes"] = [
            {"reason": c.reason, "message": c.message, "field": c.field} for c in error.causes
        ]
    if error.retry_after_s:
        details["retryAfterSeconds"] = error.retry_after_s
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": error.message,
        "reason": error.reason,
        # As in Kubernetes: a request that cannot be parsed has no details.
        **({"details": details} if details or error.code not in _WITHOUT_DETAILS else {}),
        "code": error.code,
    }


def from_status(code: int, status: Mapping[str, Any]) -> ApiError:
    """Return the error of a Status object. Without a known reason the HTTP code decides."""
    found = _BY_REASON.get(str(status.get("reason"))) or _BY_CODE.get(code, InternalError)
    details = status.get("details") or {}
    return found(
        str(status.get("message") or f"the server answered {code}"),
        name=str(details.get("name", "")),
        group=str(details.get("group", "")),
        kind=str(details.get("kind", "")),
        causes=[
            Cause(str(c.get("field", "")), str(c.get("reason", "")), str(c.get("message", "")))
            for c in details.get("causes") or ()
        ],
        retry_after_s=int(details.get("retryAfterSeconds") or 0),
    )
