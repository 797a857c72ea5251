"""The removal of scheduling gates, and the Ready condition."""

from __future__ import annotations

import msgspec
import pytest
from msgspec.structs import replace

from datum_compute.api.compute.instance import Instance, InstanceControl, SchedulingGate
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    UNKNOWN,
    Condition,
    ConditionValue,
    find_condition,
    make_condition,
)
from datum_compute.api.planes import cell_plane
from datum_compute.planning.plan import PatchStatus, RemoveListItems
from datum_compute.planning.rollout import gates
from datum_compute.planning.rollout.gates import (
    Decision,
    initial_gates,
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
    """Return the reasons that the pass records, by condition, and the gates that it removes."""
    conditions: dict[str, str] = {}
    removed: list[str] = []
    for action in plan_readiness(CELL, instance, decisions, NOW).actions:
        if isinstance(action, PatchStatus):
            assert not removed, "the condition is recorded before the gate is removed"
            conditions = {c["type"]: c["reason"] for c in action.status["conditions"]}
        if isinstance(action, RemoveListItems):
            assert action.uid == instance.metadata.uid
            removed += [f"{item.path} {item.key}={item.value}" for item in action.items]
    return conditions, removed


def test_a_gate_is_removed_in_the_pass_that_records_its_condition() -> None:
    conditions, removed = written(gated("Network", "Quota"), GRANTED)
    assert conditions["QuotaGranted"] == "QuotaAvailable"
    assert conditions["Ready"] == "SchedulingGatesPresent"
    assert removed == ["/spec/controller/schedulingGates/1 name=Quota"]


def test_all_clear_gates_are_removed_in_one_pass() -> None:
    conditions, removed = written(gated("Network", "Quota"), GRANTED, ATTACHED)
    assert conditions["Ready"] == "PendingProgramming"
    assert [line.rpartition("=")[2] for line in removed] == ["Network", "Quota"]


@pytest.mark.parametrize("status", [FALSE, UNKNOWN])
def test_a_decision_that_is_not_true_keeps_the_gate_and_is_rechecked(status: str) -> None:
    value = ConditionValue(status, "QuotaExceeded", "11 of 10")  # type: ignore[arg-type]
    plan = plan_readiness(CELL, gated("Quota"), [replace(DENIED, value=value)], NOW)
    assert not [a for a in plan.actions if isinstance(a, RemoveListItems)]
    assert plan.requeue_after_s == pytest.approx(15.0, rel=0.1)


def test_an_unknown_gate_is_never_removed() -> None:
    conditions, removed = written(gated("Moonphase", "Quota"), GRANTED)
    assert [line.rpartition("=")[2] for line in removed] == ["Quota"]
    assert conditions["Ready"] == "SchedulingGatesPresent"


def recorded_earlier(instance: Instance, *decisions: Decision) -> Instance:
    conditions = gates.conditions_with_decisions(instance, decisions, NOW)
    status = msgspec.structs.replace(instance.status, conditions=conditions)
    return msgspec.structs.replace(instance, status=status)


def test_a_gate_left_by_a_crash_is_removed_by_the_next_pass() -> None:
    _, removed = written(recorded_earlier(gated("Quota"), GRANTED), GRANTED)
    assert removed


def test_a_granted_gate_stays_granted() -> None:
    """An outage of the quota service must not stop running instances."""
    running = recorded_earlier(an_instance(0), GRANTED)
    conditions = gates.conditions_with_decisions(running, [DENIED], NOW)
    found = find_condition(conditions, "QuotaGranted")
    assert found is not None
    assert (found.status, found.reason) == (TRUE, "QuotaAvailable")


def test_a_removed_gate_is_not_recorded_again_for_a_new_generation() -> None:
    earlier = recorded_earlier(an_instance(0), GRANTED)
    metadata = msgspec.structs.replace(earlier.metadata, generation=9)
    moved = msgspec.structs.replace(earlier, metadata=metadata)
    assert gates.conditions_with_decisions(moved, [GRANTED], NOW) == earlier.status.conditions


def test_a_terminating_instance_keeps_its_gates() -> None:
    instance = gated("Quota")
    metadata = msgspec.structs.replace(instance.metadata, deletion_timestamp=NOW)
    _, removed = written(msgspec.structs.replace(instance, metadata=metadata), GRANTED)
    assert not removed


def test_a_new_instance_gets_the_gates_that_apply_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    listed = (("Network", lambda _: True), ("ReferencedData", lambda _: False))
    monkeypatch.setattr(gates, "INITIAL_GATES", listed)
    assert [gate.name for gate in initial_gates(a_deployment())] == ["Network"]


def test_an_instance_without_control_fields_has_no_gates() -> None:
    instance = an_instance(0)
    spec = msgspec.structs.replace(instance.spec, controller=InstanceControl())
    assert gates.gate_names(msgspec.structs.replace(instance, spec=spec)) == []


GOOD = ConditionValue(TRUE, "Fine", "")
PENDING = ConditionValue(UNKNOWN, "Pending", "")


def with_conditions(gates: tuple[str, ...] = (), /, **values: ConditionValue) -> Instance:
    bare = an_instance(0)
    found: list[Condition] = [
        make_condition(type_, v, generation=1, now=NOW) for type_, v in values.items()
    ]
    control = InstanceControl(scheduling_gates=[SchedulingGate(name=name) for name in gates])
    return msgspec.structs.replace(
        bare,
        spec=msgspec.structs.replace(bare.spec, controller=control),
        status=msgspec.structs.replace(bare.status, conditions=found),
    )


def cause(reason: str, status: str = FALSE) -> ConditionValue:
    return ConditionValue(status, reason, f"about {reason}")  # type: ignore[arg-type]


UNGATED = [
    ("no conditions", {}, (FALSE, "PendingProgramming")),
    ("a stale Running is ignored", {"Running": GOOD}, (FALSE, "PendingProgramming")),
    (
        "a stale Running is ignored when it is False",
        {"Running": cause("Odd")},
        (FALSE, "PendingProgramming"),
    ),
    ("Pending is no cause", {"Programmed": PENDING}, (FALSE, "PendingProgramming")),
    (
        "the reason of Programmed is used",
        {"Programmed": cause("ImageUnavailable")},
        (FALSE, "ImageUnavailable"),
    ),
    (
        "an instance does not serve while programming is in progress",
        {"Programmed": cause("ProgrammingInProgress", UNKNOWN), "Available": cause("Starting")},
        (FALSE, "ProgrammingInProgress"),
    ),
    (
        "the cause of Available is used while programming is in progress",
        {"Programmed": cause("ProgrammingInProgress", UNKNOWN), "Available": cause("Provisioning")},
        (FALSE, "Provisioning"),
    ),
    (
        "an unknown reason of a provider passes through with its status",
        {"Programmed": cause("QuantumFoam", UNKNOWN)},
        (UNKNOWN, "QuantumFoam"),
    ),
    (
        "an image error on Available is used while Programmed is Unknown",
        {"Programmed": cause("Provisioning", UNKNOWN), "Available": cause("ImageUnavailable")},
        (FALSE, "ImageUnavailable"),
    ),
    (
        "Pending on Available does not replace the reason of Programmed",
        {"Programmed": cause("Provisioning"), "Available": PENDING},
        (FALSE, "Provisioning"),
    ),
    (
        "of equal ranks the other condition comes before Programmed",
        {"Programmed": cause("InstanceCrashing"), "Available": cause("ImageUnavailable")},
        (FALSE, "ImageUnavailable"),
    ),
    (
        "a network failure outranks all",
        {"Programmed": cause("ImageUnavailable"), "NetworkReady": cause("NetworkFailedToCreate")},
        (FALSE, "NetworkFailedToCreate"),
    ),
    (
        "an undecided quota is no cause",
        {"Programmed": PENDING, "QuotaGranted": cause("QuotaNoBudget", UNKNOWN)},
        (FALSE, "PendingProgramming"),
    ),
    (
        "a quota denied later does not change Ready",
        {"Programmed": GOOD, "Available": GOOD, "QuotaGranted": cause("QuotaExceeded")},
        (TRUE, "Available"),
    ),
    ("Available is missing", {"Programmed": GOOD}, (FALSE, "Pending")),
    (
        "the reason of Available is used when it is Unknown",
        {"Programmed": GOOD, "Available": cause("Odd", UNKNOWN)},
        (UNKNOWN, "Odd"),
    ),
    (
        "a sleeping instance is ready",
        {"Programmed": GOOD, "Available": cause("Asleep", TRUE)},
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
    ("no conditions", {}, (FALSE, "SchedulingGatesPresent")),
    ("other conditions are True", {"Programmed": GOOD, "Available": GOOD},
     (FALSE, "SchedulingGatesPresent")),
    ("quota is undecided", {"QuotaGranted": cause("PendingEvaluation", UNKNOWN)},
     (FALSE, "SchedulingGatesPresent")),
    ("the project has no quota", {"QuotaGranted": cause("QuotaNoBudget", UNKNOWN)},
     (FALSE, "PendingQuota")),
    ("quota is denied", {"QuotaGranted": cause("QuotaExceeded")}, (FALSE, "PendingQuota")),
    ("data outranks quota",
     {"QuotaGranted": cause("QuotaExceeded"), "ReferencedDataReady": cause("Resolving", UNKNOWN)},
     (UNKNOWN, "Resolving")),
    ("a source error outranks waiting",
     {"ReferencedDataReady": cause("SourceNotFound"), "QuotaGranted": cause("QuotaExceeded")},
     (FALSE, "SourceNotFound")),
    ("a network failure outranks all",
     {"ReferencedDataReady": cause("SourceNotFound"),
      "NetworkReady": cause("NetworkFailedToCreate")},
     (FALSE, "NetworkFailedToCreate")),
]  # fmt: skip


@pytest.mark.parametrize(("case", "found", "expected"), GATED)
def test_a_gated_instance_reports_the_cause(
    case: str, found: dict[str, ConditionValue], expected: tuple[str, str]
) -> None:
    ready = observed_ready(with_conditions(("Quota",), **found), NOW)
    assert expected == (ready.status, ready.reason), case


def test_ready_has_the_message_of_the_cause() -> None:
    denied = ConditionValue(FALSE, "QuotaExceeded", "11 of 10 instances")
    ready = observed_ready(with_conditions(("Quota",), QuotaGranted=denied), NOW)
    assert ready.message == "11 of 10 instances"


def test_ready_names_all_gates_including_unknown_ones() -> None:
    ready = observed_ready(with_conditions(("Network", "Moonphase")), NOW)
    assert ready.message == "Scheduling gates present: Network, Moonphase"


def test_an_instance_that_is_being_removed_is_not_ready() -> None:
    ready = observed_ready(an_instance(0, terminating=True), NOW)
    assert (ready.status, ready.reason) == (FALSE, "Stopping")


def test_the_transition_time_changes_only_with_the_status() -> None:
    (write,) = plan_readiness(CELL, an_instance(0), (), "2027-01-01T00:00:00Z").actions
    assert isinstance(write, PatchStatus)
    (ready,) = [c for c in write.status["conditions"] if c["type"] == "Ready"]
    assert ready["lastTransitionTime"] == LONG_AGO


def test_ready_has_the_current_generation() -> None:
    instance = an_instance(0)
    metadata = msgspec.structs.replace(instance.metadata, generation=5)
    (write,) = plan_readiness(
        CELL, msgspec.structs.replace(instance, metadata=metadata), (), NOW
    ).actions
    assert isinstance(write, PatchStatus)
    (ready,) = [c for c in write.status["conditions"] if c["type"] == "Ready"]
    assert ready["observedGeneration"] == 5
