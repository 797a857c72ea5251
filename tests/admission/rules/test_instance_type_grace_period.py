"""The grace period of a deprecated instance type."""

from __future__ import annotations

import pytest

from datum_compute.admission.queries import Answers, Write
from datum_compute.admission.rules.instance_type import check_grace_period
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import INSTANCE_TYPE
from datum_compute.api.meta.codec import JsonObject

HOUR_S = 3600.0
SINCE, SINCE_S = "2023-11-14T22:13:20Z", 1_700_000_000.0


def a_type(phase: str, deprecated_at: str | None = None) -> JsonObject:
    made: JsonObject = {"metadata": {"name": "old"}, "spec": {"lifecycle": {"phase": phase}}}
    return {**made, "status": {"deprecatedAt": deprecated_at}} if deprecated_at else made


def found(new: JsonObject, old: JsonObject | None, now_s: float) -> list[Cause]:
    write = Write(INSTANCE_TYPE, "", new, old, now_s=now_s, deprecation_grace_s=HOUR_S)
    return list(check_grace_period(write, Answers()))


def test_a_deprecated_type_can_be_disabled_only_after_the_grace_period() -> None:
    old = a_type("Deprecated", SINCE)
    (cause,) = found(a_type("Disabled"), old, SINCE_S + HOUR_S - 1)
    assert cause.field == "spec.lifecycle.phase"
    assert "from 2023-11-14T23:13:20Z on" in cause.message
    assert found(a_type("Disabled"), old, SINCE_S + HOUR_S) == []


@pytest.mark.parametrize(
    ("new", "old"),
    [
        (a_type("Disabled"), a_type("Deprecated")),
        (a_type("Disabled"), a_type("Deprecated", "yesterday")),
        (a_type("Deprecated"), a_type("Deprecated", SINCE)),
        (a_type("Disabled"), a_type("Disabled", SINCE)),
        (a_type("Active"), None),
    ],
)
def test_other_changes_and_types_without_a_deprecation_time_are_accepted(
    new: JsonObject, old: JsonObject | None
) -> None:
    assert found(new, old, SINCE_S) == []
