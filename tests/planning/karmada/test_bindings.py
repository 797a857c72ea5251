"""Policies, bindings and Works of the embedded hub, which replaces Karmada."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeploymentStatus
from datum_compute.api.compute.workload import ScaleSettings
from datum_compute.api.conditions import FALSE, ConditionValue, make_condition
from datum_compute.api.karmada import Cluster, ClusterStatus, ResourceBinding, Suspension, Work
from datum_compute.api.kinds import BINDING, CLUSTER_POLICY, DEPLOYMENT, WORK
from datum_compute.api.meta.codec import from_json, to_json
from datum_compute.api.meta.json_patch import apply_merge_patch
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.planning.federation.hub_namespaces import plan_policies
from datum_compute.planning.karmada.bindings import plan_binding, plan_unbound_works, plan_works
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Wait
from testkit.builders import NOW, of_workload
from tests.planning.karmada.propagated import (
    HOME,
    a_binding,
    a_cluster,
    a_template,
    a_work,
    city_policies,
    stored,
)


def test_one_policy_for_each_city_in_use_and_one_for_the_namespace() -> None:
    creates = plan_policies(HOME, [a_template("DFW"), a_template("ORD")], [], None).actions
    names = [a.object.metadata.name for a in creates if isinstance(a, Create)]
    assert names == ["city-dfw", "city-ord", "ns-u"]


def test_a_namespace_stays_in_every_city_it_was_placed_in() -> None:
    """Regression: its removal deleted a workload that was created there at the same time."""
    (_, both) = plan_policies(HOME, [a_template("DFW")], [], None).actions
    assert isinstance(both, Create)
    policy = stored(both.object, "namespace-policy")
    plan = plan_policies(HOME, [a_template("ORD")], [], policy)
    (patch,) = [a for a in plan.actions if isinstance(a, Patch)]
    selector = patch.patch["spec"]["placement"]["clusterAffinity"]["labelSelector"]
    assert selector["matchExpressions"][0]["values"] == ["DFW", "ORD"]
    emptied = plan_policies(HOME, [], [], policy)
    assert not [a for a in emptied.actions if a.kind is CLUSTER_POLICY]  # type: ignore[union-attr]


def test_an_unused_policy_is_deleted_and_a_foreign_one_stays() -> None:
    ours = stored(city_policies(a_template("ORD"))[0], "ours")
    theirs = stored(ours, "theirs", name="by-hand", labels={})
    plan = plan_policies(HOME, [a_template("DFW")], [ours, theirs], None)
    (delete,) = [a for a in plan.actions if isinstance(a, Delete)]
    assert (delete.uid, delete.version) == ("ours", "5")


def test_an_object_is_placed_only_on_clusters_of_its_city() -> None:
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


def test_an_object_without_a_policy_keeps_its_binding() -> None:
    plan = plan_binding(DEPLOYMENT, a_template(), [], [], a_binding("dfw"), NOW)
    assert plan.is_settled


def test_a_work_contains_the_object_without_fields_of_the_hub() -> None:
    manifest = a_work().spec.workload.manifests[0]
    assert manifest["metadata"] == {
        "name": "web-dfw",
        "namespace": "ns-u",
        "labels": {labels.TOPOLOGY_CITY: "DFW"},
    }
    assert manifest["spec"]["cityCode"] == "DFW"
    assert "status" not in manifest


@pytest.mark.parametrize(
    ("scale", "expected"),
    [
        ({"max_unavailable": 1}, {"minReplicas": 1}),
        ({"max_unavailable": 2}, {"minReplicas": 1, "maxUnavailable": 2}),
        (
            {"max_unavailable": 1, "max_surge": 1},
            {"minReplicas": 1, "maxUnavailable": 1, "maxSurge": 1},
        ),
    ],
)
def test_a_work_omits_max_unavailable_only_if_it_equals_the_default_of_0_1_0(
    scale: dict[str, Any], expected: dict[str, int]
) -> None:
    settings = ScaleSettings(min_replicas=1, **scale)
    template = a_template()
    spec = msgspec.structs.replace(template.spec, scale_settings=settings)
    template = msgspec.structs.replace(template, spec=spec)
    (create, *_) = plan_works(DEPLOYMENT, a_binding("dfw"), template, [], NOW).actions
    assert isinstance(create, Create)
    assert isinstance(create.object, Work)
    manifest = create.object.spec.workload.manifests[0]
    assert manifest["spec"]["scaleSettings"] == expected


def test_a_cluster_that_is_no_longer_a_target_loses_its_work() -> None:
    plan = plan_works(DEPLOYMENT, a_binding("ord"), a_template(), [a_work()], NOW)
    (delete,) = [a for a in plan.actions if isinstance(a, Delete)]
    assert delete.uid == "work-uid"


def test_a_binding_aggregates_no_status_before_a_cell_reported() -> None:
    for works in ([], [a_work()]):
        plan = plan_works(DEPLOYMENT, a_binding("dfw"), a_template(), works, NOW)
        assert not [a for a in plan.actions if isinstance(a, PatchStatus)]
    nowhere = plan_works(DEPLOYMENT, a_binding(), a_template(), [], NOW)
    (reported,) = [a for a in nowhere.actions if isinstance(a, PatchStatus)]
    assert reported.status["conditions"][0]["reason"] == "FullyAppliedFailed"


def test_the_status_of_the_single_cell_is_written_to_the_object() -> None:
    work = a_work(status={"replicas": 3})
    plan = plan_works(DEPLOYMENT, a_binding("dfw"), a_template(), [work], NOW)
    writes = {a.kind.kind: a.status for a in plan.actions if isinstance(a, PatchStatus)}
    assert writes["WorkloadDeployment"]["replicas"] == 3
    applied = [c for c in writes["ResourceBinding"]["conditions"] if c["type"] == "FullyApplied"]
    assert applied[0]["status"] == "True"


def test_a_terminating_work_or_one_of_an_earlier_object_is_not_aggregated() -> None:
    """Regression: after its hub namespace was recreated, the old Work made the new object ready."""
    leaving = a_work(status={"replicas": 3}, terminating=True)
    left = a_work(status={"replicas": 3})
    left.metadata.labels[labels.BINDING_ID] = "uid-of-an-earlier-binding"
    for work in (leaving, left):
        plan = plan_works(DEPLOYMENT, a_binding("dfw"), a_template(), [work], NOW)
        reported = {a.kind.kind for a in plan.actions if isinstance(a, PatchStatus)}
        assert reported == {"ResourceBinding"}


@pytest.mark.parametrize("terminating", [False, True])
def test_a_deployment_that_changes_its_cell_is_created_after_the_first_copy_is_gone(
    terminating: bool,
) -> None:
    """Otherwise both cells would run a machine for the same slot."""
    works = [a_work(terminating=terminating)]
    plan = plan_works(DEPLOYMENT, a_binding("dfw-2"), a_template(), works, NOW)
    assert not [a for a in plan.actions if isinstance(a, Create)]
    (wait,) = [a for a in plan.actions if isinstance(a, Wait)]
    assert wait.reason == "dfw has not confirmed that its copy is gone"
    arrives = plan_works(DEPLOYMENT, a_binding("dfw-2"), a_template(), [], NOW)
    assert [a for a in arrives.actions if isinstance(a, Create)]


def test_a_work_of_an_earlier_workload_is_deleted_and_its_report_does_not_count() -> None:
    later = of_workload(a_template(), "later")
    plan = plan_works(DEPLOYMENT, a_binding("dfw"), later, [a_work()], NOW)
    assert [a.uid for a in plan.actions if isinstance(a, Delete)] == ["work-uid"]
    assert not [a for a in plan.actions if isinstance(a, Create | Patch)]
    reported = [a for a in plan.actions if isinstance(a, PatchStatus) and a.kind is DEPLOYMENT]
    assert reported == []


def test_an_object_without_a_reporting_work_has_no_status() -> None:
    reported = msgspec.structs.replace(
        a_template(), status=WorkloadDeploymentStatus(ready_replicas=2)
    )
    leaving = a_work(status={"readyReplicas": 2}, terminating=True)
    for cells, works in (([], []), ([], [leaving]), (["dfw"], [a_work()])):
        plan = plan_works(DEPLOYMENT, a_binding(*cells), reported, works, NOW)
        (cleared,) = [
            a for a in plan.actions if isinstance(a, PatchStatus) and a.kind is DEPLOYMENT
        ]
        assert cleared.status == {"readyReplicas": 0}


def test_the_status_of_the_object_is_written_before_that_of_the_binding() -> None:
    work = a_work(status={"replicas": 3})
    plan = plan_works(DEPLOYMENT, a_binding("dfw"), a_template(), [work], NOW)
    kinds = [a.kind for a in plan.actions if isinstance(a, PatchStatus)]
    assert kinds == [DEPLOYMENT, BINDING]


def test_a_binding_is_released_once_its_works_are_deleted() -> None:
    plan = plan_works(DEPLOYMENT, a_binding("dfw", terminating=True), None, [a_work()], NOW)
    delete, release = plan.actions
    assert isinstance(delete, Delete)
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


def test_works_without_binding_and_object_are_deleted() -> None:
    """A create request that is delivered late leaves a Work that no binding removes."""
    (delete,) = plan_unbound_works([a_work(), a_work(terminating=True)]).actions
    assert isinstance(delete, Delete)
    assert (delete.kind, delete.uid) == (WORK, "work-uid")


def test_a_work_created_by_hand_needs_no_binding() -> None:
    by_hand = a_work()
    del by_hand.metadata.labels[labels.BINDING_ID]
    assert plan_unbound_works([by_hand]).is_settled


# --- suspension, and the generation that was applied


def suspended(**how: object) -> Suspension:
    return from_json(how, Suspension)


@pytest.mark.parametrize(("named_cluster", "holds"), [("dfw", True), ("lhr", None)])
def test_a_suspended_policy_suspends_the_works_of_the_named_clusters(
    named_cluster: str, holds: bool | None
) -> None:
    (policy,) = city_policies(a_template())
    named = suspended(dispatchingOnClusters={"clusterNames": [named_cluster]})
    held = msgspec.structs.replace(
        policy, spec=msgspec.structs.replace(policy.spec, suspension=named)
    )
    clusters = [a_cluster("dfw", "DFW")]
    (create,) = plan_binding(DEPLOYMENT, a_template(), [held], clusters, None, NOW).actions
    assert isinstance(create, Create)
    binding = stored(create.object, "binding-uid")
    works = plan_works(DEPLOYMENT, binding, a_template(), [], NOW).actions
    made = [a.object for a in works if isinstance(a, Create) and isinstance(a.object, Work)]
    reported = {work.metadata.namespace: work.spec.suspend_dispatching for work in made}
    assert reported == {"karmada-es-dfw": holds}


ALL_CLUSTERS, ON_DFW = {"dispatching": True}, {"dispatchingOnClusters": {"clusterNames": ["dfw"]}}
ON_LHR = {"dispatchingOnClusters": {"clusterNames": ["lhr"]}}


def replanned(binding: ResourceBinding, by_policy: dict[str, Any] | None) -> ResourceBinding:
    """Return the binding after a pass with this suspension in the policy."""
    (policy,) = city_policies(a_template())
    suspension = suspended(**by_policy) if by_policy else None
    spec = msgspec.structs.replace(policy.spec, suspension=suspension)
    held = msgspec.structs.replace(policy, spec=spec)
    dfw = [a_cluster("dfw", "DFW")]
    plan = plan_binding(DEPLOYMENT, a_template(), [held], dfw, binding, NOW)
    after: dict[str, Any] = to_json(binding)
    for action in plan.actions:
        if isinstance(action, Patch):
            after = apply_merge_patch(after, action.patch)
    return from_json(after, ResourceBinding)


def suspended_by_hand(binding: ResourceBinding, how: dict[str, Any] | None) -> ResourceBinding:
    return from_json(
        apply_merge_patch(to_json(binding), {"spec": {"suspension": how}}), ResourceBinding
    )


def holds_dfw(binding: ResourceBinding) -> bool:
    reported = binding.spec.suspension
    return reported is not None and reported.holds("dfw")


@pytest.mark.parametrize("own", [ALL_CLUSTERS, ON_DFW])
@pytest.mark.parametrize("by_policy", [ALL_CLUSTERS, ON_DFW, ON_LHR])
def test_suspensions_of_binding_and_policy_are_independent(
    own: dict[str, Any], by_policy: dict[str, Any]
) -> None:
    held = replanned(suspended_by_hand(a_binding("dfw"), own), None)
    assert holds_dfw(held), "the suspension written by hand stays"
    assert replanned(held, None) == held, "and is not written again"
    both = replanned(held, by_policy)
    assert holds_dfw(replanned(both, None)), "the policy takes only its own along"
    let_go = replanned(suspended_by_hand(both, None), by_policy)
    assert holds_dfw(let_go) == suspended(**by_policy).holds("dfw"), "the policy still holds"
    assert not holds_dfw(replanned(let_go, None))
    assert replanned(let_go, None).spec.suspension is None


def test_a_suspension_of_the_policy_alone_ends_with_it() -> None:
    held = replanned(a_binding("dfw"), ALL_CLUSTERS)
    assert holds_dfw(held)
    elsewhere = replanned(held, ON_LHR)
    assert not holds_dfw(elsewhere)
    assert replanned(elsewhere, None).spec.suspension is None


def test_the_suspension_of_a_policy_is_not_overwritten() -> None:
    (policy,) = city_policies(a_template())
    held = stored(policy, "policy-uid")
    spec = msgspec.structs.replace(held.spec, suspension=suspended(dispatching=True))
    held = msgspec.structs.replace(held, spec=spec)
    plan = plan_policies(HOME, [a_template()], [held], None)
    assert not [a for a in plan.actions if isinstance(a, Patch)]


def test_an_applied_earlier_generation_does_not_count_as_applied() -> None:
    work = stored(a_work(status={"replicas": 3}), "work-uid")
    newer = msgspec.structs.replace(
        work, metadata=msgspec.structs.replace(work.metadata, generation=2)
    )
    plan = plan_works(DEPLOYMENT, a_binding("dfw"), a_template(), [newer], NOW)
    reported = {a.kind.kind: a.status for a in plan.actions if isinstance(a, PatchStatus)}
    (applied,) = [
        c for c in reported["ResourceBinding"]["conditions"] if c["type"] == "FullyApplied"
    ]
    assert applied["status"] == "False"


# --- placement changes


def test_an_unreachable_cell_keeps_its_objects() -> None:
    """No failover by default: placement depends only on the labels and existence of Clusters."""
    policies = city_policies(a_template())
    gone = ConditionValue(FALSE, "ClusterNotReachable", "")
    cluster = a_cluster("dfw", "DFW")
    condition = make_condition("Ready", gone, generation=1, now=NOW)
    silent = msgspec.structs.replace(cluster, status=ClusterStatus(conditions=[condition]))
    clusters = [silent, a_cluster("ord", "ORD")]
    plan = plan_binding(DEPLOYMENT, a_template(), policies, clusters, a_binding("dfw"), NOW)
    assert not [a for a in plan.actions if isinstance(a, Patch | Delete)]
    (create,) = plan_binding(DEPLOYMENT, a_template(), policies, clusters, None, NOW).actions
    assert isinstance(create, Create)
    assert isinstance(create.object, ResourceBinding)
    assert [c.name for c in create.object.spec.clusters] == ["dfw"]


def test_a_template_held_by_a_finalizer_stays_on_its_cells() -> None:
    held = a_template(finalizers=["someone.example/holds"], deletion_timestamp=NOW)
    policies = city_policies(a_template())
    cluster = a_cluster("dfw", "DFW")
    assert plan_binding(DEPLOYMENT, held, policies, [cluster], a_binding("dfw"), NOW).is_settled
    plan = plan_works(DEPLOYMENT, a_binding("dfw"), held, [a_work()], NOW)
    assert not [a for a in plan.actions if isinstance(a, Delete)]


def test_a_cluster_without_its_city_label_loses_its_objects() -> None:
    policies = city_policies(a_template())
    to_json = Cluster(metadata=ObjectMeta(name="dfw"))
    plan = plan_binding(DEPLOYMENT, a_template(), policies, [to_json], a_binding("dfw"), NOW)
    (patch,) = [a for a in plan.actions if isinstance(a, Patch)]
    assert patch.patch["spec"] == {"clusters": None}


def test_a_terminating_cluster_loses_its_objects() -> None:
    policies = city_policies(a_template())
    cluster = a_cluster("dfw", "DFW")
    metadata = msgspec.structs.replace(cluster.metadata, deletion_timestamp=NOW)
    leaving = msgspec.structs.replace(cluster, metadata=metadata)
    plan = plan_binding(DEPLOYMENT, a_template(), policies, [leaving], a_binding("dfw"), NOW)
    (patch,) = [a for a in plan.actions if isinstance(a, Patch)]
    assert patch.patch["spec"] == {"clusters": None}
