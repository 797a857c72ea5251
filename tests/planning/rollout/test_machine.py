"""The steps of a Server's machine, and the status that follows from an observation."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from msgspec import structs

from datum_compute.api import labels
from datum_compute.api.compute.data_sources import PinnedData
from datum_compute.api.compute.instance import ImageRecord, Instance
from datum_compute.api.compute.referenced_data import Reference, Source
from datum_compute.api.compute.scale_to_zero import Wake
from datum_compute.api.compute.server import Phase, Server, ServerSpec, ServerStatus
from datum_compute.api.core import ConfigMap
from datum_compute.api.kinds import SERVER
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import cell_plane
from datum_compute.planning.plan import Patch, PatchStatus
from datum_compute.planning.rollout.machine import (
    RECHECK_S,
    SETTLED_S,
    UNSETTLED_S,
    MachineStep,
    confirms_not_ready,
    failed_status,
    first_step,
    machine_id_of,
    machine_serves,
    needs_confirmation,
    observed_status,
    orphan_machines,
    plan_machine_release,
    plan_server_status,
    status_before_start,
    step_after_observation,
)
from datum_compute.planning.rollout.referenced_data import ObservedSources
from testkit.builders import an_instance, refused_by_quota

CELL = cell_plane("dfw")
WAKE = Wake(at="2026-01-01T00:00:00Z")
SETTINGS = Source("ConfigMap", "settings")


@dataclass(frozen=True)
class Report:
    """What a driver reports."""

    phase: Phase
    reason: str = ""
    message: str = ""
    restarts: int = 0
    exit_code: int | None = None
    started_at: str | None = None
    addresses: tuple[str, ...] = ()
    last_lines: tuple[str, ...] = ()
    images: tuple[ImageRecord, ...] = ()
    last_wake: Wake | None = None
    spec_fingerprint: str = ""
    is_recovering: bool = False
    is_suspended: bool = False


UNKNOWN = Report("Unknown", "NotObserved", "the engine does not respond")


def a_server(
    status: ServerStatus | None = None,
    *,
    finalizers: tuple[str, ...] = (labels.DRIVER_FINALIZER,),
    deleted: str | None = None,
    uid: str = "uid-1",
) -> Server:
    return Server(
        metadata=ObjectMeta(
            name="web-0",
            namespace="default",
            uid=uid,
            generation=3,
            finalizers=list(finalizers),
            deletion_timestamp=deleted,
        ),
        spec=ServerSpec(instance_type="d1", template_hash="hash", containers=[]),
        status=status or ServerStatus(),
    )


@pytest.mark.parametrize(
    ("server", "step"),
    [
        (a_server(), MachineStep.OBSERVE),
        (a_server(finalizers=()), MachineStep.ADD_FINALIZER),
        (a_server(deleted="2026-01-01T00:00:00Z"), MachineStep.REMOVE),
        (a_server(deleted="2026-01-01T00:00:00Z", finalizers=()), MachineStep.REMOVE),
    ],
    ids=["ready", "no finalizer", "terminating", "terminating without finalizer"],
)
def test_first_step(server: Server, step: MachineStep) -> None:
    assert first_step(server) is step


@pytest.mark.parametrize(
    ("phase", "has_machine", "step"),
    [
        ("Pending", True, MachineStep.REPORT),
        ("Pending", False, MachineStep.START),
        ("Failed", False, MachineStep.START),
        ("Stopped", False, MachineStep.START),
        ("Running", False, MachineStep.REPORT),
        ("Sleeping", False, MachineStep.REPORT),
        ("Unknown", False, MachineStep.REPORT),
    ],
)
def test_a_lost_machine_that_served_is_reported_before_another_is_started(
    phase: Phase, has_machine: bool, step: MachineStep
) -> None:
    server = a_server(ServerStatus(phase=phase, observed_generation=3))
    assert step_after_observation(server, has_machine=has_machine) is step


def test_machines_of_other_uids_are_orphans() -> None:
    server, earlier = a_server(), a_server(uid="uid-0")
    found = [machine_id_of(earlier), machine_id_of(server)]
    assert found == ["default/web-0/uid-0", "default/web-0/uid-1"]
    assert orphan_machines(found, [server]) == ["default/web-0/uid-0"]
    assert orphan_machines(found, [server, earlier]) == []
    assert orphan_machines(found, [None]) == found


def test_a_server_is_released_when_its_machine_is_gone() -> None:
    server = a_server(deleted="2026-01-01T00:00:00Z")
    waiting = plan_machine_release(CELL, server, has_machine=True)
    assert (waiting.actions, waiting.requeue_after_s) == ((), RECHECK_S)
    (release,) = plan_machine_release(CELL, server, has_machine=False).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


@pytest.mark.parametrize(
    ("phase", "recheck_s"),
    [("Running", SETTLED_S), ("Sleeping", SETTLED_S), ("Pending", UNSETTLED_S)],
)
def test_a_settled_machine_is_checked_less_often(phase: Phase, recheck_s: float) -> None:
    status = ServerStatus(phase=phase, message="new", observed_generation=3)
    plan = plan_server_status(CELL, a_server(), status)
    assert plan.requeue_after_s == pytest.approx(recheck_s, rel=0.1)
    (report,) = plan.actions
    assert isinstance(report, PatchStatus)
    assert (report.kind, report.ref) == (SERVER, Ref("default", "web-0"))


def test_the_versions_of_the_data_are_recorded_before_the_start() -> None:
    wanted = [Reference("ConfigMap", "settings", "containers[0].envFrom[0]")]
    nothing = status_before_start(a_server(), wanted, ObservedSources({}))
    assert nothing is not None
    assert (nothing.phase, nothing.reason) == ("Pending", "SourceNotFound")

    settings = ConfigMap(
        metadata=ObjectMeta(name="settings", namespace="default", resource_version="7")
    )
    found = ObservedSources({SETTINGS: settings})
    starting = status_before_start(a_server(), wanted, found)
    assert starting is not None
    assert (starting.phase, starting.reason) == ("Pending", "Starting")
    assert starting.referenced_data == [
        PinnedData(kind="ConfigMap", name="settings", resource_version="7")
    ]
    assert status_before_start(a_server(starting), wanted, found) is None


def test_a_machine_that_cannot_start_has_failed() -> None:
    status = failed_status(a_server(ServerStatus(last_wake=WAKE)), "no such runtime")
    assert status == ServerStatus(
        phase="Failed",
        reason="ConfigurationError",
        message="no such runtime",
        observed_generation=3,
        last_wake=WAKE,
    )


def test_the_status_is_what_the_driver_reports() -> None:
    report = Report(
        "Running", "NotReady", "probe failed", 2, 1, "t", ("10.0.0.9",), ("bye",), (), None, "f"
    )
    recorded = a_server(ServerStatus(last_wake=WAKE, addresses=["10.0.0.1"]))
    assert observed_status(recorded, report) == ServerStatus(
        phase="Running",
        reason="NotReady",
        message="probe failed",
        restarts=2,
        exit_code=1,
        started_at="t",
        addresses=["10.0.0.9"],
        last_lines=["bye"],
        observed_generation=3,
        last_wake=WAKE,
        spec_fingerprint="f",
    )
    newer = replace(report, last_wake=Wake(at="2026-01-02T00:00:00Z"))
    assert observed_status(recorded, newer).last_wake == newer.last_wake


def test_the_status_of_a_lost_machine_keeps_only_its_data_versions() -> None:
    pins = [PinnedData(kind="ConfigMap", name="settings", resource_version="7")]
    recorded = ServerStatus(phase="Running", addresses=["10.0.0.9"], referenced_data=pins)
    status = observed_status(a_server(recorded), None)
    assert (status.phase, status.addresses, status.referenced_data) == ("Pending", [], pins)


@pytest.mark.parametrize("phase", ["Running", "Sleeping", "Failed", "Stopped"])
def test_unknown_changes_only_the_phase_and_its_reason(phase: Phase) -> None:
    recorded = ServerStatus(
        phase=phase,
        restarts=3,
        exit_code=1,
        addresses=["10.0.0.9"],
        last_lines=["bye"],
        observed_generation=2,
    )
    assert observed_status(a_server(recorded), UNKNOWN) == structs.replace(
        recorded, phase="Unknown", reason="NotObserved", message="the engine does not respond"
    )


def test_a_server_that_was_never_observed_does_not_become_unknown() -> None:
    assert observed_status(a_server(), UNKNOWN) == ServerStatus()


# --- readiness that was recorded before a restart


@pytest.mark.parametrize(
    ("state", "serves"),
    [
        (None, False),
        (Report("Pending"), False),
        (Report("Running"), True),
        (Report("Running", "NotReady"), False),
        (Report("Sleeping"), True),
        (Report("Failed"), False),
        (UNKNOWN, False),
    ],
    ids=["gone", "pending", "running", "not ready", "sleeping", "failed", "unknown"],
)
def test_a_machine_serves_when_it_runs_or_sleeps(state: Report | None, serves: bool) -> None:
    assert machine_serves(state) is serves


NOT_READY = an_instance(0, ready=False)


@pytest.mark.parametrize(
    ("instance", "state", "confirmed"),
    [
        (NOT_READY, None, True),
        (NOT_READY, Report("Failed"), True),
        (NOT_READY, Report("Running"), False),
        (NOT_READY, UNKNOWN, False),
        (an_instance(0), Report("Running"), True),
    ],
    ids=["gone", "failed", "serves", "unknown", "available for the driver"],
)
def test_an_observation_confirms_that_an_instance_is_not_ready(
    instance: Instance, state: Report | None, confirmed: bool
) -> None:
    assert confirms_not_ready(instance, state) is confirmed


def owned_by(instance: Instance, deleted: str | None = None) -> Server:
    server = a_server(deleted=deleted)
    metadata = structs.replace(
        server.metadata,
        name=instance.metadata.name,
        labels={labels.INSTANCE_UID: instance.metadata.uid},
    )
    return structs.replace(server, metadata=metadata)


@pytest.mark.parametrize(
    ("instance", "server", "expected"),
    [
        (NOT_READY, owned_by(NOT_READY), True),
        (NOT_READY, owned_by(NOT_READY, "2026-01-01T00:00:00Z"), False),
        (an_instance(0), owned_by(an_instance(0)), False),
        (refused_by_quota(NOT_READY), owned_by(NOT_READY), False),
        (an_instance(0, ready=False, terminating=True), owned_by(NOT_READY), False),
    ],
    ids=["not ready", "server terminating", "ready", "gated", "terminating"],
)
def test_only_recorded_unreadiness_with_a_machine_needs_confirmation(
    instance: Instance, server: Server, expected: bool
) -> None:
    assert needs_confirmation(instance, server) is expected
