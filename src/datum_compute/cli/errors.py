"""Errors of commands: a message, a hint with the next command, and an exit code.

UsageError                 2   the command line or a manifest is invalid
|- OtherError              1   any other error
|- MissingError            3   the object or revision does not exist
|- ConflictError           4   the object was changed in the meantime
|- ForbiddenError          5   not signed in, or not allowed
|- QuotaError              6   the quota of the project is too small
|- DeclinedError           9   a prompt was answered with no
|- NotEnabledError        10   compute is not enabled for the project
|- DeniedError            11   access to compute was denied or revoked
|- PendingError           12   the request for access waits for approval
|- UnavailableError       13   this platform does not offer compute
|- FailedError            20   the rollout failed, or a check of ``doctor`` failed
|- TimedOutError          21   the timeout expired
`- StoppedError          130   interrupted by Ctrl-C

``diff`` is different: it exits with 0 if there is no difference, with 1 if there is one, and with 2
for what would otherwise be 1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from datum_compute.api.errors import ApiError

# Builds a command for the user from its words: ``CliEnvironment.command``.
BuildCommand = Callable[..., str]


class UsageError(Exception):
    """An error of a command.

    ``field`` is the path of the invalid field. ``request_id`` identifies the request in the audit
    log of the server. ``retryable`` is true if the same command may succeed later.
    """

    exit_code: ClassVar[int] = 2
    reason: ClassVar[str] = "Usage"
    meaning: ClassVar[str] = "The command line or a manifest is invalid."
    retryable: ClassVar[bool] = False
    is_error: ClassVar[bool] = True  # otherwise the message is printed as information

    def __init__(
        self, message: str, hint: str = "", *, field: str = "", request_id: str = ""
    ) -> None:
        super().__init__(message)
        # A message of the server that ends with a period may be quoted at the end of a sentence.
        doubled = message.endswith("..") and not message.endswith("...")
        self.message = message[:-1] if doubled else message
        self.hint = hint
        self.field = field
        self.request_id = request_id


class OtherError(UsageError):
    exit_code, reason = 1, "Error"
    meaning = "Any other error."


class BusyError(OtherError):
    reason, retryable = "Busy", True


class MissingError(UsageError):
    exit_code, reason = 3, "NotFound"
    meaning = "The object or revision does not exist."


class ConflictError(UsageError):
    exit_code, reason, retryable = 4, "Conflict", True
    meaning = "The object was changed in the meantime."


class ForbiddenError(UsageError):
    exit_code, reason = 5, "Forbidden"
    meaning = "Not signed in, or not allowed."


class QuotaError(UsageError):
    exit_code, reason, retryable = 6, "QuotaExceeded", True
    meaning = "The quota of the project is too small."


class DeclinedError(UsageError):
    exit_code, reason = 9, "Declined"
    meaning = "A prompt was answered with no."


class NotEnabledError(UsageError):
    exit_code, reason = 10, "NotEnabled"
    meaning = "Compute is not enabled for the project, and no access was requested."


class DeniedError(UsageError):
    exit_code, reason = 11, "AccessDenied"
    meaning = "Access to compute was denied or revoked."


class PendingError(UsageError):
    exit_code, reason, retryable, is_error = 12, "AccessPending", True, False
    meaning = "The request for access waits for approval."


class UnavailableError(UsageError):
    exit_code, reason = 13, "ServiceUnavailable"
    meaning = "This platform does not offer compute."


class FailedError(UsageError):
    exit_code, reason = 20, "Failed"
    meaning = "The rollout failed, or a check of doctor failed."


class TimedOutError(UsageError):
    exit_code, reason, retryable = 21, "Timeout", True
    meaning = "The timeout expired. The operation continues on the platform."


class StoppedError(UsageError):
    exit_code, reason, retryable = 130, "Interrupted", True
    meaning = "Interrupted by Ctrl-C. The operation continues on the platform."


ERRORS: tuple[type[UsageError], ...] = (
    *(OtherError, UsageError, MissingError, ConflictError, ForbiddenError, QuotaError),
    *(DeclinedError, NotEnabledError, DeniedError, PendingError, UnavailableError),
    *(FailedError, TimedOutError, StoppedError),
)


def from_api_error(error: ApiError, command: BuildCommand) -> UsageError:
    """Return an error with the message of the API and the next command."""
    failure, hint = _classify(error, command)
    return failure(
        error.message,  # a server lists all causes in the message
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
            return ConflictError, "Run the command again: the object was changed in the meantime."
        case api.Unauthorized():
            return ForbiddenError, "Sign in again, or correct the token of the context."
        case api.Forbidden() if any(c.reason == QuotaError.reason for c in error.causes):
            return QuotaError, f"See what is used: {command('quota')}"
        case api.Forbidden():
            return ForbiddenError, "Request access, or select another project with --project."
        case api.Invalid() | api.BadRequest():
            listing = _listing(error)
            return UsageError, f"See: {command(listing)}" if listing else ""
        case api.TooManyRequests() | api.ServiceUnavailable() | api.Timeout():
            return BusyError, "Run the command again in a few seconds."
        case _:
            return OtherError, ""


def _listing(error: ApiError) -> str:
    """Return the command that lists the valid values; empty if there is none."""
    field = error.causes[0].field if error.causes else ""
    if "ityCodes" in field:
        return "cities"
    return "instance-types" if field.endswith("instanceType") else ""
