"""Suspended and stopped instances: what stays, what is reported, and when nothing runs."""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api.compute.deployment import WorkloadDeployment, WorkloadDeploymentStatus
from datum_compute.api.compute.instance import Instance
from datum_compute.api.compute.server import Phase, Server, ServerStatus
from datum_compute.api.compute.workload import ScaleSettings
from datum_compute.api.conditions import ConditionValue, make_condition
from datum_compute.api.kinds import INSTANCE
from datum_compute.api.meta.objects import owner_reference
from datum_compute.api.planes import cell_plane
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus
from datum_compute.planning.rollout.gates import observed_ready, plan_readiness
from datum_compute.planning.rollout.instances import plan_instances
from datum_compute.planning.rollout.machine import (
    MachineStep,
    observed_status,
    step_after_observation,
)
from datum_compute.planning.rollout.server import machine_conditions, plan_provisioning
from datum_compute.planning.rollout.status import deadline_in_s, deployment_status, plan_deployment
from datum_compute.planning.rollout.suspension import (
    deployments_still_running,
    is_deployment_stopped,
)
from datum_compute.planning.workload.templates import template_hash
from testkit.builders import NOW, a_deployment, a_gated_instance, a_server, an_instance
from tests.planning.rollout.test_machine import Report

CELL = cell_plane("dfw")
LATER = "2026-01-01T02:00:00Z"
STOPPED = ServerStatus(phase="Stopped", reason="Stopped", observed_generation=1)


def halted(
    deployment: WorkloadDeployment, *, suspended: bool = True, stopped: bool = False
) -> WorkloadDeployment:
    spec = msgspec.structs.replace(deployment.spec, suspended=suspended, stopped=stopped)
    return msgspec.structs.replace(deployment, spec=spec)


def halted_instance(
    instance: Instance, reason: str = "ProjectSuspended", *, stopped: bool = False
) -> Instance:
    """Return the instance with the halt in its spec, and ``reason`` on Available and Ready."""
    control = msgspec.structs.replace(
        instance.spec.controller, suspended=not stopped, stopped=stopped
    )
    value = ConditionValue("False", reason, "")
    kept = [c for c in instance.status.conditions if c.type == "Programmed"]
    conditions = [
        *kept,
        *(make_condition(type_, value, generation=1, now=NOW) for type_ in ("Available", "Ready")),
    ]
    return msgspec.structs.replace(
        instance,
        spec=msgspec.structs.replace(instance.spec, controller=control),
        status=msgspec.structs.replace(instance.status, conditions=conditions),
    )


def reasons(status: WorkloadDeploymentStatus) -> dict[str, tuple[str, str]]:
    return {c.type: (c.status, c.reason) for c in status.conditions}


def owned_server(
    instance: Instance, status: ServerStatus, *, suspended: bool = False, generation: int = 1
) -> Server:
    server = a_server("Running", generation)
    return msgspec.structs.replace(
        server,
        metadata=msgspec.structs.replace(
            server.metadata, owner_references=[owner_reference(instance, INSTANCE)]
        ),
        spec=msgspec.structs.replace(server.spec, suspended=suspended),
        status=status,
    )


# --- instances of a deployment


@pytest.mark.parametrize("policy", ["OrderedReady", "Parallel"])
def test_a_halted_deployment_creates_replaces_and_removes_no_instance(policy: str) -> None:
    scale = ScaleSettings(min_replicas=3, instance_management_policy=policy)  # type: ignore[arg-type]
    deployment = halted(a_deployment("web:2", scale=scale))
    instances = [an_instance(0), an_instance(1, ready=False), an_instance(5)]
    actions = plan_instances(CELL, deployment, instances).actions
    assert not [action for action in actions if isinstance(action, Create | Delete)]
    patched = [a for a in actions if isinstance(a, Patch)]
    assert [a.ref.name for a in patched] == ["web-dfw-0", "web-dfw-1", "web-dfw-5"]
    assert patched[0].patch["spec"] == {"controller": {"suspended": True, "stopped": False}}


def test_the_halt_of_an_instance_is_written_once_and_removed_once() -> None:
    stopped = halted_instance(an_instance(0), "Stopped", stopped=True)
    deployment = halted(a_deployment(), suspended=False, stopped=True)
    assert plan_instances(CELL, deployment, [stopped]).actions == ()
    (resumption,) = plan_instances(CELL, a_deployment(), [stopped]).actions[-1:]
    assert isinstance(resumption, Patch)
    assert resumption.patch["spec"] == {"controller": {"suspended": False, "stopped": False}}


def test_a_deleted_deployment_removes_its_instances_although_it_is_halted() -> None:
    deployment = halted(a_deployment(terminating=True))
    actions = plan_instances(CELL, deployment, [halted_instance(an_instance(0))]).actions
    assert [type(action) for action in actions] == [Delete]


# --- the status of a deployment


def test_a_halted_deployment_reports_the_reason_when_nothing_runs() -> None:
    deployment = halted(a_deployment(replicas=3))
    running = deployment_status(deployment, [an_instance(0), an_instance(1)], NOW)
    assert reasons(running)["Available"] == ("False", "Stopping")
    assert reasons(running)["ReplicasReady"] == ("False", "ProjectSuspended")
    instances = [halted_instance(an_instance(0)), halted_instance(an_instance(1))]
    status = deployment_status(deployment, instances, NOW)
    assert reasons(status) == {
        "Available": ("False", "ProjectSuspended"),
        "ReplicasReady": ("False", "ProjectSuspended"),
        "Progressing": ("Unknown", "ProjectSuspended"),
    }
    assert [(b.reason, b.replicas) for b in status.blocked] == [("ProjectSuspended", 3)]
    assert status.updated_replicas == 2, "a suspension changes the position of the rollout"


def test_a_stopped_deployment_reports_stopped_unless_its_project_is_suspended() -> None:
    stopped = halted(a_deployment(), suspended=False, stopped=True)
    assert reasons(deployment_status(stopped, [], NOW))["Available"] == ("False", "Stopped")
    both = halted(a_deployment(), suspended=True, stopped=True)
    assert reasons(deployment_status(both, [], NOW))["Available"][1] == "ProjectSuspended"


def test_an_instance_that_cannot_be_observed_makes_a_halted_deployment_unknown() -> None:
    unobserved = an_instance(0, ready=None)
    status = deployment_status(halted(a_deployment()), [unobserved], NOW)
    assert reasons(status)["Available"] == ("Unknown", "NotObserved")


def test_no_deadline_passes_while_a_deployment_is_halted() -> None:
    deployment = a_deployment(replicas=2)
    started = deployment_status(deployment, [an_instance(0)], NOW)
    halted_deployment = msgspec.structs.replace(halted(deployment), status=started)
    during = deployment_status(halted_deployment, [halted_instance(an_instance(0))], LATER)
    assert reasons(during)["Progressing"] == ("Unknown", "ProjectSuspended")
    assert deadline_in_s(halted_deployment, during, LATER) is None
    metadata = msgspec.structs.replace(deployment.metadata, generation=3)
    resumed = msgspec.structs.replace(deployment, metadata=metadata, status=during)
    after = deployment_status(resumed, [halted_instance(an_instance(0))], LATER)
    assert reasons(after)["Progressing"] == ("True", "RollingOut")
    assert after.progressed_at == LATER


def test_a_halt_does_not_change_the_template_hash() -> None:
    deployment = a_deployment()
    assert template_hash(deployment.spec.template) == template_hash(
        halted(deployment).spec.template
    )


def test_a_resumed_rollout_lets_outdated_instances_serve_before_it_replaces_them() -> None:
    """Otherwise a broken template would replace all of them, because none is ready."""
    scale = ScaleSettings(min_replicas=3, instance_management_policy="Parallel")
    deployment = a_deployment("web:2", scale=scale)
    down = [halted_instance(an_instance(n)) for n in (0, 1)]
    down.append(halted_instance(an_instance(2, "web:2")))
    during = deployment_status(halted(deployment), down, NOW)
    resumed = msgspec.structs.replace(deployment, status=during)

    def deleted(instances: list[Instance], now: str) -> list[str]:
        plan = plan_deployment(CELL, resumed, instances, now)
        return [a.ref.name for a in plan.actions if isinstance(a, Delete) and not a.deferred]

    assert deleted(down, NOW) == []
    status = deployment_status(resumed, down, NOW)
    assert status.resumed_at == NOW
    resumed = msgspec.structs.replace(resumed, status=status)
    starting = [an_instance(0, ready=False), an_instance(1, ready=False), down[2]]
    assert deleted(starting, "2026-01-01T00:00:59Z") == []
    assert deleted(starting, LATER) == ["web-dfw-1", "web-dfw-0"], "it never became ready"
    serving = [an_instance(0), an_instance(1), down[2]]
    assert deleted(serving, "2026-01-01T00:00:10Z") == [], "the update of instance 2 fails"


# --- instances and Servers


@pytest.mark.parametrize(
    ("phase", "reason", "reported"),
    [
        ("Running", "", "Stopping"),
        ("Failed", "InstanceCrashing", "Stopping"),
        ("Stopped", "Stopping", "Stopping"),
        ("Stopped", "Stopped", "ProjectSuspended"),
        ("Unknown", "NotObserved", "NotObserved"),
    ],
)
def test_a_halted_instance_reports_its_reason_when_its_machine_is_stopped(
    phase: Phase, reason: str, reported: str
) -> None:
    instance = halted_instance(an_instance(0))
    status = ServerStatus(phase=phase, reason=reason, observed_generation=1)
    programmed, available = machine_conditions(instance, owned_server(instance, status))
    assert programmed is None, "a suspension changes Programmed"
    assert available.reason == reported


def test_a_halted_instance_keeps_its_template_hash_addresses_and_server() -> None:
    instance = halted_instance(an_instance(0))
    status = msgspec.structs.replace(STOPPED, addresses=["10.0.0.9"])
    server = owned_server(instance, status, suspended=True)
    plan = plan_provisioning(CELL, instance, server, NOW)
    assert not [action for action in plan.actions if isinstance(action, Delete)]
    written = [a for a in plan.actions if isinstance(a, PatchStatus)]
    assert all("controller" not in a.status for a in written), "the observed template changed"


def test_the_server_of_a_halted_instance_is_suspended_and_resumed() -> None:
    for instance, suspended in ((halted_instance(an_instance(0)), True), (an_instance(0), False)):
        (server,) = [
            a.object
            for a in plan_provisioning(CELL, instance, None, NOW).actions
            if isinstance(a, Create)
        ]
        assert isinstance(server, Server)
        assert server.spec.suspended == suspended


def test_a_resumed_instance_is_starting_until_its_machine_is_observed_again() -> None:
    instance = an_instance(0)
    server = owned_server(instance, STOPPED, generation=2)
    programmed, available = machine_conditions(instance, server)
    assert (programmed, available.reason) == (None, "Starting")


def test_an_instance_with_gates_is_suspended_as_well() -> None:
    gated = a_gated_instance()
    control = msgspec.structs.replace(gated.spec.controller, suspended=True)
    gated = msgspec.structs.replace(
        gated, spec=msgspec.structs.replace(gated.spec, controller=control)
    )
    assert observed_ready(gated, NOW).reason == "ProjectSuspended"
    (written,) = plan_readiness(CELL, gated, (), NOW).actions
    assert isinstance(written, PatchStatus)


# --- machines


@pytest.mark.parametrize(
    ("has_machine", "is_suspended", "is_stopped", "expected"),
    [
        (True, False, False, MachineStep.SUSPEND),
        # It may still be drained, which only another call of suspend() completes.
        (True, True, False, MachineStep.SUSPEND),
        (True, True, True, MachineStep.REPORT),
        (False, False, False, MachineStep.REPORT),
    ],
)
def test_the_machine_of_a_suspended_server_is_stopped_and_never_started(
    has_machine: bool, is_suspended: bool, is_stopped: bool, expected: MachineStep
) -> None:
    server = owned_server(an_instance(0), STOPPED, suspended=True)
    step = step_after_observation(
        server, has_machine=has_machine, is_suspended=is_suspended, is_stopped=is_stopped
    )
    assert step is expected


def test_a_suspended_machine_is_resumed_and_a_missing_one_is_started() -> None:
    server = owned_server(an_instance(0), STOPPED)
    assert step_after_observation(server, has_machine=True, is_suspended=True) is MachineStep.RESUME
    assert step_after_observation(server, has_machine=False) is MachineStep.START


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_stopped_machine_keeps_addresses_images_and_restarts(is_kept: bool) -> None:
    running = ServerStatus(
        phase="Running",
        addresses=["10.0.0.9"],
        restarts=2,
        started_at=NOW,
        spec_fingerprint="1-abc",
        observed_generation=1,
    )
    server = owned_server(an_instance(0), running, suspended=True, generation=2)
    state = Report("Stopped", "Stopped", "the machine is stopped", is_suspended=True)
    status = observed_status(server, state if is_kept else None)
    assert (status.phase, status.reason, status.observed_generation) == ("Stopped", "Stopped", 2)
    assert (status.addresses, status.restarts) == (["10.0.0.9"], 2)
    assert (status.spec_fingerprint, status.started_at) == ("1-abc", None)


# --- the proof that nothing runs


def reported(
    deployment: WorkloadDeployment, reason: str, generation: int = 1
) -> WorkloadDeployment:
    value = ConditionValue("False", reason, "")
    condition = make_condition("Available", value, generation=generation, now=NOW)
    status = WorkloadDeploymentStatus(conditions=[condition], observed_generation=generation)
    return msgspec.structs.replace(deployment, status=status)


def test_a_suspended_project_runs_until_each_reachable_cell_reports_that_nothing_runs() -> None:
    deployment = halted(a_deployment())
    assert is_deployment_stopped(reported(deployment, "ProjectSuspended"))
    assert not is_deployment_stopped(reported(deployment, "ProjectSuspended", generation=0))
    assert not is_deployment_stopped(reported(a_deployment(), "Stopped"))
    confirmed = [reported(deployment, r) for r in ("ProjectSuspended", "CellUnreachable")]
    assert deployments_still_running(confirmed) == []
    unconfirmed = [reported(deployment, r) for r in ("Stopping", "AwaitingPropagation")]
    assert deployments_still_running([*confirmed, *unconfirmed]) == unconfirmed
