"""Execution of a Work: the copy of its object on a cell, and the status that the Work reports.

- Changes to the copy on the cell are overwritten. Labels, finalizers and owners that the cell added
  stay.
- An object of the same name that is not a copy of the Work is not changed; the Work reports it.
- The caller releases a deleted Work, after a live read confirms that the copy is gone.
- While a Work is suspended, nothing is written to the cell. The status of the copy is still
  reported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment, WorkloadDeploymentStatus
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    ConditionValue,
    find_condition,
    make_condition,
    with_condition,
)
from datum_compute.api.karmada import ManifestStatus, Work, WorkStatus
from datum_compute.api.kinds import WORK
from datum_compute.api.meta.codec import canonical, from_json
from datum_compute.api.meta.objects import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.planes import HUB, PlaneName, work_name
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.initial_status import INITIAL_STATUS_S, should_defer
from datum_compute.planning.karmada.bindings import APPLIED
from datum_compute.planning.plan import Action, Delete, Plan, Wait
from datum_compute.planning.workload.names import is_same_workload, workload_uid_in

RECHECK_S = 30.0
# Retry delays while the cell does not have the namespace of the copy. The namespace has a Work of
# its own and may arrive shortly after the objects in it.
NAMESPACE_S = 0.02
MISSING_NAMESPACE_S = 2.0
DISPATCHING = "Dispatching"


def plan_execution(
    cell: PlaneName,
    work: Work,
    kind: KindInfo[Any],
    copy: ApiObject | None,
    now: str,
    *,
    missing_namespace: str = "",
) -> Plan:
    """Plan the copy and the report of a Work.

    ``copy`` is the cell's object with the name in the manifest, which may not be a copy of this
    Work. ``missing_namespace`` is the name of its namespace, if the cell does not have it.
    """
    if work.is_terminating:
        return _plan_removal(cell, work, kind, copy)
    if copy is not None and not is_copy_of(copy, kind, work):
        problem = f"{kind.kind} {ref_of(copy)} exists on {cell} and is not managed by the hub"
        return Plan(tuple(_report_copy(work, kind, None, problem, now)), requeue_after_s=RECHECK_S)
    if work.spec.suspend_dispatching:
        return Plan(tuple(_report_suspended(work, kind, copy, now)))
    if copy is not None and copy.is_terminating:
        return _plan_terminating_copy(work, kind, copy, now)
    if copy is not None and not _is_of_workload(copy, work):
        reason = "it belongs to an earlier workload"
        delete = Delete(cell, kind, ref_of(copy), copy.metadata.uid, reason)
        return Plan((delete, Wait("an earlier copy is being removed")), requeue_after_s=RECHECK_S)
    if missing_namespace:
        return _plan_missing_namespace(cell, work, kind, missing_namespace, now)
    actions = plan_object(cell, kind, desired_copy(work, kind), copy, "as in the Work of the hub")
    if copy is not None and _should_defer_status(work, copy, now):
        return Plan(tuple(actions), requeue_after_s=INITIAL_STATUS_S)
    if copy is not None:
        actions += _report_copy(work, kind, copy, "", now)
    elif work.status.manifest_statuses:
        gone = f"{cell} has lost its copy, which is created again"
        actions = [*_report_copy(work, kind, None, gone, now), *actions]
    return Plan(tuple(actions))


def _plan_terminating_copy(work: Work, kind: KindInfo[Any], copy: ApiObject, now: str) -> Plan:
    """Wait until a terminating copy is gone.

    Its status is reported only if this Work has reported a status before. Otherwise the copy
    belongs to an earlier object of the same name.
    """
    problem = "an earlier copy is being removed"
    reported = _report_copy(work, kind, copy, problem, now) if work.status.manifest_statuses else []
    return Plan((*reported, Wait(problem)), requeue_after_s=RECHECK_S)


def _plan_missing_namespace(
    cell: PlaneName, work: Work, kind: KindInfo[Any], namespace: str, now: str
) -> Plan:
    problem = f"namespace {namespace} is not on {cell} yet"
    if should_defer(work, work.status.conditions, now):
        return Plan((Wait(problem),), requeue_after_s=NAMESPACE_S)
    reported = _report_copy(work, kind, None, problem, now)
    return Plan(tuple(reported), requeue_after_s=MISSING_NAMESPACE_S)


def _should_defer_status(work: Work, copy: ApiObject, now: str) -> bool:
    """Return True for a new copy without a status.

    `Applied` is then reported together with the first status, which saves a write.
    """
    if not isinstance(copy, WorkloadDeployment) or copy.status != WorkloadDeploymentStatus():
        return False
    return should_defer(work, work.status.conditions, now)


def plan_unreachable_cell(work: Work, cell: PlaneName, now: str) -> Plan:
    """Report that the cell is unreachable. The last report of the copy stays."""
    verdict = ConditionValue(FALSE, "AppliedFailed", f"{cell} is not reachable")
    applied = make_condition(APPLIED, verdict, generation=work.metadata.generation, now=now)
    status = WorkStatus(
        conditions=with_condition(work.status.conditions, applied),
        manifest_statuses=work.status.manifest_statuses,
    )
    return Plan(tuple(plan_status(HUB, WORK, work, status)), requeue_after_s=RECHECK_S)


def plan_orphaned_copies(
    cell: PlaneName, work: Ref, kind: KindInfo[Any], copies: Sequence[ApiObject]
) -> Plan:
    """Plan the deletion of copies whose Work is proven to be gone.

    ``copies`` have the label of the hub. A copy without a Work exists if its create request arrived
    after the Work was deleted. The Work of a copy is determined by the name of the copy, because
    the annotations may have been edited. A copy without these annotations stays.
    """
    return Plan(
        tuple(
            Delete(cell, kind, ref_of(copy), copy.metadata.uid, "its Work is gone")
            for copy in copies
            if work_name(kind, ref_of(copy)) == work.name
            and _annotated_work(copy) != (None, None)
            and not copy.is_terminating
        )
    )


def desired_copy(work: Work, kind: KindInfo[Any]) -> ApiObject:
    manifest = work.spec.workload.manifests[0]
    metadata = manifest["metadata"]
    marked = {
        **metadata,
        "labels": {**metadata.get("labels", {}), labels.MANAGED: "true"},
        "annotations": {
            **metadata.get("annotations", {}),
            labels.WORK_NAMESPACE: work.metadata.namespace,
            labels.WORK_NAME: work.metadata.name,
        },
    }
    copy: ApiObject = from_json({**manifest, "metadata": marked}, kind.model)
    return copy


def is_copy_of(copy: ApiObject, kind: KindInfo[Any], work: Work) -> bool:
    """Return True if the annotations of the object name the Work.

    The annotations may have been edited. So an object with the label of the hub is also a copy if
    it lacks one of them, or if the name of the Work is derived from its name.
    """
    named = _annotated_work(copy)
    if named == (work.metadata.namespace, work.metadata.name):
        return True
    if labels.MANAGED not in copy.metadata.labels:
        return False
    return None in named or work.metadata.name == work_name(kind, ref_of(copy))


def _is_of_workload(copy: ApiObject, work: Work) -> bool:
    """Return False for a deployment of an earlier workload with the same name.

    It is deleted, not changed, because its instances belong to the earlier workload.
    """
    if not isinstance(copy, WorkloadDeployment):
        return True
    uid = workload_uid_in(work.spec.workload.manifests[0])
    return is_same_workload(copy.spec.workload_ref.uid, uid)


def _annotated_work(copy: ApiObject) -> tuple[str | None, str | None]:
    """Return the namespace and name of the Work in the annotations."""
    annotations = copy.metadata.annotations
    return annotations.get(labels.WORK_NAMESPACE), annotations.get(labels.WORK_NAME)


def _plan_removal(cell: PlaneName, work: Work, kind: KindInfo[Any], copy: ApiObject | None) -> Plan:
    """Delete the copy. The caller releases the Work when the copy is proven to be gone."""
    if copy is None or not is_copy_of(copy, kind, work):
        return Plan()
    waiting = Wait(f"{cell} is removing its copy")
    if copy.is_terminating:
        return Plan((waiting,), requeue_after_s=RECHECK_S)
    delete = Delete(cell, kind, ref_of(copy), copy.metadata.uid, "the hub removed it")
    return Plan((delete, waiting), requeue_after_s=RECHECK_S)


def _report_copy(
    work: Work, kind: KindInfo[Any], copy: ApiObject | None, problem: str, now: str
) -> list[Action]:
    verdict = (
        ConditionValue(FALSE, "AppliedFailed", problem)
        if problem
        else ConditionValue(TRUE, "AppliedSuccessful", "Manifest has been successfully applied")
    )
    applied = make_condition(APPLIED, verdict, generation=work.metadata.generation, now=now)
    conditions = with_condition(work.status.conditions, applied)
    if find_condition(conditions, DISPATCHING) is not None:
        verdict = ConditionValue(TRUE, "Dispatching", "Work is being dispatched")
        resumed = make_condition(DISPATCHING, verdict, generation=work.metadata.generation, now=now)
        conditions = with_condition(conditions, resumed)
    status = WorkStatus(conditions=conditions, manifest_statuses=_manifest_statuses(kind, copy))
    return plan_status(HUB, WORK, work, status)


def _manifest_statuses(kind: KindInfo[Any], copy: ApiObject | None) -> list[ManifestStatus]:
    """Return the status of the copy; empty if the copy is gone."""
    if copy is None or not kind.has_status:
        return []
    return [ManifestStatus(status=canonical(getattr(copy, "status")))]  # noqa: B009


def _report_suspended(
    work: Work, kind: KindInfo[Any], copy: ApiObject | None, now: str
) -> list[Action]:
    """Report the status of the copy. `Applied` is not updated, because nothing is applied."""
    verdict = ConditionValue(
        FALSE, "SuspendDispatching", "Work dispatching is in a suspended state."
    )
    held = make_condition(DISPATCHING, verdict, generation=work.metadata.generation, now=now)
    conditions = with_condition(work.status.conditions, held)
    status = WorkStatus(conditions=conditions, manifest_statuses=_manifest_statuses(kind, copy))
    return plan_status(HUB, WORK, work, status)
