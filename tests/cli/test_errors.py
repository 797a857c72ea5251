"""The exit code of an API error depends on its class and the reasons of its causes."""

from __future__ import annotations

import pytest

from datum_compute.api.errors import ApiError, Cause, Conflict, Forbidden, Invalid, NotFound
from datum_compute.cli.errors import from_api_error


def build_command(*words: str) -> str:
    return " ".join(("datumctl", "compute", *words))


@pytest.mark.parametrize(
    ("error", "exit_code"),
    [
        (NotFound("gone"), 3),
        (Conflict("changed"), 4),
        (Forbidden("may not"), 5),
        (Forbidden("may not read the quota of the project"), 5),
        (Forbidden("too much", causes=[Cause("spec", "QuotaExceeded", "11 of 10")]), 6),
        (
            Invalid(
                "wrong", causes=[Cause.invalid("spec.placements[0].cityCodes", "no such city")]
            ),
            2,
        ),
    ],
)
def test_exit_code_depends_on_reasons_and_not_on_the_message(
    error: ApiError, exit_code: int
) -> None:
    assert from_api_error(error, build_command).exit_code == exit_code


def test_hint_lists_the_cities_for_an_invalid_city() -> None:
    cause = Cause.invalid("spec.placements[0].cityCodes[1]", "no such city")
    assert from_api_error(Invalid("wrong", causes=[cause]), build_command).hint.endswith("cities")


def test_an_invalid_field_without_a_list_of_values_has_no_hint() -> None:
    """The message states the rule; the help of all commands does not."""
    cause = Cause.invalid("spec.template.spec.runtime.sandbox.containers[0].image", "no image")
    assert from_api_error(Invalid("wrong", causes=[cause]), build_command).hint == ""
