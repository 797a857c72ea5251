"""Ready = Programmed and Available and no gates, and the true reason otherwise."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.conditions import FALSE, TRUE, UNKNOWN, Condition, Verdict, decided
from datum_compute.api.instance import Instance, InstanceControl, SchedulingGate
from datum_compute.api.plane import cell_plane
from datum_compute.planning.plan import PatchStatus
from datum_compute.planning.rollout.gates import observed_ready, plan_readiness
from testkit.builders import LONG_AGO, NOW, an_instance

CELL = cell_plane("dfw")
GOOD = Verdict(TRUE, "Fine", "")
UNTOLD = Verdict(UNKNOWN, "Pending", "")


def with_conditions(gates: tuple[str, ...] = (), /, **verdicts: Verdict) -> Instance:
    bare = an_instance(0)
    found: list[Condition] = [
        decided(type_, v, generation=1, now=NOW) for type_, v in verdicts.items()
    ]
    control = InstanceControl(scheduling_gates=[SchedulingGate(name=name) for name in gates])
    return msgspec.structs.replace(
        bare,
        spec=msgspec.structs.replace(bare.spec, controller=control),
        status=msgspec.structs.replace(bare.status, conditions=found),
    )


def said(reason: str, status: str = FALSE) -> Verdict:
    return Verdict(status, reason, f"about {reason}")  # type: ignore[arg-type]


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
    case: str, found: dict[str, Verdict], expected: tuple[str, str]
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
    case: str, found: dict[str, Verdict], expected: tuple[str, str]
) -> None:
    ready = observed_ready(with_conditions(("Quota",), **found), NOW)
    assert expected == (ready.status, ready.reason), case


def test_the_message_of_the_cause_is_passed_on_verbatim() -> None:
    denied = Verdict(FALSE, "QuotaExceeded", "11 of 10 instances")
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
