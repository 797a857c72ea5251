"""The deletion of a Workload: deployments first, then quota claim and revisions, then the Workload.

Rules:
- All of these objects are deleted before the finalizer of the Workload is removed. They are not
  left to garbage collection, because a deletion with ``Orphan`` removes the owner references.
- Meanwhile the status reports the deletion and counts the remaining objects, because finalizers of
  other components may delay the deletion for a long time.
"""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import AVAILABLE
from datum_compute.api.compute.workload import PROGRESSING, Workload, WorkloadStatus
from datum_compute.api.conditions import (
    FALSE,
    Condition,
    ConditionValue,
    Reason,
    find_condition,
    make_condition,
    with_condition,
)
from datum_compute.api.finalizers import foreign_finalizers
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.meta.objects import ref_of
from datum_compute.api.planes import PlaneName
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Action, Delete, Plan, Wait, drop_finalizer

# Upper limit of the delay after a missed event.
RECHECK_S = 30.0


def plan_workload_deletion(
    plane: PlaneName,
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    now: str,
    dependents: Sequence[Action] = (),
) -> Plan:
    """Plan the deletion of a Workload.

    ``dependents`` are deletions to apply after the last deployment is gone.
    """
    status = deletion_status(workload, deployments, now)
    report = plan_status(plane, WORKLOAD, workload, status)
    if deployments:
        remaining = Wait(f"{len(deployments)} deployments remain")
        removals = plan_deployment_deletions(plane, deployments, "its workload is being deleted")
        return Plan((*removals, *report, remaining), requeue_after_s=RECHECK_S)
    if report and foreign_finalizers(workload):
        return Plan((*dependents, *report))  # the event of this write starts the next reconcile
    released = drop_finalizer(plane, WORKLOAD, workload, labels.WORKLOAD_FINALIZER)
    return Plan((*dependents, *released))


def deletion_status(
    workload: Workload, deployments: Sequence[WorkloadDeployment], now: str
) -> WorkloadStatus:
    """Return a status without desired or ready replicas.

    The replicas of a city count until its cell has confirmed that they are gone.
    """
    generation = workload.metadata.generation
    value = _deletion_value(workload, deployments)
    conditions: list[Condition] = []
    for type_ in (AVAILABLE, PROGRESSING):
        observed = find_condition(workload.status.conditions, type_)
        condition = make_condition(type_, value, generation=generation, now=now)
        conditions += with_condition([observed] if observed else [], condition)
    return WorkloadStatus(
        conditions=conditions,
        deployments=len(deployments),
        observed_generation=generation,
        replicas=sum(d.status.replicas for d in deployments),
    )


def _deletion_value(
    workload: Workload, deployments: Sequence[WorkloadDeployment]
) -> ConditionValue:
    remaining = foreign_finalizers(workload)
    if remaining and not deployments:
        message = "Being deleted: nothing is left on reachable cells; held by "
        return ConditionValue(FALSE, Reason.HELD_BY_FINALIZER, message + ", ".join(remaining))
    cities = ", ".join(sorted({d.spec.city_code for d in deployments}))
    progress = (
        f"waiting for {cities} to confirm that its instances are gone"
        if cities
        else "no instances are left"
    )
    return ConditionValue(FALSE, Reason.REMOVING, f"Being deleted: {progress}")


def plan_deployment_deletions(
    plane: PlaneName, deployments: Sequence[WorkloadDeployment], reason: str
) -> list[Action]:
    return [
        Delete(plane, DEPLOYMENT, ref_of(d), d.metadata.uid, reason)
        for d in deployments
        if not d.is_terminating
    ]
