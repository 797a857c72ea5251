"""What a command can fail with: a message, a hint (what to do next) and an exit code.

UsageError                 2   the command line, or what it asks for, is wrong
|- OtherError              1   anything else
|- MissingError            3   the object does not exist
|- ConflictError           4   somebody else changed it
|- ForbiddenError          5   not signed in, or not allowed
|- DeclinedError           9   the answer to a prompt was no
|- FailedError            20   what was asked for cannot come about any more
|- TimedOutError          21   not done in the time given
`- StoppedError          130   Ctrl-C

The server says why (its message is shown as it came), the command line says what next.
"""

from __future__ import annotations

from typing import Any, ClassVar

from datum_compute.api import errors as api


class UsageError(Exception):
    exit_code: ClassVar[int] = 2
    reason: ClassVar[str] = "Usage"

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class OtherError(UsageError):
    exit_code, reason = 1, "Error"


class MissingError(UsageError):
    exit_code, reason = 3, "NotFound"


class ConflictError(UsageError):
    exit_code, reason = 4, "Conflict"


class ForbiddenError(UsageError):
    exit_code, reason = 5, "Forbidden"


class DeclinedError(UsageError):
    exit_code, reason = 9, "Declined"


class FailedError(UsageError):
    exit_code, reason = 20, "Failed"


class TimedOutError(UsageError):
    exit_code, reason = 21, "Timeout"


class StoppedError(UsageError):
    exit_code, reason = 130, "Interrupted"


def error_document(error: UsageError) -> dict[str, Any]:
    """The error for machines, printed on stderr under ``-o json``."""
    return {
        "error": {
            "code": error.exit_code,
            "reason": error.reason,
            "message": error.message,
            "hint": error.hint,
        }
    }


def explained(error: api.ApiError, program: str) -> UsageError:
    """An answer of the API as a failure of the command: its own words, then the next step."""
    message = "\n".join((error.message, *_further_causes(error)))
    match error:
        case api.NotFound():
            return MissingError(message)
        case api.Conflict() | api.AlreadyExists():
            return ConflictError(message, "Somebody else changed it meanwhile; run this again.")
        case api.Unauthorized():
            return ForbiddenError(message, "Sign in again, or check the token of the context.")
        case api.Forbidden():
            return ForbiddenError(message, "Ask for access, or choose another --project.")
        case api.Invalid() | api.BadRequest():
            return UsageError(message, f"Correct it and run this again. See: {program} --help")
        case api.TooManyRequests() | api.ServiceUnavailable() | api.Timeout():
            return OtherError(message, "The server is busy; run this again in a moment.")
        case _:
            return OtherError(message)


def _further_causes(error: api.ApiError) -> list[str]:
    """Causes by field that the message does not already tell."""
    return [
        f"  {cause.field}: {cause.message}"
        for cause in error.causes
        if cause.message not in error.message
    ]
