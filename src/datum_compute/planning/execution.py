"""One Work on its cell: the copy comes, is kept as the hub wants it, reports, and goes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from datum_compute.api import labels
from datum_compute.api.codec import canonical, typed
from datum_compute.api.conditions import FALSE, TRUE, Verdict, decided, with_condition
from datum_compute.api.kinds import WORK
from datum_compute.api.meta import ApiObject, KindInfo, Ref, ref_of
from datum_compute.api.plane import HUB, PlaneName
from datum_compute.api.work import ManifestStatus, Work, WorkStatus
from datum_compute.planning.actions import Action, Delete, Plan, Wait
from datum_compute.planning.objects import plan_object, plan_status
from datum_compute.planning.propagation import APPLIED, work_name

RECHECK_S = 30.0


def plan_execution(
    cell: PlaneName, work: Work, kind: KindInfo[Any], copy: ApiObject | None, now: str
) -> Plan:
    """``copy`` is what the cell holds under the manifest's name. Drift on the cell is
    overwritten; labels, finalizers and owners that the cell added stay."""
    if work.is_terminating:
        return _plan_removal(cell, work, kind, copy)
    if copy is not None and not is_copy_of(copy, work):
        problem = f"{kind.kind} {ref_of(copy)} exists on {cell} and is not managed by the hub"
        return Plan(tuple(_report(work, kind, None, problem, now)), requeue_after_s=RECHECK_S)
    if copy is not None and copy.is_terminating:
        return Plan((Wait("an earlier copy is being removed"),), requeue_after_s=RECHECK_S)
    actions = plan_object(cell, kind, desired_copy(work, kind), copy, "as the hub wants it")
    if copy is not None:
        actions += _report(work, kind, copy, "", now)
    return Plan(tuple(actions))


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

    A copy outlives its Work only if its creation was under way for longer than the Work lived.
    """
    return Plan(
        tuple(
            Delete(cell, kind, ref_of(copy), copy.metadata.uid, "its Work is gone")
            for copy in copies
            if _names(copy) == (work.namespace, work.name)
            and work_name(kind, ref_of(copy)) == work.name
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


def is_copy_of(copy: ApiObject, work: Work) -> bool:
    """By the annotations that name the Work; a managed copy that lost one is still ours."""
    named = _names(copy)
    if None in named:
        return labels.MANAGED in copy.metadata.labels
    return named == (work.metadata.namespace, work.metadata.name)


def _names(copy: ApiObject) -> tuple[str | None, str | None]:
    """The Work that the copy says it is of."""
    annotations = copy.metadata.annotations
    return annotations.get(labels.WORK_NAMESPACE), annotations.get(labels.WORK_NAME)


def _plan_removal(cell: PlaneName, work: Work, kind: KindInfo[Any], copy: ApiObject | None) -> Plan:
    """Removal ends with the copy gone; releasing the Work is for whoever has proof of that."""
    if copy is None or not is_copy_of(copy, work):
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
    statuses = work.status.manifest_statuses
    if copy is not None and kind.has_status:
        statuses = [ManifestStatus(status=canonical(getattr(copy, "status")))]  # noqa: B009
    conditions = with_condition(work.status.conditions, applied)
    status = WorkStatus(conditions=conditions, manifest_statuses=statuses)
    return plan_status(HUB, WORK, work, status)
