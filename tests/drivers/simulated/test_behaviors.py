"""The state of a simulated machine as a function of its image and of time."""

from __future__ import annotations

import itertools

import pytest

from datum_compute.drivers.driver import (
    MachineState,
)
from datum_compute.drivers.simulated.behaviors import (
    BEHAVIORS,
    DEFAULT_BEHAVIOR,
    SimulatedMachine,
    behavior_of,
    machine_state,
    next_change_s,
    wake_machine,
)


def a_machine(image: str = "web:1", **fields: object) -> SimulatedMachine:
    """Return a machine that runs from second 100."""
    values: dict[str, object] = {"number": 0, "image": image, "runs_from_s": 100.0, **fields}
    return SimulatedMachine(**values)  # type: ignore[arg-type]


def state_at(machine: SimulatedMachine, now_s: float) -> MachineState:
    return machine_state(machine, now_s)


def test_only_the_registry_of_an_image_chooses_the_behavior() -> None:
    for registry, behavior in BEHAVIORS.items():
        assert behavior_of(f"{registry}/team/web:1") is behavior
        assert behavior_of(f"ghcr.io/{registry}/web:1") is DEFAULT_BEHAVIOR
    assert behavior_of("web:1") is DEFAULT_BEHAVIOR


@pytest.mark.parametrize(
    ("image", "now_s", "phase", "reason", "exit_code"),
    [
        ("web:1", 99, "Pending", "Starting", None),
        ("web:1", 100, "Running", "", None),
        ("fail.example/web:1", 0, "Failed", "ImageUnavailable", None),
        ("config.example/web:1", 0, "Failed", "ConfigurationError", None),
        ("stuck.example/web:1", 9000, "Pending", "Provisioning", None),
        ("crash.example/web:1", 99, "Pending", "Starting", None),
        ("crash.example/web:1", 9000, "Failed", "InstanceCrashing", 1),
        ("flaky.example/web:1", 129, "Failed", "InstanceCrashing", 1),
        ("flaky.example/web:1", 130, "Running", "", 1),
        ("exit.example/web:1", 100, "Stopped", "Stopped", 0),
        ("dozing.example/web:1", 104, "Running", "", None),
        ("dozing.example/web:1", 105, "Sleeping", "", None),
        ("dozing.example/web:1", 110, "Running", "", None),
        ("late.example/web:1", 105, "Running", "", None),
        ("late.example/web:1", 106, "Failed", "InstanceCrashing", 1),
        ("late.example/web:1", 116, "Running", "", 1),
        ("late.example/web:1", 9000, "Failed", "InstanceCrashing", 1),
        ("unhealthy.example/web:1", 106, "Failed", "InstanceCrashing", 137),
        ("unhealthy.example/web:1", 500, "Running", "", 137),
        ("unready.example/web:1", 9000, "Running", "NotReady", None),
        ("flapping.example/web:1", 107, "Running", "", None),
        ("flapping.example/web:1", 108, "Running", "NotReady", None),
        ("flapping.example/web:1", 116, "Running", "", None),
    ],
)
def test_the_state_of_a_machine_depends_on_its_image_and_the_time(
    image: str, now_s: float, phase: str, reason: str, exit_code: int | None
) -> None:
    state = state_at(a_machine(image), now_s)
    assert (state.phase, state.reason, state.exit_code) == (phase, reason, exit_code)


def test_a_flaky_machine_reports_its_restarts_and_its_last_start() -> None:
    running = state_at(a_machine("flaky.example/web:1"), 500)
    assert (running.restarts, running.started_at) == (2, "1970-01-01T00:02:10Z")


@pytest.mark.parametrize(
    ("number", "addresses", "expected"),
    [
        (0, [], ("10.64.0.1",)),
        (251, [], ("10.64.1.2",)),
        (251, ["10.128.0.5"], ("10.128.0.5",)),
    ],
)
def test_a_machine_without_assigned_addresses_gets_one_from_its_number(
    number: int, addresses: list[str], expected: tuple[str, ...]
) -> None:
    assert state_at(a_machine(number=number, addresses=addresses), 100).addresses == expected


@pytest.mark.parametrize(
    ("machine", "now_s", "expected"),
    [
        pytest.param(a_machine(), 0, 100, id="starts"),
        pytest.param(a_machine(), 100, None, id="runs"),
        pytest.param(a_machine(gone_from_s=300.0), 100, 300, id="is-removed"),
        pytest.param(a_machine(asleep_from_s=200.0, gone_from_s=300.0), 100, 200, id="sleeps"),
        pytest.param(a_machine("flaky.example/web:1"), 100, 110, id="restarts"),
        pytest.param(a_machine("flaky.example/web:1"), 130, None, id="restarted"),
        pytest.param(a_machine("dozing.example/web:1"), 107, 110, id="wakes"),
        pytest.param(a_machine("late.example/web:1"), 100, 106, id="crashes"),
        pytest.param(a_machine("late.example/web:1"), 106, 116, id="restarts-after-crash"),
        pytest.param(a_machine("flapping.example/web:1"), 101, 108, id="is-not-ready"),
    ],
)
def test_the_next_change_is_the_earliest_in_the_future(
    machine: SimulatedMachine, now_s: float, expected: float | None
) -> None:
    assert next_change_s(machine, now_s) == expected


@pytest.mark.parametrize(
    ("image", "asleep_from_s"), [("web:1", None), ("sleepy.example/web:1", 205.0)]
)
def test_a_machine_that_is_woken_sleeps_again_only_if_its_behavior_requires_it(
    image: str, asleep_from_s: float | None
) -> None:
    asleep = a_machine(image, asleep_from_s=150.0)
    assert state_at(asleep, 200).phase == "Sleeping"
    woken = wake_machine(asleep, 200.0)
    assert woken.asleep_from_s == asleep_from_s
    assert state_at(woken, 200).phase == "Running"


def test_a_crash_loop_backs_off() -> None:
    """After 10, 20, 40, 80 and 160 seconds, then every five minutes."""
    machine = SimulatedMachine(number=0, image="crash.example/web:1", runs_from_s=0.0)
    times = [0.0]
    while len(times) < 8:
        following = next_change_s(machine, times[-1])
        assert following is not None
        times.append(following)
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    assert gaps == [10, 20, 40, 80, 160, 300, 300]
    assert [machine_state(machine, time).restarts for time in times] == list(range(8))
    assert machine_state(machine, times[-1] - 1).restarts == 6
