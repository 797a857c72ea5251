"""How soon a deprecated instance type may be disabled."""

from __future__ import annotations

import pytest

from datum_compute.admission.questions import Answers, Write
from datum_compute.admission.rules.instance_type import grace_has_passed
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
    return list(grace_has_passed(write, Answers()))


def test_it_can_be_disabled_when_the_grace_is_over_and_not_before() -> None:
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
def test_what_has_no_time_or_does_not_become_disabled_waits_for_nothing(
    new: JsonObject, old: JsonObject | None
) -> None:
    assert found(new, old, SINCE_S) == []
