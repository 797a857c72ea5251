"""What the embedded hub does in Karmada's place, trap by trap."""

from __future__ import annotations

from typing import Any

import msgspec

from datum_compute.api import labels
from datum_compute.api.cluster import Cluster
from datum_compute.api.codec import canonical
from datum_compute.api.conditions import TRUE, Verdict, decided
from datum_compute.api.kinds import CLUSTER_POLICY, DEPLOYMENT
from datum_compute.api.meta import ObjectMeta, Ref, ref_of
from datum_compute.api.namespace import Namespace
from datum_compute.api.plane import cell_plane
from datum_compute.api.propagationpolicy import PropagationPolicy
from datum_compute.api.resourcebinding import ResourceBinding, TargetCluster
from datum_compute.api.work import ManifestStatus, Work, WorkStatus
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.planning.actions import Create, Delete, Patch, PatchStatus, Wait
from datum_compute.planning.execution import (
    desired_copy,
    plan_execution,
    plan_orphans,
    plan_unreachable,
)
from datum_compute.planning.policies import plan_policies
from datum_compute.planning.propagation import plan_binding, plan_works
from datum_compute.testing.builders import NOW, a_deployment

CELL = cell_plane("dfw")
HOME = Namespace(metadata=ObjectMeta(name="ns-u", labels={labels.UPSTREAM_CLUSTER: "cluster-x"}))


def stored(obj: Any, uid: str, **metadata: object) -> Any:
    """The object as a plane would hold it."""
    changed = msgspec.structs.replace(
        obj.metadata, uid=uid, resource_version="5", generation=1, **metadata
    )
    return msgspec.structs.replace(obj, metadata=changed)


def a_template(city: str = "DFW", **metadata: object) -> WorkloadDeployment:
    bare = a_deployment(city=city, finalizers=())
    template: WorkloadDeployment = stored(
        bare, "template-uid", namespace="ns-u", labels={labels.TOPOLOGY_CITY: city}, **metadata
    )
    return template


def a_cluster(name: str, city: str) -> Cluster:
    return Cluster(metadata=ObjectMeta(name=name, labels={labels.TOPOLOGY_CITY: city}))


def city_policies(*templates: WorkloadDeployment) -> list[PropagationPolicy]:
    creates = plan_policies(HOME, templates, [], None).actions
    return [
        a.object
        for a in creates
        if isinstance(a, Create) and isinstance(a.object, PropagationPolicy)
    ]


def a_binding(*clusters: str, terminating: bool = False) -> ResourceBinding:
    (create,) = plan_binding(
        DEPLOYMENT, a_template(), city_policies(a_template()), [], None, NOW
    ).actions
    assert isinstance(create, Create)
    binding: ResourceBinding = stored(
        create.object, "binding-uid", deletion_timestamp=NOW if terminating else None
    )
    spec = msgspec.structs.replace(binding.spec, clusters=[TargetCluster(name=c) for c in clusters])
    return msgspec.structs.replace(binding, spec=spec)


def a_work(*, status: dict[str, Any] | None = None, terminating: bool = False) -> Work:
    (create, *_) = plan_works(DEPLOYMENT, a_binding("dfw"), a_template(), [], NOW).actions
    assert isinstance(create, Create)
    work: Work = stored(create.object, "work-uid", deletion_timestamp=NOW if terminating else None)
    if status is None:
        return work
    applied = decided("Applied", Verdict(TRUE, "AppliedSuccessful", ""), generation=1, now=NOW)
    reported = WorkStatus(conditions=[applied], manifest_statuses=[ManifestStatus(status=status)])
    return msgspec.structs.replace(work, status=reported)


def test_one_policy_for_each_city_in_use_and_one_for_the_namespace() -> None:
    creates = plan_policies(HOME, [a_template("DFW"), a_template("ORD")], [], None).actions
    names = [a.object.metadata.name for a in creates if isinstance(a, Create)]
    assert names == ["city-dfw", "city-ord", "ns-u"]


def test_a_namespace_is_never_taken_from_a_city_it_went_to() -> None:
    """It would take along what is arriving there: seen when one workload left as another came."""
    (_, both) = plan_policies(HOME, [a_template("DFW")], [], None).actions
    assert isinstance(both, Create)
    policy = stored(both.object, "namespace-policy")
    plan = plan_policies(HOME, [a_template("ORD")], [], policy)
    (patch,) = [a for a in plan.actions if isinstance(a, Patch)]
    selector = patch.patch["spec"]["placement"]["clusterAffinity"]["labelSelector"]
    assert selector["matchExpressions"][0]["values"] == ["DFW", "ORD"]
    emptied = plan_policies(HOME, [], [], policy)
    assert not [a for a in emptied.actions if a.kind is CLUSTER_POLICY]  # type: ignore[union-attr]


def test_a_policy_that_nobody_uses_goes_and_a_foreign_one_stays() -> None:
    ours = stored(city_policies(a_template("ORD"))[0], "ours")
    theirs = stored(ours, "theirs", name="by-hand", labels={})
    plan = plan_policies(HOME, [a_template("DFW")], [ours, theirs], None)
    (delete,) = [a for a in plan.actions if isinstance(a, Delete)]
    assert (delete.uid, delete.version) == ("ours", "5")


def test_an_object_goes_to_the_clusters_of_its_city_only() -> None:
    clusters = [a_cluster("dfw", "DFW"), a_cluster("ord", "ORD")]
    policies = city_policies(a_template("DFW"), a_template("ORD"))
    (create,) = plan_binding(DEPLOYMENT, a_template(), policies, clusters, None, NOW).actions
    assert isinstance(create, Create)
    binding = create.object
    assert isinstance(binding, ResourceBinding)
    assert [c.name for c in binding.spec.clusters] == ["dfw"]
    assert binding.metadata.name == "web-dfw-workloaddeployment"
    assert binding.metadata.owner_references[0].uid == "template-uid"


def test_a_city_without_a_cluster_is_reported_as_not_scheduled() -> None:
    policies = city_policies(a_template())
    (status,) = plan_binding(DEPLOYMENT, a_template(), policies, [], a_binding(), NOW).actions
    assert isinstance(status, PatchStatus)
    (condition,) = status.status["conditions"]
    assert (condition["status"], condition["reason"]) == ("False", "NoClusterFit")


def test_an_object_that_no_policy_selects_any_more_keeps_its_binding() -> None:
    plan = plan_binding(DEPLOYMENT, a_template(), [], [], a_binding("dfw"), NOW)
    assert plan.is_settled


def test_a_work_holds_the_object_without_what_only_matters_on_the_hub() -> None:
    manifest = a_work().spec.workload.manifests[0]
    assert manifest["metadata"] == {
        "name": "web-dfw",
        "namespace": "ns-u",
        "labels": {labels.TOPOLOGY_CITY: "DFW"},
    }
    assert manifest["spec"]["cityCode"] == "DFW"
    assert "status" not in manifest


def test_a_cluster_that_is_no_longer_a_target_loses_its_work() -> None:
    plan = plan_works(DEPLOYMENT, a_binding("ord"), a_template(), [a_work()], NOW)
    (delete,) = [a for a in plan.actions if isinstance(a, Delete)]
    assert delete.uid == "work-uid"


def test_the_single_member_speaks_for_the_object() -> None:
    work = a_work(status={"replicas": 3})
    plan = plan_works(DEPLOYMENT, a_binding("dfw"), a_template(), [work], NOW)
    writes = {a.kind.kind: a.status for a in plan.actions if isinstance(a, PatchStatus)}
    assert writes["WorkloadDeployment"]["replicas"] == 3
    applied = [c for c in writes["ResourceBinding"]["conditions"] if c["type"] == "FullyApplied"]
    assert applied[0]["status"] == "True"


def test_a_binding_lets_go_once_its_works_are_told_to_go() -> None:
    plan = plan_works(DEPLOYMENT, a_binding("dfw", terminating=True), None, [a_work()], NOW)
    delete, release = plan.actions
    assert isinstance(delete, Delete)
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


def test_drift_on_the_cell_is_overwritten_and_what_the_cell_added_stays() -> None:
    copy = stored(desired_copy(a_work(), DEPLOYMENT), "copy-uid", finalizers=["cells-own"])
    copy.metadata.labels["cells-own"] = "label"
    spec = msgspec.structs.replace(copy.spec, city_code="ORD")
    drifted = msgspec.structs.replace(copy, spec=spec)
    plan = plan_execution(CELL, a_work(), DEPLOYMENT, drifted, NOW)
    (patch,) = [a for a in plan.actions if isinstance(a, Patch)]
    assert patch.patch["spec"] == {"cityCode": "DFW"}
    assert "labels" not in patch.patch["metadata"]
    assert "finalizers" not in patch.patch["metadata"]


def test_an_object_the_hub_does_not_manage_is_never_taken_over() -> None:
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
    plan = plan_unreachable(a_work(status={"replicas": 3}), CELL, NOW)
    (write,) = plan.actions
    assert isinstance(write, PatchStatus)
    assert "manifestStatuses" not in write.status
    assert write.status["conditions"][0]["status"] == "False"
    assert plan.requeue_after_s is not None


def test_everything_in_place_needs_nothing() -> None:
    copy = stored(desired_copy(a_work(), DEPLOYMENT), "copy-uid")
    work = a_work(status=canonical(copy.status))
    message = "Manifest has been successfully applied"
    applied = decided("Applied", Verdict(TRUE, "AppliedSuccessful", message), generation=1, now=NOW)
    settled = msgspec.structs.replace(
        work, status=msgspec.structs.replace(work.status, conditions=[applied])
    )
    assert plan_execution(CELL, settled, DEPLOYMENT, copy, NOW).is_settled


def test_a_copy_is_an_orphan_only_of_the_work_it_names_and_would_have() -> None:
    work = ref_of(a_work())
    copy = stored(desired_copy(a_work(), DEPLOYMENT), "copy-uid")
    (delete,) = plan_orphans(CELL, work, DEPLOYMENT, [copy]).actions
    assert isinstance(delete, Delete)
    assert delete.uid == "copy-uid"
    assert plan_orphans(CELL, Ref(work.namespace, "another"), DEPLOYMENT, [copy]).actions == ()


def test_a_copy_with_a_forged_note_or_one_that_is_leaving_is_left_alone() -> None:
    work = a_work()
    copy = desired_copy(work, DEPLOYMENT)
    forged = {**copy.metadata.annotations, labels.WORK_NAME: "junk"}
    junk = stored(copy, "copy-uid", annotations=forged)
    assert (
        plan_orphans(CELL, Ref(work.metadata.namespace, "junk"), DEPLOYMENT, [junk]).actions == ()
    )
    leaving = stored(copy, "copy-uid", deletion_timestamp=NOW)
    assert plan_orphans(CELL, ref_of(work), DEPLOYMENT, [leaving]).actions == ()
