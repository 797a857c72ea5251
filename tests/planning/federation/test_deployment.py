"""Federation of a deployment: the order of writes, reports that count, and waits at removal.

Finalizers: added before the first write, and removed last, after all other controllers finished.
"""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import (
    ObservedSource,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.api.compute.workload import Workload, WorkloadSpec
from datum_compute.api.conditions import FALSE, ConditionValue, find_condition, make_condition
from datum_compute.api.core import Namespace
from datum_compute.api.karmada import (
    AggregatedStatusItem,
    PropagatedObject,
    ResourceBinding,
    ResourceBindingSpec,
    ResourceBindingStatus,
    TargetCluster,
)
from datum_compute.api.kinds import BINDING, DEPLOYMENT, NAMESPACE, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import ObjectMeta, owner_reference
from datum_compute.api.planes import HUB, project_plane
from datum_compute.planning.federation.deployment import (
    NAMESPACE_REMOVAL_RECHECK_S,
    HubState,
    plan_federation,
    plan_orphan_deletion,
    project_status_from_hub,
)
from datum_compute.planning.initial_status import INITIAL_STATUS_S
from datum_compute.planning.plan import (
    Create,
    Delete,
    Patch,
    PatchStatus,
    Wait,
    add_finalizer,
    drop_finalizer,
)
from testkit.builders import NOW, a_deployment, a_template, of_workload

LONG_AGO = "2020-01-01T00:00:00Z"
PROJECT = project_plane("shop")
NAMESPACE_OF_USER = Namespace(metadata=ObjectMeta(name="default", uid="namespace-uid"))
NOTHING = HubState(None, None, None)


def federated(
    *, generation: int = 3, terminating: bool = False, made: str = LONG_AGO
) -> WorkloadDeployment:
    """Return a project deployment with its hub namespace recorded."""
    bare = a_deployment(finalizers=(labels.FEDERATOR_FINALIZER,), terminating=terminating)
    metadata = msgspec.structs.replace(
        bare.metadata,
        generation=generation,
        creation_timestamp=made,
        annotations={labels.FEDERATION_NAMESPACE: "ns-namespace-uid"},
    )
    return msgspec.structs.replace(bare, metadata=metadata)


def on_hub(status: WorkloadDeploymentStatus | None = None) -> WorkloadDeployment:
    (create,) = [
        a
        for a in plan_federation(PROJECT, federated(), NAMESPACE_OF_USER, NOTHING, NOW).actions
        if isinstance(a, Create) and a.kind is DEPLOYMENT
    ]
    obj = create.object
    assert isinstance(obj, WorkloadDeployment)
    metadata = msgspec.structs.replace(obj.metadata, uid="hub-uid", resource_version="9")
    return msgspec.structs.replace(
        obj, metadata=metadata, status=status or WorkloadDeploymentStatus()
    )


REPORTED: JsonObject = {"observedSource": {"generation": 1}}


def a_binding(
    *,
    scheduled: bool = True,
    reported_by: str = "dfw",
    status: JsonObject | None = REPORTED,
    owned: bool = True,
) -> ResourceBinding:
    """Return a binding to the cell dfw; `reported_by` may be another cell."""
    verdict = ConditionValue(FALSE, "NoClusterFit", "")
    conditions = [] if scheduled else [make_condition("Scheduled", verdict, generation=1, now=NOW)]
    return ResourceBinding(
        metadata=ObjectMeta(
            name="web-dfw-workloaddeployment",
            namespace="ns-namespace-uid",
            uid="binding-uid",
            resource_version="12",
            owner_references=[owner_reference(on_hub(), DEPLOYMENT)] if owned else [],
        ),
        spec=ResourceBindingSpec(
            resource=PropagatedObject(api_version="v", kind="WorkloadDeployment", name="web-dfw"),
            clusters=[TargetCluster(name="dfw")],
        ),
        status=ResourceBindingStatus(
            conditions=conditions,
            aggregated_status=[AggregatedStatusItem(cluster_name=reported_by, status=status)],
        ),
    )


def test_the_report_of_an_unbound_cell_does_not_count() -> None:
    """Regression: when a city got another cell, the report of the old one made it Available."""
    last_report = WorkloadDeploymentStatus(replicas=2, observed_source=ObservedSource(generation=3))
    state = HubState(NAMESPACE_OF_USER, on_hub(last_report), a_binding(reported_by="dfw-1"))
    status = project_status_from_hub(federated(), state, NOW)
    available = find_condition(status.conditions, "Available")
    assert available is not None
    assert (available.status, available.reason) == (FALSE, "AwaitingPropagation")
    assert status.replicas == 0


@pytest.mark.parametrize("reported", [None, {}, {"observedSource": {}}])
def test_a_recreated_copy_does_not_use_the_report_of_its_predecessor(
    reported: JsonObject | None,
) -> None:
    """Karmada keeps the report of the first copy until the second one reports."""
    last_report = WorkloadDeploymentStatus(replicas=2, observed_source=ObservedSource(generation=3))
    state = HubState(NAMESPACE_OF_USER, on_hub(last_report), a_binding(status=reported))
    status = project_status_from_hub(federated(), state, NOW)
    available = find_condition(status.conditions, "Available")
    assert available is not None
    assert (available.status, available.reason) == (FALSE, "AwaitingPropagation")
    assert status.replicas == 0


def test_a_hub_deployment_of_an_earlier_workload_is_deleted_and_its_report_does_not_count() -> None:
    ready = WorkloadDeploymentStatus(ready_replicas=2, observed_source=ObservedSource(generation=3))
    earlier = of_workload(on_hub(ready), "earlier")
    state = HubState(NAMESPACE_OF_USER, earlier, a_binding())
    plan = plan_federation(PROJECT, federated(), NAMESPACE_OF_USER, state, NOW)
    delete, report, wait = plan.actions
    assert isinstance(delete, Delete)
    assert (delete.kind, delete.uid) == (DEPLOYMENT, "hub-uid")
    assert isinstance(report, PatchStatus)
    assert report.status.get("readyReplicas", 0) == 0
    assert isinstance(wait, Wait)
    assert plan.requeue_after_s is not None


def test_a_hub_deployment_without_source_is_deleted_if_a_federator_created_it() -> None:
    (delete,) = plan_orphan_deletion(on_hub()).actions
    assert isinstance(delete, Delete)
    assert (delete.plane, delete.uid, delete.version) == (HUB, "hub-uid", "9")
    assert plan_orphan_deletion(None).is_settled
    assert plan_orphan_deletion(a_deployment()).is_settled


def test_the_hub_namespace_is_recorded_before_the_first_hub_write() -> None:
    bare = a_deployment(finalizers=(labels.FEDERATOR_FINALIZER,))
    (only,) = plan_federation(PROJECT, bare, NAMESPACE_OF_USER, NOTHING, NOW).actions
    assert isinstance(only, Patch)
    assert only.plane == PROJECT
    annotations = only.patch["metadata"]["annotations"]
    assert annotations == {labels.FEDERATION_NAMESPACE: "ns-namespace-uid"}


def test_a_deployment_without_the_finalizer_gets_it_first() -> None:
    bare = a_deployment(finalizers=())
    (only,) = plan_federation(PROJECT, bare, NAMESPACE_OF_USER, NOTHING, NOW).actions
    assert isinstance(only, Patch)
    assert only.patch["metadata"]["finalizers"] == [labels.FEDERATOR_FINALIZER]


def test_the_hub_namespace_has_the_identity_labels_of_its_project() -> None:
    plan = plan_federation(PROJECT, federated(), NAMESPACE_OF_USER, NOTHING, NOW)
    namespace, deployment = [a for a in plan.actions if isinstance(a, Create)]
    assert (namespace.plane, namespace.kind) == (HUB, NAMESPACE)
    assert namespace.object.metadata.name == "ns-namespace-uid"
    assert namespace.object.metadata.labels == {
        labels.UPSTREAM_NAMESPACE: "default",
        labels.UPSTREAM_CLUSTER: "cluster-shop",
    }
    assert deployment.object.metadata.labels[labels.TOPOLOGY_CITY] == "DFW"


def test_the_hub_deployment_has_the_source_generation_and_no_finalizer() -> None:
    metadata = on_hub().metadata
    assert metadata.annotations[labels.SOURCE_GENERATION] == "3"
    assert metadata.finalizers == []


def test_a_status_is_reported_for_its_observed_source_generation() -> None:
    last_report = WorkloadDeploymentStatus(
        replicas=2, observed_generation=40, observed_source=ObservedSource(generation=2)
    )
    state = HubState(NAMESPACE_OF_USER, on_hub(last_report), a_binding())
    plan = plan_federation(PROJECT, federated(generation=3), NAMESPACE_OF_USER, state, NOW)
    (status,) = [a for a in plan.actions if isinstance(a, PatchStatus)]
    assert status.status["observedGeneration"] == 2
    assert plan.requeue_after_s is not None


def test_the_cause_is_reported_until_the_first_report_of_a_cell() -> None:
    for scheduled, reason in ((True, "AwaitingPropagation"), (False, "NoMatchingLocation")):
        state = HubState(NAMESPACE_OF_USER, on_hub(), a_binding(scheduled=scheduled))
        plan = plan_federation(PROJECT, federated(), NAMESPACE_OF_USER, state, NOW)
        (write,) = [a for a in plan.actions if isinstance(a, PatchStatus)]
        (condition,) = write.status["conditions"]
        assert (condition["status"], condition["reason"]) == (FALSE, reason)
        assert "DFW" in condition["message"]


def test_the_status_of_a_new_deployment_without_problems_is_deferred() -> None:
    new = federated(made=NOW)
    for state in (NOTHING, HubState(NAMESPACE_OF_USER, on_hub(), a_binding(scheduled=True))):
        plan = plan_federation(PROJECT, new, NAMESPACE_OF_USER, state, NOW)
        assert not [a for a in plan.actions if isinstance(a, PatchStatus)]
        assert plan.requeue_after_s == INITIAL_STATUS_S


def test_a_problem_of_a_new_deployment_is_reported_at_once() -> None:
    state = HubState(NAMESPACE_OF_USER, on_hub(), a_binding(scheduled=False))
    plan = plan_federation(PROJECT, federated(made=NOW), NAMESPACE_OF_USER, state, NOW)
    (write,) = [a for a in plan.actions if isinstance(a, PatchStatus)]
    assert write.status["conditions"][0]["reason"] == "NoMatchingLocation"


def test_the_reason_of_the_cells_replaces_the_reason_of_the_scheduler() -> None:
    drained = ConditionValue(
        FALSE, "CellDrained", "Cell dfw is drained: nothing new is placed there"
    )
    state = HubState(
        NAMESPACE_OF_USER, on_hub(), a_binding(scheduled=False), placement_error=drained
    )
    plan = plan_federation(PROJECT, federated(), NAMESPACE_OF_USER, state, NOW)
    (write,) = [a for a in plan.actions if isinstance(a, PatchStatus)]
    (condition,) = write.status["conditions"]
    assert (condition["reason"], condition["message"]) == (drained.reason, drained.message)


def test_removal_waits_for_the_hub_deployment_and_then_for_its_binding() -> None:
    going = federated(terminating=True)
    delete, wait = plan_federation(
        PROJECT, going, None, HubState(None, on_hub(), a_binding()), NOW
    ).actions
    assert isinstance(delete, Delete)
    assert (delete.plane, delete.uid) == (HUB, "hub-uid")
    assert isinstance(wait, Wait)
    (wait,) = plan_federation(PROJECT, going, None, HubState(None, None, a_binding()), NOW).actions
    assert isinstance(wait, Wait)
    (release,) = plan_federation(PROJECT, going, None, NOTHING, NOW).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


def test_removal_deletes_a_binding_that_lost_its_owner() -> None:
    """Regression: an operator deleted the hub deployment with --cascade=orphan (seed 21000354)."""
    going = federated(terminating=True)
    state = HubState(None, None, a_binding(owned=False))
    delete, wait = plan_federation(PROJECT, going, None, state, NOW).actions
    assert isinstance(delete, Delete)
    assert (delete.plane, delete.kind, delete.uid, delete.version) == (
        HUB,
        BINDING,
        "binding-uid",
        "12",
    )
    assert isinstance(wait, Wait)


def test_a_mirrored_status_that_has_not_changed_is_not_written() -> None:
    last_report = WorkloadDeploymentStatus(replicas=1, observed_source=ObservedSource(generation=3))
    state = HubState(None, on_hub(last_report), a_binding())
    mirrored = msgspec.structs.replace(
        federated(), status=msgspec.structs.replace(last_report, observed_generation=3)
    )
    plan = plan_federation(PROJECT, mirrored, NAMESPACE_OF_USER, state, NOW)
    assert not [a for a in plan.actions if isinstance(a, PatchStatus)]
    assert find_condition(mirrored.status.conditions, "Available") is None


def test_removal_waits_for_the_confirmation_of_every_reachable_cell() -> None:
    """Regression: destroy printed "deleted" while the machine still ran."""
    going = federated(terminating=True)
    state = HubState(None, None, None, cells_pending_deletion=("dfw",))
    report, wait = plan_federation(PROJECT, going, None, state, NOW).actions
    assert isinstance(report, PatchStatus)
    (condition,) = report.status["conditions"]
    assert (condition["reason"], "dfw" in condition["message"]) == ("Removing", True)
    assert isinstance(wait, Wait)


def test_a_release_without_confirmation_of_an_unreachable_cell_has_a_warning() -> None:
    going = federated(terminating=True)
    for cells, words in [
        (("dfw",), "cell dfw is unreachable"),
        (("dfw", "iad"), "cells dfw, iad are unreachable"),
    ]:
        hub = HubState(None, None, None, unreachable_cells=cells)
        (released,) = plan_federation(PROJECT, going, None, hub, NOW).actions
        assert isinstance(released, Patch)
        assert words in released.unconfirmed_warning
    (confirmed,) = plan_federation(PROJECT, going, None, NOTHING, NOW).actions
    assert isinstance(confirmed, Patch)
    assert not confirmed.unconfirmed_warning


def test_an_annotation_cannot_point_a_deployment_at_another_namespace() -> None:
    """Regression: a user took over another deployment on the hub by writing the annotation."""
    mine = federated()
    forged = {labels.FEDERATION_NAMESPACE: "ns-of-the-victim"}
    metadata = msgspec.structs.replace(mine.metadata, annotations=forged)
    plan = plan_federation(
        PROJECT, msgspec.structs.replace(mine, metadata=metadata), NAMESPACE_OF_USER, NOTHING, NOW
    )
    (only,) = plan.actions
    assert isinstance(only, Patch)
    annotations = only.patch["metadata"]["annotations"]
    assert annotations == {labels.FEDERATION_NAMESPACE: "ns-namespace-uid"}


def test_a_malformed_report_of_a_cell_does_not_count() -> None:
    odd: JsonObject = {"observedSource": "junk"}
    last_report = WorkloadDeploymentStatus(
        observed_generation=3, observed_source=ObservedSource(generation=3)
    )
    state = HubState(NAMESPACE_OF_USER, on_hub(last_report), a_binding(status=odd))
    plan = plan_federation(PROJECT, federated(), NAMESPACE_OF_USER, state, NOW)
    assert any(isinstance(action, PatchStatus) for action in plan.actions)


def test_a_terminating_hub_namespace_is_recreated_soon_after() -> None:
    """Regression: it was missing for 35 s, because its deletion causes no event."""
    going = ObjectMeta(name="ns-namespace-uid", deletion_timestamp=NOW)
    state = HubState(Namespace(metadata=going), None, None)
    plan = plan_federation(PROJECT, federated(), NAMESPACE_OF_USER, state, NOW)
    assert any(isinstance(action, Wait) for action in plan.actions)
    assert plan.requeue_after_s == NAMESPACE_REMOVAL_RECHECK_S


def test_without_a_valid_report_no_replica_counts_as_ready() -> None:
    """Regression: AwaitingPropagation was reported with two ready replicas that did not exist."""
    last_report = msgspec.structs.replace(
        federated(), status=WorkloadDeploymentStatus(ready_replicas=2, observed_generation=3)
    )
    going = msgspec.structs.replace(on_hub().metadata, deletion_timestamp=NOW)
    state = HubState(None, msgspec.structs.replace(on_hub(), metadata=going), None)
    plan = plan_federation(PROJECT, last_report, NAMESPACE_OF_USER, state, NOW)
    (status,) = [a for a in plan.actions if isinstance(a, PatchStatus)]
    assert status.status["readyReplicas"] == 0
    assert "observedGeneration" not in status.status
    assert plan.requeue_after_s is not None


PLANE = project_plane("p")
OURS, THEIRS = "compute.datumapis.com/ours", "example.com/theirs"


def a_workload(*finalizers: str, terminating: bool = False) -> Workload:
    return Workload(
        metadata=ObjectMeta(
            name="web",
            namespace="default",
            uid="u-1",
            resource_version="7",
            finalizers=list(finalizers),
            deletion_timestamp="2026-01-01T00:00:00Z" if terminating else None,
        ),
        spec=WorkloadSpec(template=a_template(), placements=[]),
    )


def test_a_finalizer_is_added_once_and_others_are_kept() -> None:
    (patch,) = add_finalizer(PLANE, WORKLOAD, a_workload(THEIRS), OURS)
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["finalizers"] == [THEIRS, OURS]
    assert add_finalizer(PLANE, WORKLOAD, a_workload(OURS), OURS) == []


def test_a_terminating_object_gets_no_finalizer() -> None:
    assert add_finalizer(PLANE, WORKLOAD, a_workload(terminating=True), OURS) == []


def test_removing_a_finalizer_keeps_others_and_checks_the_resource_version() -> None:
    (patch,) = drop_finalizer(PLANE, WORKLOAD, a_workload(THEIRS, OURS, terminating=True), OURS)
    assert isinstance(patch, Patch)
    assert patch.patch == {"metadata": {"resourceVersion": "7", "finalizers": [THEIRS]}}
    assert drop_finalizer(PLANE, WORKLOAD, a_workload(THEIRS), OURS) == []


def test_a_finalizer_stays_while_other_objects_are_waited_for() -> None:
    kept = a_workload(OURS, terminating=True)
    (wait,) = drop_finalizer(PLANE, WORKLOAD, kept, OURS, waiting_for=["Instance web-0"])
    assert isinstance(wait, Wait)
    assert "Instance web-0" in wait.reason


def test_an_owner_reference_has_the_uid_and_is_the_controller() -> None:
    reference = owner_reference(a_workload(), WORKLOAD)
    assert (reference.kind, reference.name, reference.uid) == ("Workload", "web", "u-1")
    assert reference.controller
    assert reference.block_owner_deletion
