"""Execution of a Work on its cell by the embedded hub, which replaces Karmada."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeploymentStatus
from datum_compute.api.conditions import TRUE, ConditionValue, make_condition
from datum_compute.api.karmada import Work
from datum_compute.api.kinds import DEPLOYMENT
from datum_compute.api.meta.codec import canonical
from datum_compute.api.meta.objects import Ref, ref_of
from datum_compute.planning.initial_status import INITIAL_STATUS_S
from datum_compute.planning.karmada.works import (
    NAMESPACE_S,
    desired_copy,
    is_copy_of,
    plan_execution,
    plan_orphaned_copies,
    plan_unreachable_cell,
)
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Plan, Wait
from testkit.builders import NOW, a_deployment, of_workload
from tests.planning.karmada.propagated import CELL, a_work, stored


def test_applied_is_reported_together_with_the_first_status() -> None:
    work = a_work()
    metadata = msgspec.structs.replace(work.metadata, creation_timestamp=NOW)
    new = msgspec.structs.replace(work, metadata=metadata)
    copy = stored(desired_copy(new, DEPLOYMENT), "copy-uid")
    silent = plan_execution(CELL, new, DEPLOYMENT, copy, NOW)
    assert (silent.actions, silent.requeue_after_s) == ((), INITIAL_STATUS_S)
    (late,) = plan_execution(CELL, new, DEPLOYMENT, copy, "2030-01-01T00:00:00Z").actions
    status = WorkloadDeploymentStatus(replicas=1, observed_generation=1)
    reporting = msgspec.structs.replace(copy, status=status)
    (reported,) = plan_execution(CELL, new, DEPLOYMENT, reporting, NOW).actions
    assert isinstance(late, PatchStatus)
    assert isinstance(reported, PatchStatus)


def test_an_object_without_its_namespace_waits_and_reports_it_after_a_while() -> None:
    def planned(work: Work, now: str) -> Plan:
        return plan_execution(CELL, work, DEPLOYMENT, None, now, missing_namespace="ns-1")

    work = a_work()
    metadata = msgspec.structs.replace(work.metadata, creation_timestamp=NOW)
    new = msgspec.structs.replace(work, metadata=metadata)
    (waits,) = planned(new, NOW).actions
    assert isinstance(waits, Wait)
    assert planned(new, NOW).requeue_after_s == NAMESPACE_S
    for another_time in ("2030-01-01T00:00:00Z", "2001-01-01T00:00:00Z"):
        late = planned(new, another_time)
        (reported,) = late.actions
        assert isinstance(reported, PatchStatus), "also with a clock that is far behind"
        assert "namespace ns-1 is not on cell/dfw" in reported.status["conditions"][0]["message"]
        assert late.requeue_after_s is not None


def test_drift_on_the_cell_is_overwritten_and_fields_added_by_the_cell_stay() -> None:
    copy = stored(desired_copy(a_work(), DEPLOYMENT), "copy-uid", finalizers=["cells-own"])
    copy.metadata.labels["cells-own"] = "label"
    spec = msgspec.structs.replace(copy.spec, city_code="ORD")
    drifted = msgspec.structs.replace(copy, spec=spec)
    plan = plan_execution(CELL, a_work(), DEPLOYMENT, drifted, NOW)
    (patch,) = [a for a in plan.actions if isinstance(a, Patch)]
    assert patch.patch["spec"] == {"cityCode": "DFW"}
    assert "labels" not in patch.patch["metadata"]
    assert "finalizers" not in patch.patch["metadata"]


def test_an_object_that_the_hub_does_not_manage_is_not_adopted() -> None:
    foreign = stored(a_deployment(), "foreign-uid", namespace="ns-u")
    plan = plan_execution(CELL, a_work(), DEPLOYMENT, foreign, NOW)
    (report,) = plan.actions
    assert isinstance(report, PatchStatus)
    assert "not managed" in report.status["conditions"][0]["message"]


def test_a_foreign_object_is_not_deleted_with_the_work() -> None:
    foreign = stored(a_deployment(), "foreign-uid", namespace="ns-u")
    assert plan_execution(CELL, a_work(terminating=True), DEPLOYMENT, foreign, NOW).is_settled


def test_a_terminating_work_deletes_its_copy_and_waits() -> None:
    copy = stored(desired_copy(a_work(), DEPLOYMENT), "copy-uid")
    delete, wait = plan_execution(CELL, a_work(terminating=True), DEPLOYMENT, copy, NOW).actions
    assert isinstance(delete, Delete)
    assert delete.uid == "copy-uid"
    assert isinstance(wait, Wait)


def test_an_unreachable_cell_keeps_its_last_report_but_is_not_applied() -> None:
    plan = plan_unreachable_cell(a_work(status={"replicas": 3}), CELL, NOW)
    (write,) = plan.actions
    assert isinstance(write, PatchStatus)
    assert "manifestStatuses" not in write.status
    assert write.status["conditions"][0]["status"] == "False"
    assert plan.requeue_after_s is not None


def test_a_terminating_copy_is_reported_until_it_is_gone() -> None:
    """Regression: when its namespace was deleted, it stayed ready because of its earlier report."""
    status = WorkloadDeploymentStatus(replicas=3, observed_generation=2)
    copy = stored(desired_copy(a_work(), DEPLOYMENT), "copy-uid", deletion_timestamp=NOW)
    leaving = msgspec.structs.replace(copy, status=status)
    work = a_work(status={"replicas": 3, "readyReplicas": 3})
    plan = plan_execution(CELL, work, DEPLOYMENT, leaving, NOW)
    report, wait = plan.actions
    assert isinstance(report, PatchStatus)
    assert report.status["manifestStatuses"] == [{"status": canonical(status)}]
    assert report.status["conditions"][0]["status"] == "False"
    assert isinstance(wait, Wait), "it is recreated only when it is gone"
    assert plan.requeue_after_s is not None
    (only_waits,) = plan_execution(CELL, a_work(), DEPLOYMENT, leaving, NOW).actions
    assert isinstance(only_waits, Wait), "a new Work is not spoken for by what was there before"


@pytest.mark.parametrize("is_suspended", [False, True])
@pytest.mark.parametrize("missing_namespace", ["", "ns-u"])
def test_the_status_of_a_lost_copy_is_cleared(missing_namespace: str, is_suspended: bool) -> None:
    """Otherwise the project would show it as ready. The report is cleared before any write to the
    cell, because that may fail for a long time.
    """
    reported = {"replicas": 3}
    work = a_suspended_work(reported) if is_suspended else a_work(status=reported)
    plan = plan_execution(CELL, work, DEPLOYMENT, None, NOW, missing_namespace=missing_namespace)
    report, *created = plan.actions
    assert isinstance(report, PatchStatus)
    assert report.status["manifestStatuses"] is None
    assert bool(created) == (not missing_namespace and not is_suspended)


def test_a_foreign_object_of_the_same_name_is_not_reported() -> None:
    foreign = stored(a_deployment(), "foreign-uid", namespace="ns-u")
    work = a_work(status={"replicas": 3})
    (report,) = plan_execution(CELL, work, DEPLOYMENT, foreign, NOW).actions
    assert isinstance(report, PatchStatus)
    assert report.status["manifestStatuses"] is None


def test_a_copy_that_never_reported_is_recreated_without_a_report() -> None:
    (create,) = plan_execution(CELL, a_work(), DEPLOYMENT, None, NOW).actions
    assert isinstance(create, Create)


def test_a_settled_work_needs_no_action() -> None:
    copy = stored(desired_copy(a_work(), DEPLOYMENT), "copy-uid")
    work = a_work(status=canonical(copy.status))
    message = "Manifest has been successfully applied"
    applied = make_condition(
        "Applied", ConditionValue(TRUE, "AppliedSuccessful", message), generation=1, now=NOW
    )
    settled = msgspec.structs.replace(
        work, status=msgspec.structs.replace(work.status, conditions=[applied])
    )
    assert plan_execution(CELL, settled, DEPLOYMENT, copy, NOW).is_settled


def test_an_edited_work_annotation_is_restored_on_the_copy() -> None:
    copy = desired_copy(a_work(), DEPLOYMENT)
    edited = {**copy.metadata.annotations, labels.WORK_NAME: "junk"}
    plan = plan_execution(CELL, a_work(), DEPLOYMENT, stored(copy, "u", annotations=edited), NOW)
    (mend,) = [a for a in plan.actions if isinstance(a, Patch)]
    assert mend.patch["metadata"]["annotations"] == {labels.WORK_NAME: a_work().metadata.name}
    unmarked = stored(copy, "u", annotations=edited, labels={})
    assert not is_copy_of(unmarked, DEPLOYMENT, a_work())


def test_a_copy_is_an_orphan_only_of_the_work_of_its_name() -> None:
    work = ref_of(a_work())
    copy = stored(desired_copy(a_work(), DEPLOYMENT), "copy-uid")
    (delete,) = plan_orphaned_copies(CELL, work, DEPLOYMENT, [copy]).actions
    assert isinstance(delete, Delete)
    assert delete.uid == "copy-uid"
    assert (
        plan_orphaned_copies(CELL, Ref(work.namespace, "another"), DEPLOYMENT, [copy]).actions == ()
    )


def test_a_copy_with_a_forged_annotation_is_not_an_orphan_of_another_work() -> None:
    work = a_work()
    copy = desired_copy(work, DEPLOYMENT)
    forged = {**copy.metadata.annotations, labels.WORK_NAME: "junk"}
    junk = stored(copy, "copy-uid", annotations=forged)
    assert (
        plan_orphaned_copies(CELL, Ref(work.metadata.namespace, "junk"), DEPLOYMENT, [junk]).actions
        == ()
    )
    assert len(plan_orphaned_copies(CELL, ref_of(work), DEPLOYMENT, [junk]).actions) == 1


def test_a_copy_without_annotation_or_a_terminating_one_is_not_deleted_as_an_orphan() -> None:
    work = a_work()
    copy = desired_copy(work, DEPLOYMENT)
    noteless = stored(copy, "copy-uid", annotations={})
    assert plan_orphaned_copies(CELL, ref_of(work), DEPLOYMENT, [noteless]).actions == ()
    leaving = stored(copy, "copy-uid", deletion_timestamp=NOW)
    assert plan_orphaned_copies(CELL, ref_of(work), DEPLOYMENT, [leaving]).actions == ()


def a_suspended_work(status: dict[str, Any] | None = None) -> Work:
    work = a_work(status=status)
    spec = msgspec.structs.replace(work.spec, suspend_dispatching=True)
    return msgspec.structs.replace(work, spec=spec)


def test_a_suspended_work_writes_no_changes_but_reports_and_deletes() -> None:
    copy = stored(desired_copy(a_work(), DEPLOYMENT), "copy-uid")
    changed = msgspec.structs.replace(copy.spec, city_code="ORD")
    drifted = msgspec.structs.replace(copy, spec=changed)
    (report,) = plan_execution(CELL, a_suspended_work(), DEPLOYMENT, drifted, NOW).actions
    assert isinstance(report, PatchStatus)
    assert [c["reason"] for c in report.status["conditions"]] == ["SuspendDispatching"]
    assert report.status["manifestStatuses"]
    (first,) = plan_execution(CELL, a_suspended_work(), DEPLOYMENT, None, NOW).actions
    assert isinstance(first, PatchStatus), "nothing is created either"
    leaving = stored(a_suspended_work(), "work-uid", deletion_timestamp=NOW)
    delete, _ = plan_execution(CELL, leaving, DEPLOYMENT, copy, NOW).actions
    assert isinstance(delete, Delete)


def test_a_deployment_of_an_earlier_workload_is_removed_before_it_is_created_again() -> None:
    """Its instances belong to the earlier workload, so the cell must not change its owner."""
    work = a_work()
    copy = stored(desired_copy(work, DEPLOYMENT), "copy-uid")
    status = WorkloadDeploymentStatus(ready_replicas=1, observed_generation=1)
    earlier = of_workload(msgspec.structs.replace(copy, status=status), "earlier")
    delete, wait = plan_execution(CELL, work, DEPLOYMENT, earlier, NOW).actions
    assert isinstance(delete, Delete)
    assert delete.uid == "copy-uid"
    assert isinstance(wait, Wait)
