"""One Work on its cell: the copy comes, is kept as the hub wants it, reports, and goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datum_compute.api import labels
from datum_compute.api.codec import canonical, typed
from datum_compute.api.conditions import (
    FALSE,
    TRUE,
    Verdict,
    decided,
    find_condition,
    with_condition,
)
from datum_compute.api.kinds import WORK
from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.plane import HUB, PlaneName
from datum_compute.api.work import ManifestStatus, Work, WorkStatus
from datum_compute.api.workloaddeployment import WorkloadDeployment, WorkloadDeploymentStatus
from datum_compute.api.workname import work_name
from datum_compute.planning.apply import plan_object, plan_status
from datum_compute.planning.initial_status import INITIAL_STATUS_S, should_defer
from datum_compute.planning.karmada.bindings import APPLIED
from datum_compute.planning.plan import Action, Delete, Plan, Wait

RECHECK_S = 30.0
# A namespace travels on its own, and may arrive a moment later than what lies in it.
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
    """``copy`` is what the cell holds under the manifest's name, ``missing_namespace`` what it
    lies in if that is not there. Drift on the cell is overwritten; labels, finalizers and owners
    that the cell added stay."""
    if work.is_terminating:
        return _plan_removal(cell, work, kind, copy)
    if copy is not None and not is_copy_of(copy, kind, work):
        problem = f"{kind.kind} {ref_of(copy)} exists on {cell} and is not managed by the hub"
        return Plan(tuple(_report(work, kind, None, problem, now)), requeue_after_s=RECHECK_S)
    if work.spec.suspend_dispatching:
        return Plan(tuple(_report_suspended(work, kind, copy, now)))
    if copy is not None and copy.is_terminating:
        return _plan_leaving(work, kind, copy, now)
    if missing_namespace:
        return _plan_homeless(cell, work, kind, missing_namespace, now)
    actions = plan_object(cell, kind, desired_copy(work, kind), copy, "as the hub wants it")
    if copy is not None and _is_on_its_way(work, copy, now):
        return Plan(tuple(actions), requeue_after_s=INITIAL_STATUS_S)
    if copy is not None:
        actions += _report(work, kind, copy, "", now)
    elif work.status.manifest_statuses:
        gone = f"{cell} has lost its copy, which is made anew"
        actions = [*_report(work, kind, None, gone, now), *actions]
    return Plan(tuple(actions))


def _plan_leaving(work: Work, kind: KindInfo[Any], copy: ApiObject, now: str) -> Plan:
    """Somebody removes it on the cell. It is heard to its end, but only by a Work that has heard of
    it before: what an earlier one has left says nothing of the object that is to come."""
    problem = "an earlier copy is being removed"
    reported = _report(work, kind, copy, problem, now) if work.status.manifest_statuses else []
    return Plan((*reported, Wait(problem)), requeue_after_s=RECHECK_S)


def _plan_homeless(
    cell: PlaneName, work: Work, kind: KindInfo[Any], namespace: str, now: str
) -> Plan:
    problem = f"namespace {namespace} is not on {cell} yet"
    if should_defer(work, work.status.conditions, now):
        return Plan((Wait(problem),), requeue_after_s=NAMESPACE_S)
    reported = _report(work, kind, None, problem, now)
    return Plan(tuple(reported), requeue_after_s=MISSING_NAMESPACE_S)


def _is_on_its_way(work: Work, copy: ApiObject, now: str) -> bool:
    """A new copy that has yet to say something: that it arrived is told with its first word."""
    if not isinstance(copy, WorkloadDeployment) or copy.status != WorkloadDeploymentStatus():
        return False
    return should_defer(work, work.status.conditions, now)


def plan_unreachable(work: Work, cell: PlaneName, now: str) -> Plan:
    """The cell cannot be reached: say so, keep its last report, look again."""
    verdict = Verdict(FALSE, "AppliedFailed", f"{cell} is not reachable")
    applied = decided(APPLIED, verdict, generation=work.metadata.generation, now=now)
    status = WorkStatus(
        conditions=with_condition(work.status.conditions, applied),
        manifest_statuses=work.status.manifest_statuses,
    )
    return Plan(tuple(plan_status(HUB, WORK, work, status)), requeue_after_s=RECHECK_S)


def plan_orphans(
    cell: PlaneName, work: Ref, kind: KindInfo[Any], copies: Sequence[ApiObject]
) -> Plan:
    """``copies`` are those of the cell that the hub manages; the Work is proven not to be there.

    A copy outlives its Work only if its creation was under way for longer than the Work lived. One
    whose note of its Work was edited is told by its name, but never one that had no note at all.
    """
    return Plan(
        tuple(
            Delete(cell, kind, ref_of(copy), copy.metadata.uid, "its Work is gone")
            for copy in copies
            if work_name(kind, ref_of(copy)) == work.name
            and _names(copy) != (None, None)
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
    copy: ApiObject = typed({**manifest, "metadata": marked}, kind.model)
    return copy


def is_copy_of(copy: ApiObject, kind: KindInfo[Any], work: Work) -> bool:
    """By the annotations that name the Work. Those are notes that anybody may edit, so what bears
    the hub's mark and lacks one, or whose own name leads to the Work, is its copy all the same."""
    named = _names(copy)
    if named == (work.metadata.namespace, work.metadata.name):
        return True
    if labels.MANAGED not in copy.metadata.labels:
        return False
    return None in named or work.metadata.name == work_name(kind, ref_of(copy))


def _names(copy: ApiObject) -> tuple[str | None, str | None]:
    """The Work that the copy says it is of."""
    annotations = copy.metadata.annotations
    return annotations.get(labels.WORK_NAMESPACE), annotations.get(labels.WORK_NAME)


def _plan_removal(cell: PlaneName, work: Work, kind: KindInfo[Any], copy: ApiObject | None) -> Plan:
    """Removal ends with the copy gone; releasing the Work is for whoever has proof of that."""
    if copy is None or not is_copy_of(copy, kind, work):
        return Plan()
    waiting = Wait(f"{cell} is removing its copy")
    if copy.is_terminating:
        return Plan((waiting,), requeue_after_s=RECHECK_S)
    delete = Delete(cell, kind, ref_of(copy), copy.metadata.uid, "the hub removed it")
    return Plan((delete, waiting), requeue_after_s=RECHECK_S)


def _report(
    work: Work, kind: KindInfo[Any], copy: ApiObject | None, problem: str, now: str
) -> list[Action]:
    verdict = (
        Verdict(FALSE, "AppliedFailed", problem)
        if problem
        else Verdict(TRUE, "AppliedSuccessful", "Manifest has been successfully applied")
    )
    applied = decided(APPLIED, verdict, generation=work.metadata.generation, now=now)
    conditions = with_condition(work.status.conditions, applied)
    if find_condition(conditions, DISPATCHING) is not None:
        verdict = Verdict(TRUE, "Dispatching", "Work is being dispatched")
        resumed = decided(DISPATCHING, verdict, generation=work.metadata.generation, now=now)
        conditions = with_condition(conditions, resumed)
    status = WorkStatus(conditions=conditions, manifest_statuses=_statuses(kind, copy))
    return plan_status(HUB, WORK, work, status)


def _statuses(kind: KindInfo[Any], copy: ApiObject | None) -> list[ManifestStatus]:
    """The copy's own word. One that is gone has none: what it said last is no longer so."""
    if copy is None or not kind.has_status:
        return []
    return [ManifestStatus(status=canonical(getattr(copy, "status")))]  # noqa: B009


def _report_suspended(
    work: Work, kind: KindInfo[Any], copy: ApiObject | None, now: str
) -> list[Action]:
    """What is on the cell is reported all the same. Whether it is as the hub wants it now nobody
    says: the word of an earlier generation stays what it is."""
    verdict = Verdict(FALSE, "SuspendDispatching", "Work dispatching is in a suspended state.")
    held = decided(DISPATCHING, verdict, generation=work.metadata.generation, now=now)
    conditions = with_condition(work.status.conditions, held)
    status = WorkStatus(conditions=conditions, manifest_statuses=_statuses(kind, copy))
    return plan_status(HUB, WORK, work, status)
