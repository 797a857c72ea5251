"""The reported state of a machine."""

from __future__ import annotations

from datum_compute.api.compute.instance import Probe
from datum_compute.api.conditions import Reason
from datum_compute.drivers.containers.container_spec import ContainerPlan, MachinePlan
from datum_compute.drivers.containers.inspection import InspectedContainer
from datum_compute.drivers.containers.machine import (
    MachineRecord,
    MachineSnapshot,
    SetupProblem,
)
from datum_compute.drivers.containers.status import ReadinessResults, snapshot_state

PLAN = MachinePlan(
    containers=[ContainerPlan(name="app", image="web:1", memory_mebibytes=64, digest="sha256:d")],
    addresses=["10.0.0.2"],
)
UP = InspectedContainer("app", "id", "running", started_at="2026-01-01T00:00:00Z", started_s=100.0)
ENDED = InspectedContainer("app", "id", "exited", 137, finished_s=200.0)


def test_a_running_machine_has_its_address_and_digest() -> None:
    state = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": UP}, now_s=500.0), ReadinessResults(), ""
    )
    assert (state.phase, state.reason, state.addresses) == ("Running", "", ("10.0.0.2",))
    assert [i.digest for i in state.images] == ["sha256:d"]


def test_the_message_of_an_out_of_memory_kill_contains_the_limit() -> None:
    record = MachineRecord(
        is_down=True, container="app", exit_code=137, out_of_memory=True, ended_s=200.0
    )
    state = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": ENDED}, record), ReadinessResults(), ""
    )
    assert state.reason == Reason.INSTANCE_CRASHING
    assert "ran out of memory (its limit is 64Mi)" in state.message


def test_a_restarted_machine_counts_as_crashed_until_it_is_proven() -> None:
    record = MachineRecord(
        restarts=1, container="app", exit_code=1, ended_s=90.0, last_lines=["panic"]
    )
    early = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": UP}, record, now_s=105.0), ReadinessResults(), ""
    )
    assert (early.phase, early.last_lines) == ("Failed", ("panic",))
    late = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": UP}, record, now_s=110.0), ReadinessResults(), ""
    )
    assert (late.phase, late.restarts, late.exit_code) == ("Running", 1, 1)


def test_a_machine_that_was_just_restarted_stays_crashed_until_it_is_inspected() -> None:
    """Pending for a moment at every restart would look like a new machine."""
    record = MachineRecord(restarts=3, exit_code=137, container="app", ended_s=200.0)
    state = snapshot_state(
        PLAN, MachineSnapshot(["app"], {"app": ENDED}, record, now_s=210.0), ReadinessResults(), ""
    )
    assert (state.phase, state.reason, state.restarts) == ("Failed", "InstanceCrashing", 3)
    probed = MachinePlan(containers=[ContainerPlan(name="app", image="web:1", readiness=Probe())])
    state = snapshot_state(
        probed,
        MachineSnapshot(["app"], {"app": ENDED}, record, now_s=210.0),
        ReadinessResults(),
        "",
    )
    assert (state.phase, state.restarts) == ("Pending", 3)


def test_a_setup_problem_is_reported_before_anything_else() -> None:
    problem = SetupProblem(Reason.IMAGE_UNAVAILABLE, "no such image", 60.0, 10.0)
    snapshot = MachineSnapshot(["app"], {}, problem=problem, can_create=True)
    state = snapshot_state(PLAN, snapshot, ReadinessResults(), "")
    assert (state.phase, state.reason) == ("Failed", Reason.IMAGE_UNAVAILABLE)


def test_the_readiness_probe_decides_the_reason() -> None:
    probed = MachinePlan(containers=[ContainerPlan(name="app", image="w", readiness=Probe())])
    snapshot = MachineSnapshot(["app"], {"app": UP}, now_s=500.0)
    assert snapshot_state(probed, snapshot, ReadinessResults(), "").reason == Reason.STARTING
    bad = ReadinessResults({"app": False}, {"app": "404"})
    assert snapshot_state(probed, snapshot, bad, "").reason == Reason.NOT_READY
    assert snapshot_state(probed, snapshot, ReadinessResults({"app": True}), "").reason == ""
