"""Hub namespaces: deleted after their policy; edited labels are restored."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.core import Namespace
from datum_compute.api.karmada import (
    ClusterPropagationPolicy,
    PropagationSpec,
    Work,
    WorkloadTemplate,
    WorkSpec,
)
from datum_compute.api.meta.objects import ObjectMeta
from datum_compute.api.planes import federation_namespace, project_plane, source_uid
from datum_compute.planning.federation.hub_namespaces import (
    RECHECK_S,
    HubNamespace,
    namespaces_of_contents,
    plan_hub_namespace,
    plan_identity_labels,
    plan_namespace_deletion,
    plan_orphan_deletions,
    plan_policies,
    plan_removal,
)
from datum_compute.planning.plan import Delete, Patch, Plan, Wait
from testkit.builders import a_deployment

IDENTITY = {labels.UPSTREAM_CLUSTER: "cluster-alpha", labels.UPSTREAM_NAMESPACE: "team"}
NAME = federation_namespace("u")


def metadata(*, leaving: bool = False) -> ObjectMeta:
    when = "2026-01-01T00:00:00Z" if leaving else None
    return ObjectMeta(
        name=NAME, uid="of-it", resource_version="7", labels=IDENTITY, deletion_timestamp=when
    )


def a_namespace(*, leaving: bool = False) -> Namespace:
    return Namespace(metadata=metadata(leaving=leaving))


def a_policy(*, leaving: bool = False) -> ClusterPropagationPolicy:
    return ClusterPropagationPolicy(
        metadata=metadata(leaving=leaving), spec=PropagationSpec(resource_selectors=[])
    )


def removed(home: HubNamespace) -> list[tuple[str, str, str]]:
    actions = plan_namespace_deletion(home).actions
    return [(a.kind.kind, a.uid, a.version) for a in actions if isinstance(a, Delete)]


def test_the_policy_and_then_the_namespace_are_deleted_at_the_observed_version() -> None:
    policy = [("ClusterPropagationPolicy", "of-it", "7")]
    assert removed(HubNamespace(a_namespace(), a_policy())) == policy
    assert removed(HubNamespace(a_namespace(), None)) == [("Namespace", "of-it", "7")]
    assert removed(HubNamespace(None, a_policy())) == policy


def test_a_terminating_policy_or_namespace_is_not_deleted_again() -> None:
    assert removed(HubNamespace(a_namespace(leaving=True), None)) == []
    assert removed(HubNamespace(a_namespace(), a_policy(leaving=True))) == []
    assert removed(HubNamespace(None, None)) == []


def test_the_namespace_or_the_policy_identifies_the_source() -> None:
    assert HubNamespace(None, a_policy()).identity == IDENTITY
    assert HubNamespace(a_namespace(), None).identity == IDENTITY
    assert dict(HubNamespace(None, None).identity) == {}
    assert (source_uid(NAME), source_uid("default"), source_uid("karmada-es-x")) == ("u", "", "")


def test_the_policy_of_an_empty_hub_namespace_is_not_recreated() -> None:
    empty: list[WorkloadDeployment] = []
    assert plan_policies(a_namespace(), empty, [], None).actions == ()
    (_, made) = plan_policies(a_namespace(), [a_deployment()], [], None).actions
    assert IDENTITY.items() <= made.object.metadata.labels.items()  # type: ignore[union-attr]


def test_edited_labels_of_a_hub_namespace_are_restored() -> None:
    project, source = project_plane("alpha"), Namespace(metadata=ObjectMeta(name="team", uid="u"))
    assert plan_identity_labels(HubNamespace(a_namespace(), None), project, source).actions == ()
    edited = Namespace(metadata=ObjectMeta(name=NAME, resource_version="7", labels={"other": "x"}))
    (patch,) = plan_identity_labels(HubNamespace(edited, None), project, source).actions
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["labels"] == IDENTITY


def test_labels_of_a_missing_or_terminating_hub_namespace_are_not_restored() -> None:
    project, source = project_plane("alpha"), Namespace(metadata=ObjectMeta(name="team", uid="u"))
    for home in (HubNamespace(None, a_policy()), HubNamespace(a_namespace(leaving=True), None)):
        assert plan_identity_labels(home, project, source).actions == ()


SOURCE = (project_plane("alpha"), Namespace(metadata=ObjectMeta(name="team", uid="u")))
UNREADABLE = Plan((Wait("the project cannot be read"),), RECHECK_S)
REMOVED = {**IDENTITY, labels.PROJECT_REMOVED: "true"}


def labeled(identity: dict[str, str]) -> HubNamespace:
    metadata = ObjectMeta(name=NAME, uid="of-it", resource_version="7", labels=identity)
    return HubNamespace(Namespace(metadata=metadata), None)


@pytest.mark.parametrize(
    ("identity", "source_exists", "is_project_readable", "expected"),
    [
        pytest.param(IDENTITY, True, True, Plan(), id="the source exists"),
        pytest.param(IDENTITY, False, True, None, id="the source is not cached"),
        pytest.param(IDENTITY, False, False, UNREADABLE, id="the project cannot be read"),
        pytest.param({}, False, False, UNREADABLE, id="no project is named"),
        pytest.param(REMOVED, False, False, None, id="the project was removed"),
    ],
)
def test_a_hub_namespace_is_checked_for_deletion_only_without_a_source(
    identity: dict[str, str], source_exists: bool, is_project_readable: bool, expected: Plan | None
) -> None:
    source = SOURCE if source_exists else None
    plan = plan_hub_namespace(labeled(identity), source, is_project_readable=is_project_readable)
    assert plan == expected


def test_labels_are_restored_instead_of_deleting_a_namespace_whose_source_was_found() -> None:
    plan = plan_hub_namespace(labeled({}), SOURCE, is_project_readable=False)
    assert plan is not None
    (patch,) = plan.actions
    assert isinstance(patch, Patch)
    assert patch.patch["metadata"]["labels"] == IDENTITY


def test_labels_that_name_the_source_in_another_form_are_not_changed() -> None:
    other_form = {**IDENTITY, labels.UPSTREAM_CLUSTER: "cluster-organization_alpha"}
    assert plan_identity_labels(labeled(other_form), *SOURCE).actions == ()


def test_a_hub_namespace_in_use_is_checked_again_later() -> None:
    assert plan_removal(labeled(IDENTITY), "in use") == Plan((Wait("in use"),), RECHECK_S)
    (delete,) = plan_removal(labeled(IDENTITY), "").actions
    assert isinstance(delete, Delete)


def test_copies_in_a_hub_namespace_without_a_source_are_deleted_at_the_observed_version() -> None:
    copy, leaving, foreign = (
        msgspec.structs.replace(a_deployment(), metadata=meta)
        for meta in (
            of_copy("copy"),
            of_copy("leaving", deletion_timestamp="2026-01-01T00:00:00Z"),
            ObjectMeta(name="foreign", namespace=NAME, uid="of-foreign", resource_version="7"),
        )
    )
    plan = plan_orphan_deletions([copy, leaving, foreign])
    deleted = [(a.ref.name, a.uid, a.version) for a in plan.actions if isinstance(a, Delete)]
    assert deleted == [("copy", "of-copy", "7")]
    assert plan.requeue_after_s == RECHECK_S
    assert plan_orphan_deletions([leaving, foreign]) == Plan()


def of_copy(name: str, **fields: Any) -> ObjectMeta:
    return ObjectMeta(
        name=name,
        namespace=NAME,
        uid=f"of-{name}",
        resource_version="7",
        annotations={labels.SOURCE_GENERATION: "1"},
        **fields,
    )


@pytest.mark.parametrize(
    ("manifest", "expected"),
    [
        ({"kind": "ConfigMap", "metadata": {"name": "a", "namespace": NAME}}, [NAME]),
        ({"kind": "Namespace", "metadata": {"name": NAME}}, []),
        ({"metadata": {"name": "a", "namespace": ["not a name"]}}, []),
        ({"metadata": None}, []),
        ({}, []),
    ],
)
def test_the_namespaces_of_the_manifests_of_a_work(
    manifest: dict[str, Any], expected: list[str]
) -> None:
    work = Work(spec=WorkSpec(workload=WorkloadTemplate(manifests=[manifest])))
    assert namespaces_of_contents(work) == expected
