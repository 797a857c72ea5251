"""Instances that are stopping: condition, message, and the time left of the grace period."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.compute.instance import Instance
from datum_compute.api.conditions import FALSE, ConditionValue
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.planning.rollout.stopping import (
    grace_left_s,
    grace_period_s,
    render_stopping,
    stopping_value,
)
from testkit.builders import NOW, an_instance


def stopping(number: int = 0, *, grace_s: int = 30, since: str | None = NOW) -> Instance:
    instance = an_instance(number)
    sandbox = msgspec.structs.replace(
        instance.spec.runtime.sandbox, termination_grace_period_seconds=grace_s
    )
    runtime = msgspec.structs.replace(instance.spec.runtime, sandbox=sandbox)
    return msgspec.structs.replace(
        instance,
        metadata=msgspec.structs.replace(instance.metadata, deletion_timestamp=since),
        spec=msgspec.structs.replace(instance.spec, runtime=runtime),
    )


def after(seconds: float) -> str:
    return timestamp(parse_timestamp(NOW) + seconds)


def test_the_grace_period_is_that_of_the_template() -> None:
    assert grace_period_s(stopping(grace_s=45)) == 45
    assert stopping_value(stopping(grace_s=45)) == ConditionValue(
        FALSE, "Stopping", "Waiting for the instance to stop, up to 45 s"
    )


@pytest.mark.parametrize(
    ("instances", "expected"),
    [
        ([stopping(1, grace_s=45)], "waiting for the old instance web-dfw-1 to stop, up to 45 s"),
        (
            [stopping(0, grace_s=60), stopping(1, grace_s=10)],
            "waiting for 2 old instances to stop, up to 60 s",
        ),
    ],
)
def test_the_message_has_the_longest_grace_period(instances: list[Instance], expected: str) -> None:
    assert render_stopping(instances) == expected


@pytest.mark.parametrize(
    ("elapsed_s", "left_s"),
    [(0, 30), (10, 20), (30, 0), (31, -1), (-30, 60), (-31, None)],
)
def test_the_grace_period_starts_at_the_deletion(elapsed_s: float, left_s: float | None) -> None:
    """A deletion more than one grace period in the future means that the clocks disagree."""
    assert grace_left_s(stopping(grace_s=30), after(elapsed_s)) == left_s


def test_the_whole_grace_period_is_left_before_the_deletion() -> None:
    assert grace_left_s(stopping(grace_s=30, since=None), after(500)) == 30
