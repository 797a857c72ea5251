"""Errors are encoded as Status objects and decoded to the same errors."""

from __future__ import annotations

import pytest

from datum_compute.api import errors
from datum_compute.api.errors import ERRORS, ApiError, Cause, from_status, to_status


@pytest.mark.parametrize("error_class", ERRORS)
def test_a_decoded_error_equals_the_encoded_one(error_class: type[ApiError]) -> None:
    error = error_class(
        "it went wrong",
        name="web",
        group="compute.datumapis.com",
        kind="workloads",
        causes=[Cause("spec.x", "FieldValueInvalid", "Invalid value")],
        retry_after_s=3,
    )
    status = to_status(error)
    back = from_status(error.code, status)
    assert type(back) is error_class
    assert vars(back) == vars(error)
    assert (status["kind"], status["status"]) == ("Status", "Failure")
    assert (status["code"], status["reason"]) == (error_class.code, error_class.reason)


@pytest.mark.parametrize("error_class", ERRORS)
def test_an_error_without_a_reason_is_classified_by_its_http_code(
    error_class: type[ApiError],
) -> None:
    found = from_status(error_class.code, {})
    assert found.code == error_class.code
    assert found.message == f"the server answered {error_class.code}"


def test_code_409_without_a_reason_is_a_conflict() -> None:
    assert type(from_status(409, {})) is errors.Conflict


def test_an_unknown_code_is_an_internal_error() -> None:
    assert type(from_status(599, {"reason": "Strange", "details": None})) is errors.InternalError


def test_every_error_class_is_in_the_table() -> None:
    classes = {value for value in vars(errors).values() if isinstance(value, type)}
    written = {c for c in classes if issubclass(c, ApiError) and c is not ApiError}
    assert set(ERRORS) == written
    assert len({error.reason for error in ERRORS}) == len(ERRORS)
    for error in ERRORS:
        assert f"{error.__name__} " in (errors.__doc__ or "")
        assert error.reason == error.__name__


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        (Cause.invalid("f", "must be short"), "Invalid value: must be short"),
        (Cause.invalid("f", "must be short", "x" * 200), f'"{"x" * 117}...": must be short'),
        (Cause.invalid("f", "must be a schema", None), "Invalid value: null: must be a schema"),
        (Cause.invalid("f", "must be false", True), "Invalid value: true: must be false"),
        (Cause.too_many("f", "at most 2", 3), "Too many: 3: at most 2"),
        (Cause.duplicate("f", "web"), 'Duplicate value: "web"'),
        (Cause.duplicate("f", 5, "also at g"), "Duplicate value: 5: also at g"),
        (
            Cause.unsupported("f", "x", ("a", "b")),
            'Unsupported value: "x": supported values: "a", "b"',
        ),
        (Cause.unsupported("f", 1, why="use 2"), "Unsupported value: 1: use 2"),
    ],
)
def test_a_cause_has_the_message_of_kube_apiserver(cause: Cause, message: str) -> None:
    assert cause.message.endswith(message)
