"""Conditions: one entry per type, and a transition time that changes only with the status."""

from __future__ import annotations

from datum_compute.api.conditions import (
    EPOCH,
    FALSE,
    TRUE,
    Condition,
    ConditionStatus,
    find_condition,
    is_true,
    with_condition,
)
from datum_compute.api.meta.codec import to_json

EARLY, LATE = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def ready(status: ConditionStatus, time: str, reason: str = "R", generation: int = 1) -> Condition:
    return Condition(
        type="Ready",
        status=status,
        reason=reason,
        message=f"since {time}",
        last_transition_time=time,
        observed_generation=generation,
    )


OTHER = Condition(type="Programmed", status=TRUE, reason="Done")


def test_the_transition_time_changes_only_with_the_status() -> None:
    old = [OTHER, ready(FALSE, EARLY, "Waiting")]
    same = with_condition(old, ready(FALSE, LATE, "Still", generation=2))
    changed = with_condition(old, ready(TRUE, LATE))
    assert find_condition(same, "Ready") == Condition(
        type="Ready",
        status=FALSE,
        reason="Still",
        message=f"since {LATE}",
        last_transition_time=EARLY,
        observed_generation=2,
    )
    assert find_condition(changed, "Ready") == ready(TRUE, LATE)


def test_other_conditions_keep_their_positions() -> None:
    old = [ready(FALSE, EARLY), OTHER]
    assert with_condition(old, ready(TRUE, LATE)) == [ready(TRUE, LATE), OTHER]
    assert with_condition([OTHER], ready(TRUE, LATE)) == [OTHER, ready(TRUE, LATE)]
    assert old == [ready(FALSE, EARLY), OTHER]


def test_setting_an_equal_condition_is_a_noop() -> None:
    settled = with_condition([], ready(TRUE, EARLY))
    assert with_condition(settled, settled[0]) == settled


def test_absent_and_unknown_conditions_are_not_true() -> None:
    assert not is_true([], "Ready")
    assert not is_true([ready("Unknown", EARLY)], "Ready")
    assert is_true([ready(TRUE, EARLY)], "Ready")
    assert find_condition([OTHER], "Ready") is None


def test_a_condition_is_encoded_with_all_fields() -> None:
    assert to_json(OTHER) == {
        "type": "Programmed",
        "status": "True",
        "reason": "Done",
        "message": "",
        "lastTransitionTime": EPOCH,
        "observedGeneration": 0,
    }
