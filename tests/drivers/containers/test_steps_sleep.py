"""The steps by which a machine falls asleep and wakes, from any intermediate state."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from datum_compute.api.compute.instance import Probe, TcpSocket
from datum_compute.api.compute.scale_to_zero import SleepMode
from datum_compute.drivers.containers.container_spec import ContainerPlan, MachinePlan
from datum_compute.drivers.containers.inspection import InspectedContainer, RunState
from datum_compute.drivers.containers.machine import (
    EMPTY_RECORD,
    MachineRecord,
    MachineSnapshot,
    record_failed_wake,
    record_sleep,
    record_wake,
)
from datum_compute.drivers.containers.status import ReadinessResults, snapshot_state
from datum_compute.drivers.containers.steps import (
    PauseContainers,
    RecordExit,
    RecordSleep,
    StartContainers,
    Step,
    StopContainers,
    WaitForChange,
    WakeContainers,
    next_step,
)

PLAN = MachinePlan(containers=[ContainerPlan(name="a", image="web:1")])
PROBED = MachinePlan(
    containers=[
        ContainerPlan(name="a", image="web:1", readiness=Probe(tcp_socket=TcpSocket(port=80)))
    ]
)


def snapshot(
    record: MachineRecord = EMPTY_RECORD,
    *,
    is_wake_requested: bool = False,
    requested_mode: SleepMode | Literal[""] = "",
    **states: RunState,
) -> MachineSnapshot:
    inspected = {
        name: InspectedContainer(
            name, name, state, 0 if state == "exited" else None, started_at="then"
        )
        for name, state in states.items()
    }
    return MachineSnapshot(
        sorted(inspected),
        inspected,
        record,
        is_wake_requested=is_wake_requested,
        requested_sleep=requested_mode,
        now_s=50.0,
    )


@pytest.mark.parametrize(
    ("mode", "state", "step"),
    [
        ("pause", "running", PauseContainers(("a",))),
        ("pause", "paused", WaitForChange()),
        ("pause", "exited", WaitForChange()),
        ("stop", "running", StopContainers(("a",))),
        ("stop", "paused", StopContainers(("a",))),
        ("stop", "exited", WaitForChange()),
    ],
)
def test_a_sleeping_machine_is_paused_or_stopped_once(
    mode: SleepMode, state: RunState, step: Step
) -> None:
    asleep = record_sleep(EMPTY_RECORD, mode)
    assert next_step(snapshot(asleep, a=state)) == step
    assert (
        snapshot_state(PLAN, snapshot(asleep, a=state), ReadinessResults(), "").phase == "Sleeping"
    )


def test_only_a_running_machine_falls_asleep() -> None:
    """Otherwise an exit just before the request would not be recorded."""
    assert next_step(snapshot(requested_mode="stop", a="running")) == RecordSleep("stop")
    assert next_step(snapshot(requested_mode="stop", a="exited")) == RecordExit("a")
    assert next_step(snapshot(requested_mode="stop", a="running", b="exited")) == RecordExit("b")
    down = MachineRecord(is_down=True, start_after_s=60.0)
    assert next_step(snapshot(down, requested_mode="stop", a="exited")) == WaitForChange(60.0)


def test_a_wake_starts_the_containers_that_do_not_run() -> None:
    asleep = record_sleep(EMPTY_RECORD, "stop")
    assert next_step(snapshot(asleep, is_wake_requested=True, a="exited")) == WakeContainers(("a",))
    assert next_step(snapshot(asleep, is_wake_requested=True, a="running")) == WakeContainers(())
    assert next_step(snapshot(EMPTY_RECORD, is_wake_requested=True, a="paused")) == WakeContainers(
        ("a",)
    ), "paused by another client"
    assert next_step(snapshot(record_wake(asleep), a="running")) == WaitForChange(is_up=True)


def test_an_exit_is_a_crash_only_while_the_machine_is_awake() -> None:
    asleep = record_sleep(EMPTY_RECORD, "stop")
    assert next_step(snapshot(record_wake(asleep), a="exited")) == RecordExit("a")
    assert next_step(snapshot(asleep, a="exited")) == WaitForChange()


def test_a_machine_sleeps_and_wakes_as_a_whole() -> None:
    half = snapshot(record_sleep(EMPTY_RECORD, "pause"), a="exited", b="paused")
    assert next_step(half) == StopContainers(("b",))
    both = snapshot(
        record_sleep(EMPTY_RECORD, "pause"), is_wake_requested=True, a="exited", b="exited"
    )
    assert next_step(both) == WakeContainers(("a", "b"))


def test_a_machine_that_cannot_be_woken_is_restarted_after_the_backoff() -> None:
    failed = record_failed_wake(record_sleep(EMPTY_RECORD, "stop"), retry_at_s=60.0)
    assert next_step(snapshot(failed, a="exited")) == WaitForChange(60.0)
    late = msgspec.structs.replace(failed, start_after_s=0.0)
    assert next_step(snapshot(late, a="exited")) == StartContainers(("a",))


def test_a_woken_machine_is_reported_as_sleeping_until_it_is_ready_for_a_limited_time() -> None:
    up = snapshot(record_wake(record_sleep(EMPTY_RECORD, "pause")), a="running")
    waking = MachineSnapshot(
        up.container_names, up.inspected, up.record, shown_asleep_until_s=60.0, now_s=50.0
    )
    assert snapshot_state(PROBED, waking, ReadinessResults(), "").phase == "Sleeping"
    assert (
        snapshot_state(PROBED, waking, ReadinessResults(verdicts={"a": True}), "").phase
        == "Running"
    )
    late = MachineSnapshot(
        up.container_names, up.inspected, up.record, shown_asleep_until_s=60.0, now_s=60.0
    )
    result = snapshot_state(PROBED, late, ReadinessResults(), "")
    assert (result.phase, result.reason) == ("Running", "Starting")


def test_an_old_crash_does_not_delay_a_woken_machine() -> None:
    crashed = MachineRecord(exit_code=1, ended_s=10.0)
    woken = record_wake(record_sleep(crashed, "stop"))
    inspected = {"a": InspectedContainer("a", "a", "running", started_at="now", started_s=49.0)}
    assert (
        snapshot_state(
            PLAN, MachineSnapshot(["a"], inspected, crashed, now_s=50.0), ReadinessResults(), ""
        ).phase
        == "Failed"
    )
    assert (
        snapshot_state(
            PLAN, MachineSnapshot(["a"], inspected, woken, now_s=50.0), ReadinessResults(), ""
        ).phase
        == "Running"
    )


@given(
    st.dictionaries(st.sampled_from(("a", "b")), st.sampled_from(("running", "paused", "exited"))),
    st.sampled_from(("pause", "stop")),
    st.booleans(),
)
def test_a_few_steps_settle_a_sleeping_machine_from_any_state(
    found: dict[str, RunState], mode: SleepMode, is_wake_requested: bool
) -> None:
    states: dict[str, RunState] = {"a": "running", "b": "running", **found}
    record = record_sleep(EMPTY_RECORD, mode)
    for _ in range(6):
        step = next_step(
            snapshot(record, is_wake_requested=is_wake_requested, requested_mode="", **states)
        )
        match step:
            case PauseContainers(names):
                states.update(dict.fromkeys(names, "paused"))
            case StopContainers(names):
                states.update(dict.fromkeys(names, "exited"))
            case WakeContainers(names):
                states.update(dict.fromkeys(names, "running"))
                record, is_wake_requested = record_wake(record), False
            case WaitForChange(is_up=is_up):
                assert is_up == (not record.sleep_mode)
                return
            case _:
                raise AssertionError(f"{step} with {states}")
    raise AssertionError(f"not settled: {states}")
