"""How a machine falls asleep and wakes follows from what is seen, whoever was interrupted at it."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.containeroptions import Probe, TcpSocket
from datum_compute.api.scaletozero import SleepMode
from datum_compute.drivers.containers.container_spec import ContainerPlan, MachinePlan
from datum_compute.drivers.containers.inspection import Seen, Standing
from datum_compute.drivers.containers.machine import (
    NOTHING,
    Record,
    Sight,
    after_failed_wake,
    after_wake,
    fallen_asleep,
)
from datum_compute.drivers.containers.status import Answers, state_of
from datum_compute.drivers.containers.steps import (
    FallAsleep,
    NoteEnd,
    Pause,
    Rest,
    Start,
    Step,
    Stop,
    Wake,
    next_step,
)

PLAN = MachinePlan(containers=[ContainerPlan(name="a", image="web:1")])
PROBED = MachinePlan(
    containers=[
        ContainerPlan(name="a", image="web:1", readiness=Probe(tcp_socket=TcpSocket(port=80)))
    ]
)


def sight(
    record: Record = NOTHING,
    *,
    waking: bool = False,
    falling: SleepMode | Literal[""] = "",
    **standings: Standing,
) -> Sight:
    seen = {
        name: Seen(name, name, standing, 0 if standing == "exited" else None, started_at="then")
        for name, standing in standings.items()
    }
    return Sight(sorted(seen), seen, record, waking=waking, falling=falling, now_s=50.0)


@pytest.mark.parametrize(
    ("mode", "standing", "step"),
    [
        ("pause", "running", Pause(("a",))),
        ("pause", "paused", Rest()),
        ("pause", "exited", Rest()),
        ("stop", "running", Stop(("a",))),
        ("stop", "paused", Stop(("a",))),
        ("stop", "exited", Rest()),
    ],
)
def test_one_that_is_to_sleep_is_brought_there_and_left_alone(
    mode: SleepMode, standing: Standing, step: Step
) -> None:
    asleep = fallen_asleep(NOTHING, mode)
    assert next_step(sight(asleep, a=standing)) == step
    assert state_of(PLAN, sight(asleep, a=standing), Answers(), "").phase == "Sleeping"


def test_only_one_that_is_seen_to_run_falls_asleep() -> None:
    """The end of one that ended by itself, just before, would never be told."""
    assert next_step(sight(falling="stop", a="running")) == FallAsleep("stop")
    assert next_step(sight(falling="stop", a="exited")) == NoteEnd("a")
    assert next_step(sight(falling="stop", a="running", b="exited")) == NoteEnd("b")
    down = Record(is_down=True, start_after_s=60.0)
    assert next_step(sight(down, falling="stop", a="exited")) == Rest(60.0)


def test_whoever_does_not_run_is_woken_and_then_it_is_awake() -> None:
    asleep = fallen_asleep(NOTHING, "stop")
    assert next_step(sight(asleep, waking=True, a="exited")) == Wake(("a",))
    assert next_step(sight(asleep, waking=True, a="running")) == Wake(())
    assert next_step(sight(NOTHING, waking=True, a="paused")) == Wake(("a",)), "by somebody else"
    assert next_step(sight(after_wake(asleep), a="running")) == Rest(is_up=True)


def test_only_the_end_of_one_that_is_awake_is_a_crash() -> None:
    asleep = fallen_asleep(NOTHING, "stop")
    assert next_step(sight(after_wake(asleep), a="exited")) == NoteEnd("a")
    assert next_step(sight(asleep, a="exited")) == Rest()


def test_a_machine_sleeps_and_wakes_as_a_whole() -> None:
    half = sight(fallen_asleep(NOTHING, "pause"), a="exited", b="paused")
    assert next_step(half) == Stop(("b",))
    both = sight(fallen_asleep(NOTHING, "pause"), waking=True, a="exited", b="exited")
    assert next_step(both) == Wake(("a", "b"))


def test_one_that_cannot_be_woken_is_started_again_like_any_that_ended() -> None:
    failed = after_failed_wake(fallen_asleep(NOTHING, "stop"), again_s=60.0)
    assert next_step(sight(failed, a="exited")) == Rest(60.0)
    late = msgspec.structs.replace(failed, start_after_s=0.0)
    assert next_step(sight(late, a="exited")) == Start(("a",))


def test_one_that_was_woken_is_called_asleep_until_it_is_ready_but_not_for_ever() -> None:
    up = sight(after_wake(fallen_asleep(NOTHING, "pause")), a="running")
    drowsy = Sight(up.containers, up.seen, up.record, drowsy_until_s=60.0, now_s=50.0)
    assert state_of(PROBED, drowsy, Answers(), "").phase == "Sleeping"
    assert state_of(PROBED, drowsy, Answers(ready={"a": True}), "").phase == "Running"
    late = Sight(up.containers, up.seen, up.record, drowsy_until_s=60.0, now_s=60.0)
    told = state_of(PROBED, late, Answers(), "")
    assert (told.phase, told.reason) == ("Running", "Starting")


def test_one_that_crashed_long_ago_is_believed_when_it_wakes() -> None:
    crashed = Record(exit_code=1, ended_s=10.0)
    woken = after_wake(fallen_asleep(crashed, "stop"))
    seen = {"a": Seen("a", "a", "running", started_at="now", started_s=49.0)}
    assert state_of(PLAN, Sight(["a"], seen, crashed, now_s=50.0), Answers(), "").phase == "Failed"
    assert state_of(PLAN, Sight(["a"], seen, woken, now_s=50.0), Answers(), "").phase == "Running"


@given(
    st.dictionaries(st.sampled_from(("a", "b")), st.sampled_from(("running", "paused", "exited"))),
    st.sampled_from(("pause", "stop")),
    st.booleans(),
)
def test_whatever_is_found_of_a_sleeper_a_few_steps_lead_to_rest(
    found: dict[str, Standing], mode: SleepMode, waking: bool
) -> None:
    standings: dict[str, Standing] = {"a": "running", "b": "running", **found}
    record = fallen_asleep(NOTHING, mode)
    for _ in range(6):
        step = next_step(sight(record, waking=waking, falling="", **standings))
        match step:
            case Pause(names):
                standings.update(dict.fromkeys(names, "paused"))
            case Stop(names):
                standings.update(dict.fromkeys(names, "exited"))
            case Wake(names):
                standings.update(dict.fromkeys(names, "running"))
                record, waking = after_wake(record), False
            case Rest(is_up=is_up):
                assert is_up == (not record.asleep)
                return
            case _:
                raise AssertionError(f"{step} with {standings}")
    raise AssertionError(f"no rest with {standings}")
