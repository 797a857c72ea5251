"""Status, metadata and order of the steps of projects and organizations."""

from __future__ import annotations

from datum_compute.api import labels
from datum_compute.api.core import Namespace
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.resourcemanager import Organization, Project, ProjectOwner, ProjectSpec
from datum_compute.planning.plan import Create, Patch, PatchStatus
from datum_compute.planning.platform.projects import (
    CLEANUP_S,
    plan_cleanup,
    plan_organization,
    plan_project_metadata,
    plan_ready,
    plan_release,
    summarize_objects,
)

NOW = "2026-01-01T00:00:00Z"
ORGANIZATION = Organization(metadata=ObjectMeta(name="acme", uid="o-1"))


def a_project(*finalizers: str) -> Project:
    metadata = ObjectMeta(name="shop", generation=1, finalizers=list(finalizers))
    owner = ProjectOwner(kind="Organization", name="acme")
    return Project(metadata=metadata, spec=ProjectSpec(owner_ref=owner))


def test_a_project_gets_finalizer_and_owner_first() -> None:
    (guard,) = plan_project_metadata(a_project("other"), ORGANIZATION).actions
    assert isinstance(guard, Patch)
    metadata = guard.patch["metadata"]
    assert metadata["finalizers"] == ["other", labels.PROJECT_FINALIZER]
    assert metadata["labels"] == {labels.ORGANIZATION: "acme"}
    (owner,) = metadata["ownerReferences"]
    assert (owner["kind"], owner["uid"]) == ("Organization", "o-1")
    assert not owner.get("controller")


def test_a_project_without_organization_gets_the_finalizer() -> None:
    (guard,) = plan_project_metadata(a_project(), None).actions
    assert isinstance(guard, Patch)
    assert "ownerReferences" not in guard.patch["metadata"]


def test_remaining_objects_are_counted_by_kind_with_an_example() -> None:
    left = ["Workload default/web", "Network default/default", "Workload default/api"]
    assert summarize_objects(left) == "1 Network, 2 Workload (such as Network default/default)"
    plan = plan_cleanup(a_project(), left, NOW)
    assert plan.requeue_after_s == CLEANUP_S
    (report,) = plan.actions
    assert isinstance(report, PatchStatus)
    reported = {c["type"]: (c["status"], c["reason"]) for c in report.status["conditions"]}
    assert reported == {
        "Ready": ("False", "Deleting"),
        "ResourceCleanup": ("False", "ResourcesRemaining"),
    }


def test_only_our_finalizer_is_removed() -> None:
    (release,) = plan_release(a_project("other", labels.PROJECT_FINALIZER)).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == ["other"]


def test_ready_is_reported_once() -> None:
    (report,) = plan_ready(a_project(), NOW).actions
    assert isinstance(report, PatchStatus)
    assert report.status["conditions"][0]["status"] == "True"


def test_an_organization_is_ready_when_its_namespace_exists() -> None:
    (made,) = plan_organization(ORGANIZATION, None, NOW).actions
    assert isinstance(made, Create)
    assert made.object.metadata.name == "organization-acme"
    assert made.object.metadata.owner_references[0].uid == "o-1"
    namespace = Namespace(metadata=ObjectMeta(name="organization-acme"))
    (report,) = plan_organization(ORGANIZATION, namespace, NOW).actions
    assert isinstance(report, PatchStatus)
