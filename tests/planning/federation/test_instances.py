"""Copies of instances: their owners, and the order of their deletion.

Copies without an owner: quarantined after a while, reported once, retried, never deleted.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import READY, Instance, InstanceStatus
from datum_compute.api.conditions import FALSE
from datum_compute.api.core import Namespace
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.meta.timestamps import parse_timestamp, timestamp
from datum_compute.api.planes import HUB, cell_plane, project_plane
from datum_compute.planning.federation.instances import (
    BAD_IDENTITY,
    FOREIGN_IDENTITY,
    GRACE_S,
    NO_DEPLOYMENT,
    NO_IDENTITY,
    NO_ORDINAL,
    CopyDecision,
    DeleteCopy,
    KeepCopy,
    PublishCopy,
    Quarantine,
    ReleaseFromQuarantine,
    decide_project_copy,
    deployment_problem,
    identity_problem,
    is_quarantined,
    plan_hub_copy,
    plan_hub_copy_deletion,
    plan_project_copy,
    plan_project_copy_deletion,
    plan_quarantine,
    plan_release_from_quarantine,
    quarantine_reason,
    should_publish,
    slot_name_problem,
    source_cells,
)
from datum_compute.planning.federation.unreachable import UnreachableCell
from datum_compute.planning.initial_status import INITIAL_STATUS_S
from datum_compute.planning.plan import Create, Delete, Patch, PatchStatus, Plan, Wait
from testkit.builders import (
    NOW,
    a_deployment,
    a_gated_instance,
    an_instance,
    of_workload,
    refused_by_quota,
)

CELL, PROJECT = cell_plane("dfw"), project_plane("shop")


def hub_deployment(uid: str = "hub-deployment") -> WorkloadDeployment:
    bare = a_deployment()
    identity = {labels.UPSTREAM_NAMESPACE: "default", labels.UPSTREAM_CLUSTER: "cluster-shop"}
    metadata = msgspec.structs.replace(bare.metadata, uid=uid, labels=identity)
    return msgspec.structs.replace(bare, metadata=metadata)


def copied(create: object) -> Instance:
    assert isinstance(create, Create)
    assert isinstance(create.object, Instance)
    metadata = msgspec.structs.replace(
        create.object.metadata, uid="copy-uid", resource_version="4", generation=1
    )
    return msgspec.structs.replace(create.object, metadata=metadata)


def projected(
    hub_instance: Instance,
    deployment: WorkloadDeployment | None,
    projection: Instance | None,
    unreachable: UnreachableCell | None = None,
) -> Plan:
    return plan_project_copy(
        PROJECT, "default", hub_instance, deployment, projection, unreachable, NOW
    )


def test_the_hub_copy_is_owned_by_the_hub_deployment_and_names_project_and_cell() -> None:
    (create,) = plan_hub_copy(CELL, an_instance(0), hub_deployment(), None).actions
    copy = copied(create)
    assert copy.metadata.owner_references[0].uid == "hub-deployment"
    assert copy.metadata.labels[labels.UPSTREAM_CLUSTER] == "cluster-shop"
    assert copy.metadata.labels[labels.UPSTREAM_NAMESPACE] == "default"
    assert copy.metadata.labels[labels.CELL] == "dfw"
    assert copy.metadata.finalizers == []


def test_annotations_of_the_platform_are_not_copied_from_an_instance() -> None:
    """Regression: two controllers set and removed such an annotation of a template forever."""
    noted = an_instance(0)
    marks = dict.fromkeys(labels.QUARANTINE, "x")
    metadata = msgspec.structs.replace(noted.metadata, annotations={**marks, "team": "a"})
    noted = msgspec.structs.replace(noted, metadata=metadata)
    copy = copied(plan_hub_copy(CELL, noted, hub_deployment(), None).actions[0])
    assert sorted(copy.metadata.annotations) == [labels.COPY_OF, "team"]


def test_only_copies_of_its_own_cell_are_deleted_when_the_instance_is_gone() -> None:
    copy = copied(plan_hub_copy(CELL, an_instance(0), hub_deployment(), None).actions[0])
    (delete,) = plan_hub_copy_deletion(CELL, copy).actions
    assert isinstance(delete, Delete)
    assert (delete.plane, delete.uid, delete.version) == (HUB, "copy-uid", "4")
    assert plan_hub_copy_deletion(cell_plane("iad"), copy).is_settled
    assert plan_hub_copy_deletion(CELL, None).is_settled


def test_the_status_is_created_with_the_copy_or_patched_later() -> None:
    (create,) = plan_hub_copy(CELL, an_instance(0), hub_deployment(), None).actions
    assert isinstance(create, Create)
    assert create.with_status
    copy = copied(create)
    assert plan_hub_copy(CELL, an_instance(0), hub_deployment(), copy).is_settled
    # Kubernetes keeps no status from a create.
    bare = msgspec.structs.replace(copy, status=InstanceStatus())
    (status,) = plan_hub_copy(CELL, an_instance(0), hub_deployment(), bare).actions
    assert isinstance(status, PatchStatus)
    assert status.plane == HUB


def test_without_a_hub_deployment_no_copy_is_written() -> None:
    plan = plan_hub_copy(CELL, an_instance(0), None, None)
    assert plan.is_settled
    assert plan.requeue_after_s is not None


def test_an_instance_of_an_earlier_workload_gets_no_copy_under_the_deployment_of_its_name() -> None:
    """Its cell was unreachable while the workload was deleted and created again."""
    earlier = an_instance(0, deployment=of_workload(a_deployment(), "earlier"))
    plan = plan_hub_copy(CELL, earlier, hub_deployment(), None)
    assert [type(action) for action in plan.actions] == [Wait]
    assert plan.requeue_after_s is not None
    copy = copied(
        plan_hub_copy(CELL, earlier, of_workload(hub_deployment(), "earlier"), None).actions[0]
    )
    assert isinstance(decide(copy, a_deployment()), Quarantine)
    assert isinstance(decide(copy, of_workload(a_deployment(), "earlier")), PublishCopy)


def test_a_copy_of_an_instance_of_an_earlier_workload_is_deleted_not_changed() -> None:
    earlier = an_instance(0, deployment=of_workload(a_deployment(), "earlier"))
    copy = msgspec.structs.replace(
        earlier, metadata=msgspec.structs.replace(earlier.metadata, owner_references=[])
    )
    plan = projected(an_instance(0), a_deployment(), copy)
    assert [type(action) for action in plan.actions] == [Delete, Wait]
    on_hub = plan_hub_copy(cell_plane("iad"), an_instance(0), hub_deployment(), copy)
    assert [type(action) for action in on_hub.actions] == [Delete, Wait]


def decide(hub_instance: Instance, deployment: WorkloadDeployment) -> CopyDecision:
    return decide_project_copy(PROJECT, "default", hub_instance, deployment, is_identified=True)


def test_a_terminating_instance_is_reported_until_it_is_gone() -> None:
    copy = copied(plan_hub_copy(CELL, an_instance(0), hub_deployment(), None).actions[0])
    stopping = msgspec.structs.replace(
        an_instance(0, terminating=True), status=InstanceStatus(conditions=[])
    )
    (report,) = plan_hub_copy(CELL, stopping, hub_deployment(), copy).actions
    assert isinstance(report, PatchStatus), "a machine that still runs is still reported"
    assert labels.INSTANCE_FINALIZER not in an_instance(0).metadata.finalizers


def test_an_instance_of_an_earlier_version_is_released_without_the_hub() -> None:
    held = an_instance(0, terminating=True, finalizers=(labels.INSTANCE_FINALIZER,))
    (release,) = plan_hub_copy(CELL, held, None, None).actions
    assert isinstance(release, Patch)
    assert (release.plane, release.patch["metadata"]["finalizers"]) == (CELL, [])


def test_a_recreated_instance_gets_a_new_copy() -> None:
    copy = copied(plan_hub_copy(CELL, an_instance(0), hub_deployment(), None).actions[0])
    again = an_instance(0)
    metadata = msgspec.structs.replace(again.metadata, uid="another")
    again = msgspec.structs.replace(again, metadata=metadata)
    delete, wait = plan_hub_copy(CELL, again, hub_deployment(), copy).actions
    assert isinstance(delete, Delete)
    assert (delete.plane, delete.uid) == (HUB, "copy-uid")
    assert isinstance(wait, Wait)
    (create,) = plan_hub_copy(CELL, again, hub_deployment(), None).actions
    assert copied(create).metadata.annotations[labels.COPY_OF] == "dfw/another"


def test_a_copy_without_its_cell_label_is_identified_by_its_annotation() -> None:
    copy = copied(plan_hub_copy(CELL, an_instance(0), hub_deployment(), None).actions[0])
    metadata = msgspec.structs.replace(copy.metadata, labels={labels.CELL: "junk"})
    edited = msgspec.structs.replace(copy, metadata=metadata)
    assert source_cells(edited) == ["junk", "dfw"]
    (delete,) = plan_hub_copy_deletion(CELL, edited).actions
    assert isinstance(delete, Delete)
    assert plan_hub_copy_deletion(cell_plane("junk"), edited).is_settled


def test_a_projection_is_owned_by_the_deployment_of_the_project() -> None:
    plan = projected(an_instance(0), hub_deployment("project-uid"), None)
    (create,) = plan.actions
    projection = copied(create)
    assert projection.metadata.owner_references[0].uid == "project-uid"
    assert projection.metadata.namespace == "default"


def test_a_recreated_instance_gets_a_new_copy_in_the_project() -> None:
    """The hub was away when the instance was replaced, so the project saw no deletion."""

    def on_hub(uid: str) -> Instance:
        annotations = {labels.COPY_OF: f"dfw/{uid}"}
        return with_metadata(an_instance(0), annotations=annotations)

    owner = hub_deployment("project-uid")
    copy = copied(projected(on_hub("first"), owner, None).actions[0])
    delete, wait = projected(on_hub("second"), owner, copy).actions
    assert isinstance(delete, Delete)
    assert (delete.plane, delete.uid, delete.version) == (PROJECT, "copy-uid", "4")
    assert isinstance(wait, Wait)
    (create,) = projected(on_hub("second"), owner, None).actions
    assert copied(create).metadata.annotations[labels.COPY_OF] == "dfw/second"
    assert projected(on_hub("first"), owner, copy).is_settled


def test_without_a_deployment_no_projection_is_created() -> None:
    plan = projected(an_instance(0), None, None)
    assert [type(a) for a in plan.actions] == [Wait]
    assert plan.requeue_after_s is not None


def test_a_projection_without_a_hub_copy_is_deleted() -> None:
    projection = an_instance(0)
    (delete,) = plan_project_copy_deletion(PROJECT, projection).actions
    assert isinstance(delete, Delete)
    assert delete.uid == projection.metadata.uid
    assert delete.reason == "it was deleted in its city"


def test_a_copy_of_an_earlier_deployment_is_left_to_the_garbage_collector() -> None:
    copy = copied(plan_hub_copy(CELL, an_instance(0), hub_deployment("old"), None).actions[0])
    (wait,) = plan_hub_copy(CELL, an_instance(0), hub_deployment("new"), copy).actions
    assert isinstance(wait, Wait)


def test_a_hub_deployment_without_identity_labels_is_waited_for() -> None:
    """Regression: write-back failed repeatedly when the labels were removed."""
    nameless = hub_deployment()
    metadata = msgspec.structs.replace(nameless.metadata, labels={})
    nameless = msgspec.structs.replace(nameless, metadata=metadata)
    plan = plan_hub_copy(CELL, an_instance(0), nameless, None)
    assert [type(action) for action in plan.actions] == [Wait]
    assert plan.requeue_after_s is not None


def quarantined(instance: Instance) -> Instance:
    """Return the instance with quarantine annotations for a missing deployment."""
    problem = deployment_problem("shop", "default", "web-dfw")
    (mark,) = plan_quarantine(instance, problem, 3600.0, NOW).actions
    assert isinstance(mark, Patch)
    annotations = mark.patch["metadata"]["annotations"]
    metadata = msgspec.structs.replace(instance.metadata, annotations=annotations)
    return msgspec.structs.replace(instance, metadata=metadata)


def renamed(instance: Instance, name: str) -> Instance:
    metadata = msgspec.structs.replace(instance.metadata, name=name)
    return msgspec.structs.replace(instance, metadata=metadata)


ON_HUB, MARKED, WITHOUT_SLOT = (
    an_instance(0),
    quarantined(an_instance(0)),
    renamed(an_instance(0), "web"),
)
OWNER = a_deployment()
SLOT_PROBLEM = slot_name_problem(WITHOUT_SLOT)
assert SLOT_PROBLEM is not None
OWNER_PROBLEM = deployment_problem(
    "shop", "default", ON_HUB.metadata.labels[labels.DEPLOYMENT_NAME]
)


@pytest.mark.parametrize(
    ("hub_instance", "is_identified", "deployment", "expected"),
    [
        pytest.param(None, False, None, DeleteCopy(), id="gone from the hub"),
        pytest.param(ON_HUB, False, None, KeepCopy(), id="labels edited"),
        pytest.param(MARKED, False, None, DeleteCopy(), id="labels edited and quarantined"),
        pytest.param(
            WITHOUT_SLOT, True, OWNER, Quarantine(WITHOUT_SLOT, SLOT_PROBLEM), id="no slot name"
        ),
        pytest.param(ON_HUB, True, None, Quarantine(ON_HUB, OWNER_PROBLEM), id="no deployment"),
        pytest.param(MARKED, True, OWNER, ReleaseFromQuarantine(MARKED), id="deployment is back"),
        pytest.param(ON_HUB, True, OWNER, PublishCopy(ON_HUB, OWNER), id="nothing wrong"),
    ],
)
def test_the_copy_of_a_project_follows_the_identity_of_the_hub_instance(
    hub_instance: Instance | None,
    is_identified: bool,
    deployment: WorkloadDeployment | None,
    expected: CopyDecision,
) -> None:
    decision = decide_project_copy(
        PROJECT, "default", hub_instance, deployment, is_identified=is_identified
    )
    assert decision == expected


PROBLEM = deployment_problem("shop", "default", "web-dfw")


def a_copy(**identity: str) -> Instance:
    last_report = {
        labels.UPSTREAM_CLUSTER: identity.get("project", "cluster-shop"),
        labels.UPSTREAM_NAMESPACE: identity.get("namespace", "default"),
    }
    return with_metadata(an_instance(0), labels={k: v for k, v in last_report.items() if v})


def with_metadata(instance: Instance, **fields: object) -> Instance:
    metadata = msgspec.structs.replace(instance.metadata, **fields)
    return msgspec.structs.replace(instance, metadata=metadata)


def after(instance: Instance, patch: object) -> Instance:
    assert isinstance(patch, Patch)
    changes = patch.patch["metadata"]["annotations"]
    merged = {**instance.metadata.annotations, **changes}
    return with_metadata(instance, annotations={k: v for k, v in merged.items() if v is not None})


@dataclass(frozen=True)
class Case:
    copy: Instance
    reason: str | None


@pytest.mark.parametrize(
    "case",
    [
        Case(a_copy(), None),
        Case(a_copy(project="cluster-org_shop"), None),
        Case(a_copy(project=""), NO_IDENTITY),
        Case(a_copy(namespace=""), NO_IDENTITY),
        Case(a_copy(project="shop"), BAD_IDENTITY),
        Case(a_copy(project="cluster-"), BAD_IDENTITY),
    ],
)
def test_identity_problems_of_a_copy(case: Case) -> None:
    problem = identity_problem(case.copy, None)
    assert (problem[0] if problem else None) == case.reason


@pytest.mark.parametrize(
    ("project", "namespace", "reason"),
    [
        ("cluster-shop", "default", None),
        ("cluster-org_shop", "default", None),  # another form of the same project
        ("cluster-bank", "default", FOREIGN_IDENTITY),
        ("cluster-shop", "team", FOREIGN_IDENTITY),
        ("", "", FOREIGN_IDENTITY),
    ],
)
def test_a_copy_must_have_the_identity_of_its_namespace(
    project: str, namespace: str, reason: str | None
) -> None:
    last_report = {labels.UPSTREAM_CLUSTER: project, labels.UPSTREAM_NAMESPACE: namespace}
    home = Namespace(metadata=ObjectMeta(name="ns-uid", labels=last_report))
    problem = identity_problem(a_copy(), home)
    assert (problem[0] if problem else None) == reason


def named(name: str, deployment: str = "") -> Instance:
    copy = a_copy()
    own = {labels.DEPLOYMENT_NAME: deployment} if deployment else {}
    return with_metadata(copy, name=name, labels={**copy.metadata.labels, **own})


@pytest.mark.parametrize(
    ("name", "deployment"),
    [
        ("web-dfw-0", "web-dfw"),
        ("web-dfw-10", "web-dfw"),
        ("web-dfw-7", ""),
        ("web-dfw-999999999", "web-dfw"),  # beyond any replica count, as during a scale-down
        ("web-2-3", "web-2"),
    ],
)
def test_a_copy_with_an_ordinal_of_its_deployment_has_no_problem(
    name: str, deployment: str
) -> None:
    assert identity_problem(named(name, deployment), None) is None


@pytest.mark.parametrize(
    ("name", "deployment"),
    [
        ("web-dfw-abc", "web-dfw"),
        ("web-dfw-abc", ""),
        ("web-dfw-01", "web-dfw"),
        ("web-dfw-01", ""),
        ("web-dfw--1", "web-dfw"),
        ("web-dfw-+1", "web-dfw"),
        ("web-dfw-1.0", "web-dfw"),
        ("web-dfw-\u0661", "web-dfw"),  # a decimal digit, but not an ASCII one
        ("web-dfw-99999999999", "web-dfw"),
        ("web-dfw-99999999999", ""),
        ("web-dfw", "web-dfw"),
        ("web-dfw-", "web-dfw"),
        ("web-dfw-0-0", "web-dfw"),
        ("shop-dfw-0", "web-dfw"),
        ("web-0", "web-dfw"),
        ("0", ""),
        ("-0", ""),
    ],
)
def test_a_copy_without_an_ordinal_of_its_deployment_is_a_problem(
    name: str, deployment: str
) -> None:
    problem = identity_problem(named(name, deployment), None)
    assert problem is not None
    assert problem[0] == NO_ORDINAL
    assert name in problem[1]


def test_a_copy_is_quarantined_only_after_a_grace_period() -> None:
    plan = plan_quarantine(a_copy(), PROBLEM, 10.0, NOW)
    assert plan.is_settled
    assert plan.requeue_after_s == GRACE_S - 10.0


def test_a_quarantined_copy_is_marked_once() -> None:
    copy = a_copy()
    (mark,) = plan_quarantine(copy, PROBLEM, GRACE_S, NOW).actions
    marked = after(copy, mark)
    assert is_quarantined(marked)
    assert quarantine_reason(marked) == NO_DEPLOYMENT
    assert marked.metadata.annotations[labels.QUARANTINED_AT] == NOW
    assert plan_quarantine(marked, PROBLEM, GRACE_S * 2, "2030-01-01T00:00:00Z").is_settled


def test_a_changed_identity_ends_the_quarantine() -> None:
    (mark,) = plan_quarantine(a_copy(project="junk"), PROBLEM, GRACE_S, NOW).actions
    marked = after(a_copy(project="junk"), mark)
    mended = with_metadata(marked, labels=a_copy().metadata.labels)
    assert not is_quarantined(mended)
    (cleared,) = plan_release_from_quarantine(mended).actions
    assert not after(mended, cleared).metadata.annotations
    assert plan_release_from_quarantine(a_copy()).is_settled


def test_a_copy_of_a_new_instance_is_created_with_its_first_result_or_after_a_delay() -> None:
    def is_published(instance: Instance, age_s: float = 0.0) -> bool:
        metadata = msgspec.structs.replace(instance.metadata, creation_timestamp=NOW)
        now = timestamp(parse_timestamp(NOW) + age_s)
        return should_publish(msgspec.structs.replace(instance, metadata=metadata), now)

    assert not is_published(a_gated_instance())
    assert not is_published(a_gated_instance({READY: FALSE}))
    assert is_published(a_gated_instance(), INITIAL_STATUS_S)
    assert is_published(refused_by_quota(an_instance(0)))
    assert not is_published(an_instance(0, ready=False))
    assert is_published(an_instance(0))
    assert is_published(an_instance(0, ready=False, terminating=True))
