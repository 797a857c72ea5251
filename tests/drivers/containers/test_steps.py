"""The next step follows from a snapshot; every sequence of steps settles the machine."""

from __future__ import annotations

from dataclasses import replace

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.drivers.containers.inspection import InspectedContainer, RunState
from datum_compute.drivers.containers.machine import (
    BACKOFF_MAX_S,
    EMPTY_RECORD,
    RECOVERED_AFTER_S,
    MachineRecord,
    MachineSnapshot,
    SetupProblem,
    record_exit,
    record_resumption,
    record_start,
    record_suspension,
)
from datum_compute.drivers.containers.steps import (
    CreateContainers,
    DropMachineState,
    RecordExit,
    RemoveContainers,
    ResumeContainers,
    StartContainers,
    Step,
    StopContainers,
    WaitForChange,
    next_step,
)

DOWN = MachineRecord(is_down=True, start_after_s=100.0, backoff_s=10.0, exit_code=1)


def snapshot(
    record: MachineRecord = EMPTY_RECORD, *, now_s: float = 50.0, **states: RunState
) -> MachineSnapshot:
    inspected = {
        n: InspectedContainer(n, f"id-{n}", s, 1 if s == "exited" else None)
        for n, s in states.items()
    }
    return MachineSnapshot(["a", "b"], inspected, record, now_s=now_s)


def test_missing_containers_are_created_if_the_spec_is_known() -> None:
    creatable = MachineSnapshot(["a", "b"], {}, can_create=True)
    assert next_step(creatable) == CreateContainers()
    assert next_step(snapshot()) == DropMachineState()
    assert next_step(snapshot(a="running")) == DropMachineState(), (
        "an incomplete machine cannot be completed"
    )


def test_all_containers_are_started_in_order() -> None:
    assert next_step(snapshot(a="created", b="created")) == StartContainers(("a", "b"))
    assert next_step(snapshot(a="running", b="created")) == StartContainers(("b",))
    assert next_step(snapshot(a="running", b="running")) == WaitForChange(is_up=True)
    assert next_step(snapshot(a="paused", b="running")) == WaitForChange(is_up=True)


def test_an_exit_is_recorded_then_the_others_are_stopped_then_the_backoff_passes() -> None:
    assert next_step(snapshot(a="running", b="exited")) == RecordExit("b")
    assert next_step(snapshot(DOWN, a="running", b="exited")) == StopContainers(("a",))
    assert next_step(snapshot(DOWN, a="exited", b="exited")) == WaitForChange(100.0)
    assert next_step(snapshot(DOWN, now_s=100.0, a="exited", b="exited")) == StartContainers(
        ("a", "b")
    )


def test_a_machine_that_runs_again_is_not_stopped() -> None:
    assert next_step(snapshot(DOWN, a="running", b="running")) == WaitForChange(is_up=True)


def test_a_setup_problem_delays_creation_but_not_removal() -> None:
    problem = SetupProblem("ImageUnavailable", "none", retry_at_s=60.0, backoff_s=10.0)
    delayed = MachineSnapshot(["a"], {}, problem=problem, can_create=True, now_s=50.0)
    assert next_step(delayed) == WaitForChange(60.0)
    late = MachineSnapshot(["a"], {}, problem=problem, can_create=True, now_s=60.0)
    assert next_step(late) == CreateContainers()
    unwanted = MachineSnapshot(
        ["a"], {}, problem=problem, is_wanted=False, can_create=True, now_s=50.0
    )
    assert next_step(unwanted) == DropMachineState()


def test_an_unwanted_machine_is_dropped_when_its_containers_are_gone() -> None:
    inspected = {"a": InspectedContainer("a", "id", "exited", 0)}
    assert next_step(MachineSnapshot(["a", "b"], inspected, is_wanted=False)) == RemoveContainers()
    assert next_step(MachineSnapshot(["a", "b"], {}, is_wanted=False)) == DropMachineState()


def test_the_backoff_doubles_up_to_a_limit_and_is_reset_by_a_long_run() -> None:
    record, backoffs_s = EMPTY_RECORD, []
    for _ in range(7):
        record = record_start(record_exit(record, InspectedContainer("a", "id", "exited", 1), 0.0))
        backoffs_s.append(record.backoff_s)
    assert backoffs_s == [10.0, 20.0, 40.0, 80.0, 160.0, BACKOFF_MAX_S, BACKOFF_MAX_S]
    assert record.restarts == 7
    long = InspectedContainer(
        "a", "id", "exited", 1, started_s=1.0, finished_s=1.0 + RECOVERED_AFTER_S
    )
    assert record_exit(record, long, 2000.0).backoff_s == 10.0


@given(
    st.dictionaries(
        st.sampled_from(("a", "b")), st.sampled_from(("created", "running", "paused", "exited"))
    ),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_a_few_steps_settle_a_machine_from_any_state(
    found: dict[str, RunState], is_wanted: bool, can_create: bool, is_down: bool
) -> None:
    """The steps are applied to a model. A wanted machine is never removed."""
    states, now_s = dict(found), 0.0
    record = DOWN if is_down else EMPTY_RECORD
    for _ in range(12):
        step = decide(states, record, now_s, is_wanted=is_wanted, can_create=can_create)
        assert is_wanted or not isinstance(step, StartContainers | CreateContainers)
        assert not (is_wanted and isinstance(step, RemoveContainers))
        if isinstance(step, DropMachineState) or (
            isinstance(step, WaitForChange) and step.until_s is None
        ):
            return
        if isinstance(step, WaitForChange):
            now_s = step.until_s or now_s
        record = apply_to_model(states, record, step, now_s)
    raise AssertionError(f"still {step} with {states}")


def decide(
    states: dict[str, RunState],
    record: MachineRecord,
    now_s: float,
    *,
    is_wanted: bool,
    can_create: bool,
) -> Step:
    inspected = {
        n: InspectedContainer(n, n, s, 1 if s == "exited" else None) for n, s in states.items()
    }
    return next_step(
        MachineSnapshot(
            ["a", "b"], inspected, record, is_wanted=is_wanted, can_create=can_create, now_s=now_s
        )
    )


def apply_to_model(
    states: dict[str, RunState], record: MachineRecord, step: Step, now_s: float
) -> MachineRecord:
    match step:
        case CreateContainers():
            states.update(a="created", b="created")
        case StartContainers(names):
            states.update(dict.fromkeys(names, "running"))
            return record_start(record)
        case StopContainers(names):
            states.update(dict.fromkeys(names, "exited"))
        case RecordExit(name):
            return record_exit(record, InspectedContainer(name, name, "exited", 1), now_s)
        case RemoveContainers():
            states.clear()
        case _:
            return msgspec.structs.replace(record)
    return record


# --- suspension


def test_the_containers_of_a_suspended_machine_are_stopped_and_kept() -> None:
    suspended = record_suspension(EMPTY_RECORD)
    assert next_step(snapshot(suspended, a="running", b="paused")) == StopContainers(("a", "b"))
    assert next_step(snapshot(suspended, a="exited", b="running")) == StopContainers(("b",))
    assert next_step(snapshot(suspended, a="exited", b="exited")) == WaitForChange(), (
        "the exit of a suspended machine is a crash"
    )
    assert next_step(snapshot(suspended)) == WaitForChange()


def test_a_resumed_machine_is_started_after_all_its_containers_have_stopped() -> None:
    suspended = record_suspension(EMPTY_RECORD)
    ended = replace(snapshot(suspended, a="exited", b="exited"), is_resume_requested=True)
    assert next_step(ended) == ResumeContainers(("a", "b"))
    still_up = replace(snapshot(suspended, a="exited", b="running"), is_resume_requested=True)
    assert next_step(still_up) == StopContainers(("b",))
    never_created = replace(snapshot(suspended), is_resume_requested=True)
    assert next_step(never_created) == ResumeContainers(())


def test_a_suspension_counts_no_restart_and_ends_sleep_and_backoff() -> None:
    crashed = msgspec.structs.replace(DOWN, restarts=3, sleep_mode="stop")
    resumed = record_resumption(record_suspension(crashed))
    assert (resumed.is_suspended, resumed.sleep_mode, resumed.is_down) == (False, "", False)
    assert resumed.restarts == 3
    assert not resumed.was_woken, "a machine that had crashed is not proven to run"
    assert record_resumption(record_suspension(EMPTY_RECORD)).was_woken
