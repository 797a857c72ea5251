"""Ready = Programmed and Available and no gates, and the true reason otherwise."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN, Condition, Verdict, decided
from datum_compute.api.instance import InstanceControl, SchedulingGate
from datum_compute.api.plane import cell_plane
from datum_compute.planning.readiness import plan_readiness, ready_condition
from datum_compute.testing.builders import NOW, an_instance

CELL = cell_plane("dfw")
GOOD = Verdict(TRUE, "Fine", "")


def conditions(**verdicts: Verdict) -> list[Condition]:
    return [decided(type_, v, generation=1, now=NOW) for type_, v in verdicts.items()]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({}, (FALSE, "PendingProgramming")),
        ({"Running": GOOD}, (FALSE, "PendingProgramming")),
        ({"Programmed": Verdict(UNKNOWN, "Pending", "")}, (FALSE, "PendingProgramming")),
        (
            {"Programmed": Verdict(FALSE, "ImageUnavailable", "no such image")},
            (FALSE, "ImageUnavailable"),
        ),
        ({"Programmed": GOOD}, (FALSE, "Pending")),
        ({"Programmed": GOOD, "Available": Verdict(UNKNOWN, "Odd", "?")}, (UNKNOWN, "Odd")),
        ({"Programmed": GOOD, "Available": Verdict(TRUE, "Asleep", "")}, (TRUE, "Available")),
    ],
)
def test_ready_follows_the_conditions(found: dict[str, Verdict], expected: tuple[str, str]) -> None:
    bare = an_instance(0)
    status = msgspec.structs.replace(bare.status, conditions=conditions(**found))
    ready = ready_condition(msgspec.structs.replace(bare, status=status), NOW)
    assert expected == (ready.status, ready.reason)


def test_a_gate_holds_whatever_else_is_true_and_is_named() -> None:
    instance = an_instance(0)
    gates = InstanceControl(scheduling_gates=[SchedulingGate(name="Quota")])
    spec = msgspec.structs.replace(instance.spec, controller=gates)
    ready = ready_condition(msgspec.structs.replace(instance, spec=spec), NOW)
    assert (ready.status, ready.reason) == (FALSE, "SchedulingGatesPresent")
    assert "Quota" in ready.message


def test_an_instance_that_is_being_removed_is_not_ready() -> None:
    ready = ready_condition(an_instance(0, terminating=True), NOW)
    assert (ready.status, ready.reason) == (FALSE, "Stopping")


def test_the_transition_time_moves_only_with_the_status() -> None:
    instance = an_instance(0)
    (write,) = plan_readiness(CELL, instance, "2027-01-01T00:00:00Z").actions
    (ready,) = [c for c in write.status["conditions"] if c["type"] == "Ready"]  # type: ignore[union-attr]
    assert ready["lastTransitionTime"] == NOW
