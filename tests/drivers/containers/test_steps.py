"""What to do next follows from what is seen; all roads lead to a machine that runs, or to none."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.drivers.containers.inspection import Seen, Standing
from datum_compute.drivers.containers.machine import (
    BACKOFF_MAX_S,
    NOTHING,
    RECOVERED_S,
    Problem,
    Record,
    Sight,
    after_end,
    after_start,
)
from datum_compute.drivers.containers.steps import (
    Create,
    Forget,
    NoteEnd,
    Remove,
    Rest,
    Start,
    Step,
    Stop,
    next_step,
)

DOWN = Record(is_down=True, start_after_s=100.0, wait_s=10.0, exit_code=1)


def sight(record: Record = NOTHING, *, now_s: float = 50.0, **standings: Standing) -> Sight:
    seen = {n: Seen(n, f"id-{n}", s, 1 if s == "exited" else None) for n, s in standings.items()}
    return Sight(["a", "b"], seen, record, now_s=now_s)


def test_what_is_not_there_is_made_if_we_know_what_from() -> None:
    makeable = Sight(["a", "b"], {}, can_create=True)
    assert next_step(makeable) == Create()
    assert next_step(sight()) == Forget()
    assert next_step(sight(a="running")) == Forget(), "half a machine cannot be completed"


def test_all_are_started_in_order_and_then_left_alone() -> None:
    assert next_step(sight(a="created", b="created")) == Start(("a", "b"))
    assert next_step(sight(a="running", b="created")) == Start(("b",))
    assert next_step(sight(a="running", b="running")) == Rest(is_up=True)
    assert next_step(sight(a="paused", b="running")) == Rest(is_up=True)


def test_an_end_is_noted_once_then_the_rest_is_stopped_then_it_is_waited() -> None:
    assert next_step(sight(a="running", b="exited")) == NoteEnd("b")
    assert next_step(sight(DOWN, a="running", b="exited")) == Stop(("a",))
    assert next_step(sight(DOWN, a="exited", b="exited")) == Rest(100.0)
    assert next_step(sight(DOWN, now_s=100.0, a="exited", b="exited")) == Start(("a", "b"))


def test_one_that_came_up_again_by_itself_is_not_stopped() -> None:
    assert next_step(sight(DOWN, a="running", b="running")) == Rest(is_up=True)


def test_a_problem_is_given_time_and_removal_is_not_held_up_by_it() -> None:
    problem = Problem("ImageUnavailable", "none", again_s=60.0, wait_s=10.0)
    held = Sight(["a"], {}, problem=problem, can_create=True, now_s=50.0)
    assert next_step(held) == Rest(60.0)
    late = Sight(["a"], {}, problem=problem, can_create=True, now_s=60.0)
    assert next_step(late) == Create()
    leaving = Sight(["a"], {}, problem=problem, wanted=False, can_create=True, now_s=50.0)
    assert next_step(leaving) == Forget()


def test_what_is_not_wanted_goes_and_is_forgotten_only_when_nothing_is_seen() -> None:
    seen = {"a": Seen("a", "id", "exited", 0)}
    assert next_step(Sight(["a", "b"], seen, wanted=False)) == Remove()
    assert next_step(Sight(["a", "b"], {}, wanted=False)) == Forget()


def test_waits_double_up_to_a_limit_and_begin_anew_after_a_long_run() -> None:
    record, waits = NOTHING, []
    for _ in range(7):
        record = after_start(after_end(record, Seen("a", "id", "exited", 1), 0.0))
        waits.append(record.wait_s)
    assert waits == [10.0, 20.0, 40.0, 80.0, 160.0, BACKOFF_MAX_S, BACKOFF_MAX_S]
    assert record.restarts == 7
    long = Seen("a", "id", "exited", 1, started_s=1.0, finished_s=1.0 + RECOVERED_S)
    assert after_end(record, long, 2000.0).wait_s == 10.0


@given(
    st.dictionaries(
        st.sampled_from(("a", "b")), st.sampled_from(("created", "running", "paused", "exited"))
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_whatever_is_found_a_few_steps_lead_to_rest(
    found: dict[str, Standing], wanted: bool, can_create: bool, is_down: bool
) -> None:
    """Carried out on a model, steps end; and a machine that is wanted is never removed."""
    standings, now_s = dict(found), 0.0
    record = DOWN if is_down else NOTHING
    for _ in range(12):
        step = _look(standings, record, now_s, wanted=wanted, can_create=can_create)
        assert wanted or not isinstance(step, Start | Create)
        assert not (wanted and isinstance(step, Remove))
        if isinstance(step, Forget) or (isinstance(step, Rest) and step.until_s is None):
            return
        if isinstance(step, Rest):
            now_s = step.until_s or now_s
        record = _carried_out(standings, record, step, now_s)
    raise AssertionError(f"still {step} with {standings}")


def _look(
    standings: dict[str, Standing], record: Record, now_s: float, *, wanted: bool, can_create: bool
) -> Step:
    seen = {n: Seen(n, n, s, 1 if s == "exited" else None) for n, s in standings.items()}
    return next_step(
        Sight(["a", "b"], seen, record, wanted=wanted, can_create=can_create, now_s=now_s)
    )


def _carried_out(
    standings: dict[str, Standing], record: Record, step: Step, now_s: float
) -> Record:
    match step:
        case Create():
            standings.update(a="created", b="created")
        case Start(names):
            standings.update(dict.fromkeys(names, "running"))
            return after_start(record)
        case Stop(names):
            standings.update(dict.fromkeys(names, "exited"))
        case NoteEnd(name):
            return after_end(record, Seen(name, name, "exited", 1), now_s)
        case Remove():
            standings.clear()
        case _:
            return msgspec.structs.replace(record)
    return record
