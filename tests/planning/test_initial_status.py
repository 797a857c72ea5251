"""The initial steps of a new object are not written."""

from __future__ import annotations

from msgspec.structs import replace

from datum_compute.api.compute.instance import QUOTA_GRANTED, Instance
from datum_compute.api.conditions import UNKNOWN, Condition, ConditionValue
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.planning.initial_status import INITIAL_STATUS_S, age_s, should_defer
from datum_compute.planning.rollout.gates import QUOTA, Decision, should_defer_gates
from testkit.builders import NOW, an_instance, refused_by_quota

REPORTED = [Condition(type="Applied", status=UNKNOWN, reason="Pending")]


def created_at_now(instance: Instance) -> Instance:
    return replace(instance, metadata=replace(instance.metadata, creation_timestamp=NOW))


def after(seconds: float) -> str:
    return timestamp(parse_timestamp(NOW) + seconds)


NEW = created_at_now(an_instance(0))


def test_the_status_of_a_new_object_is_deferred() -> None:
    assert should_defer(NEW, (), NOW)
    assert should_defer(NEW, (), after(INITIAL_STATUS_S - 1))
    assert not should_defer(NEW, (), after(INITIAL_STATUS_S))


def test_earlier_conditions_and_problems_are_not_deferred() -> None:
    assert not should_defer(NEW, REPORTED, NOW)


def test_a_creation_time_in_the_future_defers_nothing() -> None:
    assert not should_defer(NEW, (), after(-60))
    assert age_s(NEW, after(-60)) == -60


def test_gates_of_a_new_instance_wait_for_an_undecided_one() -> None:
    waiting = created_at_now(refused_by_quota(an_instance(0)))
    undecided = Decision(QUOTA, QUOTA_GRANTED, ConditionValue(UNKNOWN, "PendingEvaluation", ""))
    denied = Decision(QUOTA, QUOTA_GRANTED, ConditionValue("False", "QuotaExceeded", ""))
    assert should_defer_gates(waiting, undecided, NOW)
    assert not should_defer_gates(waiting, denied, NOW)
    assert not should_defer_gates(waiting, undecided, after(INITIAL_STATUS_S))
    assert not should_defer_gates(NEW, undecided, NOW), "it does not have this gate"
