"""Gates: recorded and removed in one pass, by name, and never brought back.

Ready = Programmed and Available and no gates, and the true reason otherwise.
"""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionValue,
    find_condition,
    make_condition,
)
from datum_compute.api.instance import Instance, InstanceControl, SchedulingGate
from datum_compute.api.plane import cell_plane
from datum_compute.planning.plan import PatchStatus, RemoveListItems
from datum_compute.planning.rollout import gates
from datum_compute.planning.rollout.gates import (
    Decision,
    first_gates,
    observed_ready,
    plan_readiness,
)
from testkit.builders import LONG_AGO, NOW, a_deployment, an_instance

CELL = cell_plane("dfw")
GRANTED = Decision("Quota", "QuotaGranted", ConditionValue(TRUE, "QuotaAvailable", "granted"))
DENIED = Decision("Quota", "QuotaGranted", ConditionValue(FALSE, "QuotaExceeded", "11 of 10"), 15.0)
ATTACHED = Decision("Network", "NetworkReady", ConditionValue(TRUE, "Ready", "10.0.0.2"))


def gated(*names: str) -> Instance:
    instance = an_instance(0, ready=False)
    control = msgspec.structs.replace(
        instance.spec.controller, scheduling_gates=[SchedulingGate(name=name) for name in names]
    )
    return msgspec.structs.replace(
        instance, spec=msgspec.structs.replace(instance.spec, controller=control)
    )


def written(instance: Instance, *decisions: Decision) -> tuple[dict[str, str], list[str]]:
    """What the pass records, condition by condition, and the gates that it removes."""
    conditions: dict[str, str] = {}
    removed: list[str] = []
    for action in plan_readiness(CELL, instance, decisions, NOW).actions:
        if isinstance(action, PatchStatus):
            assert not removed, "the condition is recorded before the gate goes"
            conditions = {c["type"]: c["reason"] for c in action.status["conditions"]}
        if isinstance(action, RemoveListItems):
            assert action.uid == instance.metadata.uid
            removed += [f"{item.path} {item.key}={item.value}" for item in action.items]
    return conditions, removed


def test_a_gate_goes_in_the_pass_that_records_its_condition() -> None:
    conditions, removed = written(gated("Network", "Quota"), GRANTED)
    assert conditions["QuotaGranted"] == "QuotaAvailable"
    assert conditions["Ready"] == "SchedulingGatesPresent"
    assert removed == ["/spec/controller/schedulingGates/1 name=Quota"]


def test_all_gates_that_are_clear_go_together() -> None:
    conditions, removed = written(gated("Network", "Quota"), GRANTED, ATTACHED)
    assert conditions["Ready"] == "PendingProgramming"
    assert [line.rpartition("=")[2] for line in removed] == ["Network", "Quota"]


@pytest.mark.parametrize("status", [FALSE, UNKNOWN])
def test_a_decision_that_is_not_true_keeps_the_gate_and_is_looked_at_again(status: str) -> None:
    verdict = ConditionValue(status, "QuotaExceeded", "11 of 10")  # type: ignore[arg-type]
    plan = plan_readiness(CELL, gated("Quota"), [replace(DENIED, verdict=verdict)], NOW)
    assert not [a for a in plan.actions if isinstance(a, RemoveListItems)]
    assert plan.requeue_after_s == pytest.approx(15.0, rel=0.1)


def test_a_gate_that_nobody_knows_stays_whatever_is_decided() -> None:
    conditions, removed = written(gated("Moonphase", "Quota"), GRANTED)
    assert [line.rpartition("=")[2] for line in removed] == ["Quota"]
    assert conditions["Ready"] == "SchedulingGatesPresent"


def recorded_earlier(instance: Instance, *decisions: Decision) -> Instance:
    conditions = gates.recorded(instance, decisions, NOW)
    status = msgspec.structs.replace(instance.status, conditions=conditions)
    return msgspec.structs.replace(instance, status=status)


def test_a_crash_between_condition_and_gate_is_made_good_by_the_next_pass() -> None:
    _, removed = written(recorded_earlier(gated("Quota"), GRANTED), GRANTED)
    assert removed


def test_what_was_granted_stays_granted() -> None:
    """An outage of the quota service must not take down what runs."""
    running = recorded_earlier(an_instance(0), GRANTED)
    conditions = gates.recorded(running, [DENIED], NOW)
    found = find_condition(conditions, "QuotaGranted")
    assert found is not None
    assert (found.status, found.reason) == (TRUE, "QuotaAvailable")


def test_a_gate_that_is_gone_costs_no_write_when_the_generation_moves() -> None:
    earlier = recorded_earlier(an_instance(0), GRANTED)
    metadata = msgspec.structs.replace(earlier.metadata, generation=9)
    moved = msgspec.structs.replace(earlier, metadata=metadata)
    assert gates.recorded(moved, [GRANTED], NOW) == earlier.status.conditions


def test_a_terminating_instance_keeps_its_gates() -> None:
    instance = gated("Quota")
    metadata = msgspec.structs.replace(instance.metadata, deletion_timestamp=NOW)
    _, removed = written(msgspec.structs.replace(instance, metadata=metadata), GRANTED)
    assert not removed


def test_a_new_instance_gets_the_gates_that_apply_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = (("Network", lambda _: True), ("ReferencedData", lambda _: False))
    monkeypatch.setattr(gates, "ON_NEW_INSTANCES", listed)
    assert [gate.name for gate in first_gates(a_deployment())] == ["Network"]


def test_an_instance_without_control_fields_has_no_gates() -> None:
    instance = an_instance(0)
    spec = msgspec.structs.replace(instance.spec, controller=InstanceControl())
    assert gates.gate_names(msgspec.structs.replace(instance, spec=spec)) == []


GOOD = ConditionValue(TRUE, "Fine", "")
UNTOLD = ConditionValue(UNKNOWN, "Pending", "")


def with_conditions(gates: tuple[str, ...] = (), /, **verdicts: ConditionValue) -> Instance:
    bare = an_instance(0)
    found: list[Condition] = [
        make_condition(type_, v, generation=1, now=NOW) for type_, v in verdicts.items()
    ]
    control = InstanceControl(scheduling_gates=[SchedulingGate(name=name) for name in gates])
    return msgspec.structs.replace(
        bare,
        spec=msgspec.structs.replace(bare.spec, controller=control),
        status=msgspec.structs.replace(bare.status, conditions=found),
    )


def said(reason: str, status: str = FALSE) -> ConditionValue:
    return ConditionValue(status, reason, f"about {reason}")  # type: ignore[arg-type]


UNGATED = [
    ("nothing is known", {}, (FALSE, "PendingProgramming")),
    ("a stale Running is not believed", {"Running": GOOD}, (FALSE, "PendingProgramming")),
    (
        "nor does it say anything when it is False",
        {"Running": said("Odd")},
        (FALSE, "PendingProgramming"),
    ),
    ("Pending says nothing", {"Programmed": UNTOLD}, (FALSE, "PendingProgramming")),
    (
        "Programmed speaks for itself",
        {"Programmed": said("ImageUnavailable")},
        (FALSE, "ImageUnavailable"),
    ),
    (
        "an unknown reason of a provider passes through with its status",
        {"Programmed": said("QuantumFoam", UNKNOWN)},
        (UNKNOWN, "QuantumFoam"),
    ),
    (
        "an image error on Available speaks while Programmed is Unknown",
        {"Programmed": said("Provisioning", UNKNOWN), "Available": said("ImageUnavailable")},
        (FALSE, "ImageUnavailable"),
    ),
    (
        "Pending on Available never displaces what Programmed says",
        {"Programmed": said("Provisioning"), "Available": UNTOLD},
        (FALSE, "Provisioning"),
    ),
    (
        "of equals the other condition comes before Programmed",
        {"Programmed": said("InstanceCrashing"), "Available": said("ImageUnavailable")},
        (FALSE, "ImageUnavailable"),
    ),
    (
        "a network failure outranks all",
        {"Programmed": said("ImageUnavailable"), "NetworkReady": said("NetworkFailedToCreate")},
        (FALSE, "NetworkFailedToCreate"),
    ),
    (
        "an undecided quota does not leak",
        {"Programmed": UNTOLD, "QuotaGranted": said("QuotaNoBudget", UNKNOWN)},
        (FALSE, "PendingProgramming"),
    ),
    (
        "a quota denied later takes nothing down",
        {"Programmed": GOOD, "Available": GOOD, "QuotaGranted": said("QuotaExceeded")},
        (TRUE, "Available"),
    ),
    ("Available is missing", {"Programmed": GOOD}, (FALSE, "Pending")),
    (
        "Available speaks for itself, also when Unknown",
        {"Programmed": GOOD, "Available": said("Odd", UNKNOWN)},
        (UNKNOWN, "Odd"),
    ),
    (
        "asleep is ready to serve",
        {"Programmed": GOOD, "Available": said("Asleep", TRUE)},
        (TRUE, "Available"),
    ),
]  # fmt: skip


@pytest.mark.parametrize(("case", "found", "expected"), UNGATED)
def test_ready_follows_the_conditions(
    case: str, found: dict[str, ConditionValue], expected: tuple[str, str]
) -> None:
    ready = observed_ready(with_conditions(**found), NOW)
    assert expected == (ready.status, ready.reason), case


GATED = [
    ("nothing is known", {}, (FALSE, "SchedulingGatesPresent")),
    ("whatever else is true", {"Programmed": GOOD, "Available": GOOD},
     (FALSE, "SchedulingGatesPresent")),
    ("quota is undecided", {"QuotaGranted": said("QuotaNoBudget", UNKNOWN)},
     (FALSE, "SchedulingGatesPresent")),
    ("quota is denied", {"QuotaGranted": said("QuotaExceeded")}, (FALSE, "PendingQuota")),
    ("data outranks quota",
     {"QuotaGranted": said("QuotaExceeded"), "ReferencedDataReady": said("Resolving", UNKNOWN)},
     (UNKNOWN, "Resolving")),
    ("a source error outranks waiting",
     {"ReferencedDataReady": said("SourceNotFound"), "QuotaGranted": said("QuotaExceeded")},
     (FALSE, "SourceNotFound")),
    ("a network failure outranks all",
     {"ReferencedDataReady": said("SourceNotFound"), "NetworkReady": said("NetworkFailedToCreate")},
     (FALSE, "NetworkFailedToCreate")),
]  # fmt: skip


@pytest.mark.parametrize(("case", "found", "expected"), GATED)
def test_a_gated_instance_says_what_holds_it(
    case: str, found: dict[str, ConditionValue], expected: tuple[str, str]
) -> None:
    ready = observed_ready(with_conditions(("Quota",), **found), NOW)
    assert expected == (ready.status, ready.reason), case


def test_the_message_of_the_cause_is_passed_on_verbatim() -> None:
    denied = ConditionValue(FALSE, "QuotaExceeded", "11 of 10 instances")
    ready = observed_ready(with_conditions(("Quota",), QuotaGranted=denied), NOW)
    assert ready.message == "11 of 10 instances"


def test_gates_are_named_also_those_nobody_knows() -> None:
    ready = observed_ready(with_conditions(("Network", "Moonphase")), NOW)
    assert ready.message == "Scheduling gates present: Network, Moonphase"


def test_an_instance_that_is_being_removed_is_not_ready() -> None:
    ready = observed_ready(an_instance(0, terminating=True), NOW)
    assert (ready.status, ready.reason) == (FALSE, "Stopping")


def test_the_transition_time_moves_only_with_the_status() -> None:
    (write,) = plan_readiness(CELL, an_instance(0), (), "2027-01-01T00:00:00Z").actions
    assert isinstance(write, PatchStatus)
    (ready,) = [c for c in write.status["conditions"] if c["type"] == "Ready"]
    assert ready["lastTransitionTime"] == LONG_AGO


def test_ready_speaks_of_the_present_generation() -> None:
    instance = an_instance(0)
    metadata = msgspec.structs.replace(instance.metadata, generation=5)
    (write,) = plan_readiness(
        CELL, msgspec.structs.replace(instance, metadata=metadata), (), NOW
    ).actions
    assert isinstance(write, PatchStatus)
    (ready,) = [c for c in write.status["conditions"] if c["type"] == "Ready"]
    assert ready["observedGeneration"] == 5
