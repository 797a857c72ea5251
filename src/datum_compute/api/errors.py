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

SHOWN_LENGTH_MAX = 120  # of a value in a message
_NO_VALUE: Any = object()


def shorten(text: str, length_max: int = SHOWN_LENGTH_MAX) -> str:
    """Return text of a caller as an error message may repeat it."""
    return text if len(text) <= length_max else text[: length_max - 3] + "..."


def format_value(value: Any) -> str:
    """Return a value for an error message: shortened, and quoted if it is a string."""
    return f'"{shorten(value)}"' if isinstance(value, str) else shorten(_literal(value))


def _literal(value: Any) -> str:
    """Return a value as JSON writes it. Large values are cut."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case dict() | list():
            return repr(copy_beginning(value, SHOWN_LENGTH_MAX))
        case _:
            return repr(value)


def copy_beginning(value: Any, length: int) -> Any:
    """Return a copy of the first parts of a value: all of it, or more than ``length`` characters of
    its JSON. The work does not depend on the size of the value."""
    return _copy_parts(value, [length + 1])


def _copy_parts(value: Any, room: list[int]) -> Any:
    if isinstance(value, str):
        text = value[: max(room[0], 0) + 1]
        room[0] -= len(text) + 2  # with the quotes, so that empty texts count too
        return text
    room[0] -= 1  # an opening bracket or a digit
    copied: Any = value
    if isinstance(value, dict):
        copied = {}
        for name, item in value.items():
            if room[0] < 0:
                break
            shown_name = _copy_parts(name, room)  # a name comes before its value
            copied[shown_name] = _copy_parts(item, room)
    elif isinstance(value, list):
        copied = []
        for item in value:
            if room[0] < 0:
                break
            copied.append(_copy_parts(item, room))
    room[0] -= 1  # a closing bracket or a comma
    return copied


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
    def invalid(cls, field: str, why: str, value: Any = _NO_VALUE) -> Cause:
        """The message repeats ``value``, if given."""
        shown = "" if value is _NO_VALUE else f"{format_value(value)}: "
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
        cls, field: str, value: Any, supported: Iterable[str] = (), why: str = ""
    ) -> Cause:
        """Pass the supported values, or ``why``, or both."""
        listed = ", ".join(f'"{name}"' for name in supported)
        parts = [format_value(value), f"supported values: {listed}" if listed else "", why]
        message = f"Unsupported value: {': '.join(filter(None, parts))}"
        return cls(field, "FieldValueNotSupported", message)

    @classmethod
    def too_many(cls, field: str, why: str, count: int | None = None) -> Cause:
        shown = "" if count is None else f"{count}: "
        return cls(field, "FieldValueTooMany", f"Too many: {shown}{why}")

    @classmethod
    def too_long(cls, field: str, why: str) -> Cause:
        return cls(field, "FieldValueTooLong", f"Too long: {why}")

    @classmethod
    def duplicate(cls, field: str, value: Any, why: str = "") -> Cause:
        suffix = f": {why}" if why else ""
        message = f"Duplicate value: {format_value(value)}{suffix}"
        return cls(field, "FieldValueDuplicate", message)

    @classmethod
    def not_found(cls, field: str, value: Any, why: str = "") -> Cause:
        suffix = f": {why}" if why else ""
        return cls(field, "FieldValueNotFound", f"Not found: {format_value(value)}{suffix}")


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
    """The plane did not respond; whether a write happened is unknown."""


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
