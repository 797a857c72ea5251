"""The result of checking a value against its schema, and the limit on the work of the check."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any

import msgspec

from datum_compute.api.errors import (
    SHOWN_LENGTH_MAX,
    Cause,
    Invalid,
    RequestEntityTooLarge,
    format_value,
)

# A check gets a value, its path and a report. It returns the value as it is stored.
Check = Callable[[Any, str, "ValidationReport"], Any]

ERRORS_MAX = 100
STEPS_MAX = 300_000  # this many steps take 30 to 60 ms
DEFAULT_BYTES_MAX = 1536 * 1024  # no larger object can be stored
_STEPS_PER_ERROR = 20
_STEPS_PER_DEFAULT = 3


def limit_causes(causes: Iterable[Cause]) -> list[Cause]:
    """Return the first errors. If there are more, the last one states it.

    Errors beyond the limit are not built, so pass a generator.
    """
    found = list(islice(causes, ERRORS_MAX + 1))
    if len(found) > ERRORS_MAX:
        found[ERRORS_MAX] = _too_many_errors(found[ERRORS_MAX].field)
    return found


def _too_many_errors(field: str) -> Cause:
    why = f"more than {ERRORS_MAX} errors; fix these first"
    return Cause.invalid(field, why)


class CheckBudget(msgspec.Struct):
    """The limit on the work of one check. The check calls ``spend`` before each step, which raises
    when the budget is used up.

    A step is one comparison of a value with a node of the schema. The number of steps is the
    product of values and nodes, so limits on either size alone do not bound it.
    """

    steps_left: int = STEPS_MAX
    default_bytes_left: int = DEFAULT_BYTES_MAX

    def spend(self, steps: int, path: str) -> None:
        self.steps_left -= steps
        if self.steps_left < 0:
            why = (
                f"checking the value takes more than {STEPS_MAX} steps; send fewer items, or "
                "simplify the schema of the custom resource definition (anyOf, oneOf, allOf, not, "
                "pattern)"
            )
            cause = Cause.forbidden(path, why)
            raise Invalid(f"{path}: {cause.message}", causes=[cause])

    def spend_default(self, size_bytes: int, path: str) -> None:
        self.spend(_STEPS_PER_DEFAULT, path)
        self.default_bytes_left -= size_bytes
        if self.default_bytes_left < 0:
            why = (
                f"the defaults of its schema add more than {DEFAULT_BYTES_MAX} bytes to the "
                "object; send fewer items, or remove defaults from the custom resource definition"
            )
            cause = Cause.too_long(path, why)
            raise RequestEntityTooLarge(f"{path}: {why}", causes=[cause])


class NeedsFullCheck(Exception):
    """The fast check cannot accept the value. The full check decides and names the field."""


class ValidationReport(msgspec.Struct):
    """Errors of a check by field, and the unknown fields that were dropped."""

    errors: list[Cause] = []
    unknown: list[str] = []
    budget: CheckBudget = msgspec.field(default_factory=CheckBudget)
    failures: int = 0  # all errors, including those above ERRORS_MAX
    fail_fast: bool = False  # raise NeedsFullCheck at the first error or unknown field

    def add_unknown(self, path: str) -> None:
        if self.fail_fast:
            raise NeedsFullCheck
        self.unknown.append(path)

    def fail(self, cause: Cause) -> None:
        if self.fail_fast:
            raise NeedsFullCheck
        self.failures += 1
        if len(self.errors) < ERRORS_MAX:
            self.errors.append(cause)
        elif len(self.errors) == ERRORS_MAX:
            self.errors.append(_too_many_errors(cause.field))
        self.budget.spend(_STEPS_PER_ERROR, cause.field)

    def fail_each(self, causes: Iterable[Cause]) -> None:
        for cause in causes:
            self.fail(cause)

    def fail_invalid(
        self, path: str, value: Any, why: str, reason: str = "FieldValueInvalid"
    ) -> None:
        self.fail(Cause(path, reason, f"Invalid value: {format_value(value)}: {why}"))

    def fail_required(self, path: str) -> None:
        self.fail(Cause.required(path))


class Hidden:
    """Placeholder for a confidential value."""

    def __repr__(self) -> str:
        return "<hidden>"


HIDDEN = Hidden()


def format_values(values: Iterable[Any]) -> str:
    """Return the values separated by commas, shortened to the length of an error message."""
    texts: list[str] = []
    room = 10 * SHOWN_LENGTH_MAX
    for value in values:
        texts.append(format_value(value))
        room -= len(texts[-1])
        if room < 0:
            return ", ".join([*texts, "..."])
    return ", ".join(texts)


def join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
