"""Copies of sources on the hub: created for references and deleted with the last one.

Resolution of references: recorded by the project and checked by the cell.
"""

from __future__ import annotations

import msgspec
import pytest

from datum_compute.api import labels
from datum_compute.api.compute.data_sources import EnvFromSource, WholeSource
from datum_compute.api.compute.deployment import WorkloadDeployment
from datum_compute.api.compute.instance import (
    Container,
    InstanceTemplate,
    Runtime,
    Sandbox,
    TemplateSpec,
)
from datum_compute.api.compute.referenced_data import Source, references
from datum_compute.api.conditions import TRUE
from datum_compute.api.core import ConfigMap, Namespace, Secret
from datum_compute.api.karmada import PropagationPolicy
from datum_compute.api.kinds import CONFIG_MAP, NAMESPACE, POLICY, SECRET
from datum_compute.api.meta.objects import ObjectMeta, Ref
from datum_compute.api.planes import HUB, project_plane, work_names
from datum_compute.planning.federation.referenced_objects import (
    NAME_MAX,
    SourceCopyState,
    data_ready_condition,
    is_same_resolution,
    plan_release,
    plan_resolution,
    plan_source_copy,
    propagated_annotations,
    referring_deployments,
    resolve_sources,
)
from datum_compute.planning.karmada.bindings import binding_name
from datum_compute.planning.plan import Create, Delete, Patch, Plan, Wait
from datum_compute.planning.rollout.referenced_data import ObservedSources
from datum_compute.planning.workload.templates import template_hash
from testkit.builders import NOW, a_deployment

KEY = (project_plane("alpha"), Ref("default", "db"))
HOME = Namespace(metadata=ObjectMeta(name="default", uid="u1"))
SOURCE = Secret(
    metadata=ObjectMeta(name="db", namespace="default", uid="s", resource_version="7"),
    data={"a": "eA=="},
)
EMPTY = SourceCopyState(None, (), None, None)


def using(city: str = "DFW", *, terminating: bool = False) -> WorkloadDeployment:
    marks = (labels.REFERENCED_DATA_FINALIZER,)
    name = f"web-{city.lower()}"
    return a_deployment(city=city, name=name, finalizers=marks, terminating=terminating)


def planned(
    *deployments: WorkloadDeployment, hub: SourceCopyState = EMPTY, source: Secret | None = SOURCE
) -> Plan:
    return plan_source_copy(SECRET, KEY, HOME, source, deployments, hub)


def made(*deployments: WorkloadDeployment) -> SourceCopyState:
    """Return the hub state after the plan has been executed."""
    found = {a.kind.kind: a.object for a in planned(*deployments).actions if isinstance(a, Create)}
    secret, policy, namespace = found["Secret"], found["PropagationPolicy"], found["Namespace"]
    assert isinstance(secret, Secret)
    assert isinstance(policy, PropagationPolicy)
    assert isinstance(namespace, Namespace)
    return SourceCopyState(namespace, (secret,), secret, policy)


def test_a_referenced_source_has_its_own_copy_and_policy() -> None:
    hub = made(using("DFW"), using("LHR"))
    assert isinstance(hub.existing_at_target, Secret)
    assert (hub.existing_at_target.data, hub.existing_at_target.type) == (SOURCE.data, SOURCE.type)
    assert hub.existing_at_target.metadata.namespace == "ns-u1"
    assert hub.existing_at_target.metadata.annotations[labels.SOURCE_VERSION] == "7"
    assert referring_deployments(hub.existing_at_target) == ["default/web-dfw", "default/web-lhr"]
    assert hub.policy is not None
    (served,) = hub.policy.spec.placement.cluster_affinity.label_selector.match_expressions  # type: ignore[union-attr]
    assert served.values == ["DFW", "LHR"]
    assert planned(using("DFW"), using("LHR"), hub=hub).is_settled


@pytest.mark.parametrize("left", [(), (using(terminating=True),), (a_deployment(),)])
def test_the_copy_is_deleted_with_the_last_active_reference(
    left: tuple[WorkloadDeployment, ...],
) -> None:
    gone = planned(*left, hub=made(using())).actions
    assert [(a.plane, a.kind) for a in gone if isinstance(a, Delete)] == [
        (HUB, SECRET),
        (HUB, POLICY),
    ]


def test_removing_one_of_several_references_removes_its_city_and_keeps_the_copy() -> None:
    actions = planned(using("DFW"), hub=made(using("DFW"), using("LHR"))).actions
    assert [a.kind for a in actions if isinstance(a, Patch)] == [SECRET, POLICY]
    assert not [a for a in actions if isinstance(a, Delete)]


def test_a_changed_source_replaces_all_data_of_its_copy() -> None:
    changed = msgspec.structs.replace(SOURCE, data={"b": "eQ=="})
    (patch,) = planned(using(), hub=made(using()), source=changed).actions
    assert isinstance(patch, Patch)
    assert patch.patch["data"] == {"a": None, "b": "eQ=="}


def test_the_copy_of_a_deleted_source_is_unchanged() -> None:
    assert planned(using(), hub=made(using()), source=None).is_settled
    created = [a.kind for a in planned(using(), source=None).actions if isinstance(a, Create)]
    assert SECRET not in created


def test_a_source_that_is_too_large_is_not_copied() -> None:
    large = msgspec.structs.replace(SOURCE, data={"a": "eA==" * 100_000})
    actions = planned(using(), source=large).actions
    assert SECRET not in [a.kind for a in actions if isinstance(a, Create)]


def test_another_type_recreates_the_copy() -> None:
    other = msgspec.structs.replace(SOURCE, type="kubernetes.io/tls")
    actions = planned(using(), hub=made(using()), source=other).actions
    assert [a.kind for a in actions if isinstance(a, Delete)] == [SECRET]


def test_an_object_without_the_copy_label_is_not_changed() -> None:
    foreign = Secret(metadata=ObjectMeta(name="db", namespace="ns-u1", uid="x"))
    hub = SourceCopyState(None, (), foreign, None)
    (wait,) = planned(using(), hub=hub).actions
    assert isinstance(wait, Wait)
    assert planned(hub=hub).actions == ()


def test_a_copy_in_the_hub_namespace_of_an_earlier_namespace_is_deleted() -> None:
    hub = made(using())
    later = Namespace(metadata=ObjectMeta(name="default", uid="u2"))
    state = SourceCopyState(None, hub.copies, None, None)
    actions = plan_source_copy(SECRET, KEY, later, SOURCE, [using()], state).actions
    assert isinstance(actions[0], Delete)
    assert actions[0].ref == Ref("ns-u1", "db")
    assert [a.kind for a in actions if isinstance(a, Create)] == [NAMESPACE, SECRET, POLICY]


def test_nothing_is_created_in_a_terminating_hub_namespace() -> None:
    leaving = Namespace(metadata=ObjectMeta(name="ns-u1", deletion_timestamp=NOW))
    (wait,) = planned(using(), hub=SourceCopyState(leaving, (), None, None)).actions
    assert isinstance(wait, Wait)


def test_a_source_version_annotation_set_by_users_does_not_change_the_copy() -> None:
    metadata = msgspec.structs.replace(
        SOURCE.metadata,
        labels={labels.REFERENCED_DATA: "true"},
        annotations={labels.SOURCE_VERSION: "999999"},
    )
    forged = msgspec.structs.replace(SOURCE, metadata=metadata)
    assert planned(using(), hub=made(using()), source=forged).is_settled


PROJECT = project_plane("alpha")
WEB = Source("ConfigMap", "web")
MARK = labels.REFERENCED_DATA_FINALIZER


def referring(name: str = "web", *, optional: bool = False) -> WorkloadDeployment:
    source = EnvFromSource(config_map_ref=WholeSource(name=name, optional=optional))
    sandbox = Sandbox(containers=[Container(name="app", image="web:1", env_from=[source])])
    template = InstanceTemplate(spec=TemplateSpec(runtime=Runtime(sandbox=sandbox)))
    deployment = a_deployment(finalizers=(MARK,))
    return msgspec.structs.replace(
        deployment, spec=msgspec.structs.replace(deployment.spec, template=template)
    )


def there(version: str = "5", **annotations: str) -> ObservedSources:
    marks = {labels.REFERENCED_DATA: "true"} if annotations else {}
    metadata = ObjectMeta(
        name="web", resource_version=version, annotations=annotations, labels=marks
    )
    return ObservedSources({WEB: ConfigMap(metadata=metadata, data={"a": "b"})})


def patched(deployment: WorkloadDeployment, plan: Plan) -> WorkloadDeployment:
    (patch,) = plan.actions
    assert isinstance(patch, Patch)
    metadata = patch.patch["metadata"]
    return with_annotations(deployment, **metadata["annotations"])


def with_annotations(deployment: WorkloadDeployment, **more: str) -> WorkloadDeployment:
    annotations = {**deployment.metadata.annotations, **more}
    return msgspec.structs.replace(
        deployment, metadata=msgspec.structs.replace(deployment.metadata, annotations=annotations)
    )


def recorded(deployment: WorkloadDeployment, observed: ObservedSources) -> WorkloadDeployment:
    plan = plan_resolution(PROJECT, deployment, resolve_sources(deployment, observed))
    return patched(deployment, plan)


def on_cell(deployment: WorkloadDeployment) -> WorkloadDeployment:
    return with_annotations(deployment, **{labels.SOURCE_GENERATION: "1"})


def reason_of(deployment: WorkloadDeployment | None, observed: ObservedSources) -> str:
    template = referring().spec.template
    found = data_ready_condition(
        deployment, template_hash(template), references(template), observed
    )
    return str(found.reason)


def test_the_expected_sources_are_recorded_sorted_and_propagated() -> None:
    found = recorded(referring(), there())
    assert propagated_annotations(found)[labels.EXPECTED_DATA] == '["ConfigMap/web"]'
    assert plan_resolution(PROJECT, found, resolve_sources(found, there())).actions == ()


def test_the_finalizer_is_added_before_the_resolution_is_recorded() -> None:
    bare = msgspec.structs.replace(
        referring(), metadata=msgspec.structs.replace(referring().metadata, finalizers=[])
    )
    (guard,) = plan_resolution(PROJECT, bare, resolve_sources(bare, there())).actions
    assert isinstance(guard, Patch)
    assert guard.patch["metadata"]["finalizers"] == [MARK]


def test_a_deployment_without_data_is_not_changed() -> None:
    plain = a_deployment()
    assert plan_resolution(PROJECT, plain, resolve_sources(plain, ObservedSources())).is_settled


def test_a_resolution_depends_on_the_presence_of_sources_and_not_on_their_version() -> None:
    found = recorded(referring(), there("5"))
    assert is_same_resolution(found, resolve_sources(found, there("9")))
    assert not is_same_resolution(found, resolve_sources(found, ObservedSources()))


def test_source_names_that_are_too_long_for_a_work_are_refused() -> None:
    """Regression: a source with a name of 243 characters never arrived: it could have no Work."""
    long = referring("w" * (NAME_MAX + 1))
    assert resolve_sources(long, ObservedSources()).reason == "SourceNameTooLong"
    ref = Ref("ns-u", "w" * NAME_MAX)
    names = [*work_names(CONFIG_MAP, ref), binding_name(CONFIG_MAP, ref.name)]
    assert max(map(len, names)) <= 253


def test_a_source_name_that_every_plane_reserves_is_refused() -> None:
    """Regression: a workload that refers to it waited forever for a copy, without a reason."""
    found = resolve_sources(referring("kube-root-ca.crt"), ObservedSources())
    assert found.reason == "SourceNameReserved"
    assert "copy it to another name" in found.message


def test_a_terminating_deployment_waits_for_its_copies() -> None:
    leaving = msgspec.structs.replace(
        referring(), metadata=msgspec.structs.replace(referring().metadata, deletion_timestamp=NOW)
    )
    (wait,) = plan_release(PROJECT, leaving, ["ConfigMap/w"]).actions
    assert isinstance(wait, Wait)
    (release,) = plan_release(PROJECT, leaving, []).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


def test_a_cell_waits_for_the_resolution_of_the_project() -> None:
    assert reason_of(None, there()) == "Resolving"
    assert reason_of(on_cell(referring()), there()) == "Resolving"
    garbled = with_annotations(on_cell(referring()), **{labels.RESOLVED_DATA: "{"})
    assert reason_of(garbled, there()) == "Resolving"


def test_a_resolution_of_another_template_does_not_count() -> None:
    another = recorded(referring(optional=True), there())
    assert reason_of(on_cell(another), there()) == "Resolving"


def test_a_cell_reports_what_the_project_found_missing() -> None:
    assert reason_of(on_cell(recorded(referring(), ObservedSources())), there()) == "SourceNotFound"


def test_a_cell_waits_for_a_copy_of_at_least_the_resolved_version() -> None:
    deployment = on_cell(recorded(referring(), there("10")))
    assert reason_of(deployment, ObservedSources()) == "AwaitingPropagation"
    assert reason_of(deployment, there(**{labels.SOURCE_VERSION: "9"})) == "AwaitingPropagation"
    for version in ("10", "11"):
        assert reason_of(deployment, there(**{labels.SOURCE_VERSION: version})) == "Ready"


def test_without_a_project_the_sources_of_the_same_namespace_count() -> None:
    assert reason_of(referring(), there()) == "Ready"
    assert reason_of(referring(), ObservedSources()) == "SourceNotFound"
    template = referring().spec.template
    verdict = data_ready_condition(referring(), "", references(template), there())
    assert verdict.status == TRUE


def test_a_source_version_annotation_set_by_users_does_not_change_the_resolution() -> None:
    forged = there("5", **{labels.SOURCE_VERSION: "999999"})
    assert (
        '"ConfigMap/web":"5"'
        in propagated_annotations(recorded(referring(), forged))[labels.RESOLVED_DATA]
    )
