"""What a project puts on record about data, and what a cell makes of it."""

from __future__ import annotations

import msgspec

from datum_compute.api import labels
from datum_compute.api.conditions import TRUE
from datum_compute.api.configmap import ConfigMap
from datum_compute.api.datasources import EnvFromSource, WholeSource
from datum_compute.api.instance import Container, InstanceTemplate, Runtime, Sandbox, TemplateSpec
from datum_compute.api.kinds import CONFIG_MAP
from datum_compute.api.meta import ObjectMeta, Ref
from datum_compute.api.plane import project_plane
from datum_compute.api.references import Source, references
from datum_compute.api.workloaddeployment import WorkloadDeployment
from datum_compute.api.workname import work_names
from datum_compute.planning.federation.referenced_objects import (
    NAME_MAX,
    arrival_verdict,
    carried,
    is_settled,
    plan_release,
    plan_resolution,
    resolve,
)
from datum_compute.planning.karmada.bindings import binding_name
from datum_compute.planning.plan import Patch, Plan, Wait
from datum_compute.planning.rollout.referenced_data import ObservedSources
from datum_compute.planning.workload.templates import template_hash
from testkit.builders import NOW, a_deployment

PROJECT = project_plane("alpha")
WEB = Source("ConfigMap", "web")
MARK = labels.REFERENCED_DATA_FINALIZER


def referring(name: str = "web", *, optional: bool = False) -> WorkloadDeployment:
    taken = EnvFromSource(config_map_ref=WholeSource(name=name, optional=optional))
    sandbox = Sandbox(containers=[Container(name="app", image="web:1", env_from=[taken])])
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
    plan = plan_resolution(PROJECT, deployment, resolve(deployment, observed))
    return patched(deployment, plan)


def on_cell(deployment: WorkloadDeployment) -> WorkloadDeployment:
    return with_annotations(deployment, **{labels.SOURCE_GENERATION: "1"})


def told(deployment: WorkloadDeployment | None, observed: ObservedSources) -> str:
    template = referring().spec.template
    found = arrival_verdict(deployment, template_hash(template), references(template), observed)
    return str(found.reason)


def test_the_expected_set_is_recorded_sorted_and_travels() -> None:
    found = recorded(referring(), there())
    assert carried(found)[labels.EXPECTED_DATA] == '["ConfigMap/web"]'
    assert plan_resolution(PROJECT, found, resolve(found, there())).actions == ()


def test_the_mark_comes_before_the_record() -> None:
    bare = msgspec.structs.replace(
        referring(), metadata=msgspec.structs.replace(referring().metadata, finalizers=[])
    )
    (guard,) = plan_resolution(PROJECT, bare, resolve(bare, there())).actions
    assert isinstance(guard, Patch)
    assert guard.patch["metadata"]["finalizers"] == [MARK]


def test_a_deployment_without_data_is_left_alone() -> None:
    plain = a_deployment()
    assert plan_resolution(PROJECT, plain, resolve(plain, ObservedSources())).is_settled


def test_another_version_of_a_source_is_no_news_but_its_absence_is() -> None:
    found = recorded(referring(), there("5"))
    assert is_settled(found, resolve(found, there("9")))
    assert not is_settled(found, resolve(found, ObservedSources()))


def test_names_that_no_work_can_have_are_refused() -> None:
    """Seen: one of 243 characters was waited for for ever, because its Work could not be made."""
    long = referring("w" * (NAME_MAX + 1))
    assert resolve(long, ObservedSources()).reason == "SourceNameTooLong"
    ref = Ref("ns-u", "w" * NAME_MAX)
    names = [*work_names(CONFIG_MAP, ref), binding_name(CONFIG_MAP, ref.name)]
    assert max(map(len, names)) <= 253


def test_what_every_plane_has_of_its_own_is_not_waited_for() -> None:
    """Seen: a workload that refers to it waited for its copy for ever, and did not say why."""
    found = resolve(referring("kube-root-ca.crt"), ObservedSources())
    assert found.reason == "SourceNameReserved"
    assert "copy it to another name" in found.message


def test_a_deployment_that_goes_waits_for_its_copies() -> None:
    leaving = msgspec.structs.replace(
        referring(), metadata=msgspec.structs.replace(referring().metadata, deletion_timestamp=NOW)
    )
    (wait,) = plan_release(PROJECT, leaving, ["ConfigMap/w"]).actions
    assert isinstance(wait, Wait)
    (release,) = plan_release(PROJECT, leaving, []).actions
    assert isinstance(release, Patch)
    assert release.patch["metadata"]["finalizers"] == []


def test_a_cell_waits_for_the_word_of_the_project() -> None:
    assert told(None, there()) == "Resolving"
    assert told(on_cell(referring()), there()) == "Resolving"
    garbled = with_annotations(on_cell(referring()), **{labels.RESOLVED_DATA: "{"})
    assert told(garbled, there()) == "Resolving"


def test_a_word_about_another_template_is_none() -> None:
    another = recorded(referring(optional=True), there())
    assert told(on_cell(another), there()) == "Resolving"


def test_a_cell_says_what_the_project_found_missing() -> None:
    assert told(on_cell(recorded(referring(), ObservedSources())), there()) == "SourceNotFound"


def test_a_cell_waits_for_a_copy_that_is_as_new_as_what_the_project_saw() -> None:
    deployment = on_cell(recorded(referring(), there("10")))
    assert told(deployment, ObservedSources()) == "AwaitingPropagation"
    assert told(deployment, there(**{labels.SOURCE_VERSION: "9"})) == "AwaitingPropagation"
    for version in ("10", "11"):
        assert told(deployment, there(**{labels.SOURCE_VERSION: version})) == "Ready"


def test_where_there_is_no_project_the_sources_lie_beside() -> None:
    assert told(referring(), there()) == "Ready"
    assert told(referring(), ObservedSources()) == "SourceNotFound"
    template = referring().spec.template
    verdict = arrival_verdict(referring(), "", references(template), there())
    assert verdict.status == TRUE


def test_what_users_write_on_a_source_is_no_version() -> None:
    forged = there("5", **{labels.SOURCE_VERSION: "999999"})
    assert '"ConfigMap/web":"5"' in carried(recorded(referring(), forged))[labels.RESOLVED_DATA]
