"""Query parameters with invalid values are rejected with the reason."""

from __future__ import annotations

import pytest

from datum_compute.api.errors import BadRequest
from datum_compute.server.encoding.request_options import parse_number


def test_a_number_is_parsed() -> None:
    assert parse_number({"limit": "5"}, "limit") == 5
    assert parse_number({"limit": "0"}, "limit") == 0
    assert parse_number({"limit": ""}, "limit") is None
    assert parse_number({}, "limit") is None


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ("-5", "must be 0 or greater"),
        ("-99999999999999999999", "must be 0 or greater"),
        ("9999999999999999999", "must be less than 1000000000000000000"),
        ("five", "must be a whole number"),
        ("1.5", "must be a whole number"),
        ("+5", "must be a whole number"),
        ("-", "must be a whole number"),
        ("\u0665", "must be a whole number"),
    ],
)
def test_an_invalid_number_is_refused_with_the_reason(value: str, reason: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_number({"limit": value}, "limit")
    assert str(refused.value) == f'limit: Invalid value: "{value}": {reason}'
