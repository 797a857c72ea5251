"""What a command can fail with: a message, a hint (what to do next) and an exit code.

UsageError                 2   the command line, or what it asks for, is wrong
|- OtherError              1   anything else
|- MissingError            3   the object or revision does not exist
|- ConflictError           4   somebody else changed it
|- ForbiddenError          5   not signed in, or not allowed
|- QuotaError              6   the quota of the project does not allow it
|- DeclinedError           9   the answer to a prompt was no
|- NotEnabledError        10   the project may not use compute yet
|- DeniedError            11   its request was denied, or its access revoked
|- PendingError           12   its request waits for approval
|- UnavailableError       13   this platform does not offer compute
|- FailedError            20   what was asked for cannot come about any more
|- TimedOutError          21   not done in the time given
`- StoppedError          130   Ctrl-C

The server says why (its message is shown as it came), the command line says what next. ``diff``
alone answers 0 for no difference and 1 for some, and moves what would be 1 to 2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from datum_compute.api.errors import ApiError

# Builds a command for the user from its words: ``CliEnvironment.command``.
BuildCommand = Callable[..., str]


class UsageError(Exception):
    """``field`` is the path of what is wrong, ``request_id`` finds the request in the server's
    trail, ``retryable`` says whether the same command may succeed later as it stands."""

    exit_code: ClassVar[int] = 2
    reason: ClassVar[str] = "Usage"
    meaning: ClassVar[str] = "The command line, or what it asks for, is wrong."
    retryable: ClassVar[bool] = False

    def __init__(
        self, message: str, hint: str = "", *, field: str = "", request_id: str = ""
    ) -> None:
        super().__init__(message)
        # Others end their sentences too, and are quoted at the end of ours.
        doubled = message.endswith("..") and not message.endswith("...")
        self.message = message[:-1] if doubled else message
        self.hint = hint
        self.field = field
        self.request_id = request_id


class OtherError(UsageError):
    exit_code, reason = 1, "Error"
    meaning = "Anything else."


class BusyError(OtherError):
    reason, retryable = "Busy", True


class MissingError(UsageError):
    exit_code, reason = 3, "NotFound"
    meaning = "The object or revision does not exist."


class ConflictError(UsageError):
    exit_code, reason, retryable = 4, "Conflict", True
    meaning = "Somebody else changed it meanwhile."


class ForbiddenError(UsageError):
    exit_code, reason = 5, "Forbidden"
    meaning = "Not signed in, or not allowed."


class QuotaError(UsageError):
    exit_code, reason, retryable = 6, "QuotaExceeded", True
    meaning = "The quota of the project does not allow it."


class DeclinedError(UsageError):
    exit_code, reason = 9, "Declined"
    meaning = "The answer to a prompt was no."


class NotEnabledError(UsageError):
    exit_code, reason = 10, "NotEnabled"
    meaning = "The project may not use compute yet; nobody has asked for it."


class DeniedError(UsageError):
    exit_code, reason = 11, "AccessDenied"
    meaning = "The request to use compute was denied, or the access was revoked."


class PendingError(UsageError):
    exit_code, reason, retryable = 12, "AccessPending", True
    meaning = "The request to use compute waits for approval."


class UnavailableError(UsageError):
    exit_code, reason = 13, "ServiceUnavailable"
    meaning = "This platform does not offer compute."


class FailedError(UsageError):
    exit_code, reason = 20, "Failed"
    meaning = "The rollout failed, or something is unhealthy (doctor)."


class TimedOutError(UsageError):
    exit_code, reason, retryable = 21, "Timeout", True
    meaning = "Not done in the time given; it goes on without the command."


class StoppedError(UsageError):
    exit_code, reason, retryable = 130, "Interrupted", True
    meaning = "Ctrl-C; what was begun on the platform goes on."


ERRORS: tuple[type[UsageError], ...] = (
    *(OtherError, UsageError, MissingError, ConflictError, ForbiddenError, QuotaError),
    *(DeclinedError, NotEnabledError, DeniedError, PendingError, UnavailableError),
    *(FailedError, TimedOutError, StoppedError),
)


def error_document(error: UsageError) -> dict[str, Any]:
    """The error for machines, printed on stderr under ``-o json``."""
    return {
        "error": {
            "code": error.exit_code,
            "reason": error.reason,
            "message": error.message,
            "field": error.field,
            "hint": error.hint,
            "retryable": error.retryable,
            "requestId": error.request_id,
        }
    }


def from_api_error(error: ApiError, command: BuildCommand) -> UsageError:
    """An answer of the API as a failure of the command: its own words, then the next step."""
    failure, hint = _classify(error, command)
    return failure(
        "\n".join((error.message, *_further_causes(error))),
        hint,
        field=error.causes[0].field if error.causes else "",
        request_id=error.request_id,
    )


def _classify(error: ApiError, command: BuildCommand) -> tuple[type[UsageError], str]:
    from datum_compute.api import errors as api

    match error:
        case api.NotFound():
            return MissingError, ""
        case api.Conflict() | api.AlreadyExists():
            return ConflictError, "Somebody else changed it meanwhile; run this again."
        case api.Unauthorized():
            return ForbiddenError, "Sign in again, or check the token of the context."
        case api.Forbidden() if "quota" in error.message.lower():
            return QuotaError, f"See what is used: {command('quota')}"
        case api.Forbidden():
            return ForbiddenError, "Ask for access, or choose another --project."
        case api.Invalid() | api.BadRequest():
            return UsageError, f"Correct it and run this again. See: {command(_listing(error))}"
        case api.TooManyRequests() | api.ServiceUnavailable() | api.Timeout():
            return BusyError, "The server is busy; run this again in a moment."
        case _:
            return OtherError, ""


def _listing(error: ApiError) -> str:
    """The command that shows what there is instead of what was asked for."""
    field = error.causes[0].field if error.causes else ""
    if "ityCodes" in field:
        return "cities"
    return "instance-types" if field.endswith("instanceType") else "--help"


def _further_causes(error: ApiError) -> list[str]:
    """Causes by field that the message does not already tell."""
    return [
        f"  {cause.field}: {cause.message}"
        for cause in error.causes
        if cause.message not in error.message
    ]
