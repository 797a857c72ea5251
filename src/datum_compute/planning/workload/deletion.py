"""How a Workload goes: its deployments first, then what was made for it alone, then itself.

Nothing of that is left to garbage collection: a deletion with ``Orphan`` takes the owners away.
While it goes its status says so, and counts what is still there: others may hold it for long.
"""

from __future__ import annotations

from collections.abc import Sequence

from datum_compute.api import labels
from datum_compute.api.conditions import (
    FALSE,
    Condition,
    Verdict,
    decided,
    find_condition,
    with_condition,
)
from datum_compute.api.finalizers import foreign_finalizers
from datum_compute.api.instance import AVAILABLE
from datum_compute.api.kinds import DEPLOYMENT, WORKLOAD
from datum_compute.api.meta import ref_of
from datum_compute.api.plane import PlaneName
from datum_compute.api.reasons import Reason
from datum_compute.api.workload import PROGRESSING, Workload, WorkloadStatus
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.apply import plan_status
from datum_compute.planning.plan import Action, Delete, Plan, Wait, drop_finalizer

# A missed event costs at most this long.
RECHECK_S = 30.0


def plan_workload_removal(
    plane: PlaneName,
    workload: Workload,
    deployments: Sequence[WorkloadDeployment],
    now: str,
    last: Sequence[Action] = (),
) -> Plan:
    """``last`` is what goes when no deployment is left, and before the workload does."""
    status = removal_status(workload, deployments, now)
    report = plan_status(plane, WORKLOAD, workload, status)
    if deployments:
        remaining = Wait(f"{len(deployments)} deployments remain")
        removals = plan_removals(plane, deployments, "its workload is going")
        return Plan((*removals, *report, remaining), requeue_after_s=RECHECK_S)
    if report and foreign_finalizers(workload):
        return Plan((*last, *report))  # which brings us back to release it
    released = drop_finalizer(plane, WORKLOAD, workload, labels.WORKLOAD_FINALIZER)
    return Plan((*last, *released))


def removal_status(
    workload: Workload, deployments: Sequence[WorkloadDeployment], now: str
) -> WorkloadStatus:
    """Nothing is wanted any more and nothing counts as ready. What a city had counts as there
    until its cell has confirmed that it is gone."""
    generation = workload.metadata.generation
    verdict = _removal_verdict(workload, deployments)
    conditions: list[Condition] = []
    for type_ in (AVAILABLE, PROGRESSING):
        observed = find_condition(workload.status.conditions, type_)
        condition = decided(type_, verdict, generation=generation, now=now)
        conditions += with_condition([observed] if observed else [], condition)
    return WorkloadStatus(
        conditions=conditions,
        deployments=len(deployments),
        observed_generation=generation,
        replicas=sum(d.status.replicas for d in deployments),
    )


def _removal_verdict(workload: Workload, deployments: Sequence[WorkloadDeployment]) -> Verdict:
    held = foreign_finalizers(workload)
    if held and not deployments:
        message = "Being deleted: nothing of it is left where cells answer; held by "
        return Verdict(FALSE, Reason.HELD_BY_FINALIZER, message + ", ".join(held))
    cities = ", ".join(sorted({d.spec.city_code for d in deployments}))
    awaited = (
        f"{cities} has to confirm that its instances are gone" if cities else "nothing is left"
    )
    return Verdict(FALSE, Reason.REMOVING, f"Being deleted: {awaited}")


def plan_removals(
    plane: PlaneName, deployments: Sequence[WorkloadDeployment], reason: str
) -> list[Action]:
    return [
        Delete(plane, DEPLOYMENT, ref_of(d), d.metadata.uid, reason)
        for d in deployments
        if not d.is_terminating
    ]
