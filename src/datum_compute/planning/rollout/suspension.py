"""Suspended and stopped instances: the reason, the conditions, and the proof that none runs.

Both are called halted. The instances of a deployment are halted in two cases: the project is
suspended, which includes access that was denied or withdrawn (``spec.suspended``), or the workload
is stopped (``spec.stopped``). The platform takes the same steps in both cases:

- The workload controller sets the fields on deployments, and the deployment controller of the cell
  on Instances. The provisioner sets ``suspended`` on Servers, and the driver stops the machines.
- While a deployment is halted, no instance is created, replaced or removed. Instances therefore
  keep names, uids, addresses, quota and their position in a rollout. Changes of the spec take
  effect when the instances start again.
- Instances and deployments report ``Stopping`` until the driver confirms that a machine is stopped,
  and the reason of the halt from then on. So the reason of the halt proves that nothing runs.
- If the workload is stopped and its project is suspended, the suspension is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from datum_compute.api.compute.deployment import WorkloadDeployment, WorkloadDeploymentSpec
from datum_compute.api.compute.instance import AVAILABLE, READY, Instance, InstanceControl
from datum_compute.api.compute.server import Server
from datum_compute.api.compute.workload import PROGRESSING, Workload
from datum_compute.api.conditions import (
    FALSE,
    UNKNOWN,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    is_true,
)
from datum_compute.api.meta.timestamps import remaining_s

HALT_REASONS = (Reason.PROJECT_SUSPENDED, Reason.STOPPED)
# Reasons of Available of a deployment that no cell has accepted.
NO_CELL = (
    Reason.NO_MATCHING_LOCATION,
    Reason.AMBIGUOUS_SERVING_LOCATION,
    Reason.CELL_DRAINED,
)
# Reasons of Available of a deployment that has no cell, or whose cell cannot be reached. Such a
# deployment cannot be updated now, and no cell can confirm that its instances are stopped.
NO_REACHABLE_CELL = (Reason.CELL_UNREACHABLE, *NO_CELL)
_CAUSES = {
    Reason.PROJECT_SUSPENDED: "the project is suspended",
    Reason.STOPPED: "the workload is stopped",
}


def halt_reason(spec: WorkloadDeploymentSpec | InstanceControl) -> Reason | None:
    """Return why the instances are halted; None if they are not."""
    if spec.suspended:
        return Reason.PROJECT_SUSPENDED
    return Reason.STOPPED if spec.stopped else None


def workload_halt_reason(workload: Workload, *, is_suspended: bool) -> Reason | None:
    """Return why the workload is halted; ``is_suspended`` is True if its project is suspended."""
    if is_suspended:
        return Reason.PROJECT_SUSPENDED
    return Reason.STOPPED if workload.spec.stopped else None


def halt_cause(reason: Reason) -> str:
    """Return the cause as a clause for the middle of a message."""
    return _CAUSES[reason]


def halted_value(reason: Reason) -> ConditionValue:
    cause = halt_cause(reason)
    return ConditionValue(FALSE, reason, cause[0].upper() + cause[1:])


def halting_value(reason: Reason) -> ConditionValue:
    """Return the value of a condition until the driver confirms that the machine is stopped."""
    message = f"The machine is being stopped, because {halt_cause(reason)}"
    return ConditionValue(FALSE, Reason.STOPPING, message)


# --- resumption
# The instances of a resumed deployment start at the same time. Those of an older template would be
# replaced immediately, because they were observed as not ready, and a broken new template would
# then take the city down. They get time to serve first, and the disruption budget applies to them.

RESUME_GRACE_S = 60.0


def resumed_at(deployment: WorkloadDeployment, now: str) -> str | None:
    """Return when the deployment last resumed; ``now`` if its status still reports the halt."""
    progressing = find_condition(deployment.status.conditions, PROGRESSING)
    was_halted = progressing is not None and progressing.reason in HALT_REASONS
    if was_halted and halt_reason(deployment.spec) is None:
        return now
    return deployment.status.resumed_at


def resuming_instances(
    deployment: WorkloadDeployment, instances: Iterable[Instance], now: str
) -> frozenset[str]:
    """Return the uids of instances that may serve again soon, because the deployment resumed."""
    since = resumed_at(deployment, now)
    if since is None or not remaining_s(since, RESUME_GRACE_S, now):
        return frozenset()
    return frozenset(
        instance.metadata.uid
        for instance in instances
        if not is_true(instance.status.conditions, READY)
    )


# --- instances


def is_machine_stopped(server: Server | None) -> bool:
    """Return True if no process of the machine runs, as far as the driver has reported."""
    if server is None:
        return True
    return (server.status.phase, server.status.reason) == ("Stopped", Reason.STOPPED)


def halted_available(reason: Reason, server: Server | None) -> ConditionValue:
    """Return Available of a halted instance."""
    if is_machine_stopped(server):
        return halted_value(reason)
    assert server is not None, "an instance without a Server has no machine"
    if server.status.phase == "Unknown":
        return ConditionValue(
            UNKNOWN, server.status.reason or Reason.NOT_OBSERVED, server.status.message
        )
    return halting_value(reason)


def halted_ready(
    reason: Reason, conditions: Iterable[Condition], gates: Sequence[str]
) -> ConditionValue:
    """Return Ready of a halted instance. An instance with gates never had a machine."""
    available = find_condition(conditions, AVAILABLE)
    if gates or available is None or available.reason == reason:
        return halted_value(reason)
    if available.status == UNKNOWN and available.reason == Reason.NOT_OBSERVED:
        return ConditionValue(available.status, available.reason, available.message)
    return halting_value(reason)


def is_instance_halted(instance: Instance) -> bool:
    return halt_reason(instance.spec.controller) is not None


# --- deployments


def is_deployment_stopped(deployment: WorkloadDeployment) -> bool:
    """Return True if the deployment is halted and its cell has confirmed that nothing runs."""
    reason = halt_reason(deployment.spec)
    available = find_condition(deployment.status.conditions, AVAILABLE)
    is_current = deployment.status.observed_generation >= deployment.metadata.generation
    return (
        reason is not None
        and is_current
        and available is not None
        and available.reason in HALT_REASONS
    )


def deployments_still_running(
    deployments: Iterable[WorkloadDeployment],
) -> list[WorkloadDeployment]:
    """Return those of the halted deployments that may have a running instance.

    Deployments without a reachable cell are left out, because no cell can confirm their state.
    """
    return [d for d in deployments if not is_deployment_stopped(d) and not _is_unconfirmable(d)]


def _is_unconfirmable(deployment: WorkloadDeployment) -> bool:
    available = find_condition(deployment.status.conditions, AVAILABLE)
    return available is not None and available.reason in NO_REACHABLE_CELL
