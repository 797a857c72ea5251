"""Template hashes, and templates of cities that were restarted alone."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
import pytest

from datum_compute.api.compute.deployment import (
    ObservedSource,
    WorkloadDeployment,
    WorkloadDeploymentStatus,
)
from datum_compute.api.compute.instance import InstanceTemplate, TemplateMeta, TemplateSpec
from datum_compute.api.compute.scale_to_zero import ScaleToZero
from datum_compute.api.compute.workload import PROGRESSING, CityRestart, Workload
from datum_compute.api.conditions import TRUE, ConditionValue, Reason, make_condition
from datum_compute.api.labels import CITY_RESTARTED_AT, RESTARTED_AT
from datum_compute.api.meta.codec import ApiStruct, decode_as, encode, from_json, to_json
from datum_compute.api.meta.fields import doc
from datum_compute.planning.workload.deployments import desired_deployments
from datum_compute.planning.workload.status import workload_status
from datum_compute.planning.workload.templates import current_templates, template_hash, template_in
from testkit.builders import NOW, a_template, a_workload


class NewerSpec(TemplateSpec, frozen=True, kw_only=True):
    """The template of a later release: one more field, with a default."""

    priority: Annotated[int, doc("Priority of scheduling.")] = 7
    tolerations: Annotated[list[str], doc("Tolerated taints.")] = []


class NewerTemplate(ApiStruct, frozen=True, kw_only=True):
    spec: NewerSpec
    metadata: TemplateMeta = TemplateMeta()


def test_a_new_field_with_a_default_does_not_change_the_hash() -> None:
    stored = encode(a_template())
    older, newer = decode_as(stored, InstanceTemplate), decode_as(stored, NewerTemplate)
    assert template_hash(newer) == template_hash(older)  # type: ignore[arg-type]


def test_a_new_field_with_a_value_changes_the_hash() -> None:
    newer = from_json({**to_json(a_template())}, NewerTemplate)
    spec = msgspec.structs.replace(newer.spec, priority=8)
    used = msgspec.structs.replace(newer, spec=spec)
    assert template_hash(used) != template_hash(newer)  # type: ignore[arg-type]


def test_an_explicit_default_does_not_change_the_hash() -> None:
    document = to_json(a_template())
    document["spec"]["runtime"]["resources"] = {"instanceType": "datumcloud/d1-standard-2"}
    document["spec"]["runtime"]["sandbox"]["containers"][0] |= {"env": [], "command": []}
    document["metadata"] = {"labels": {}, "annotations": {}}
    assert template_hash(from_json(document, InstanceTemplate)) == template_hash(a_template())


def test_the_init_process_changes_the_hash_only_when_it_is_turned_off() -> None:
    """A template from before the field has the same hash, so an upgrade recreates no instance."""
    before = "8ef48f9cb3afb66165f0bf5d55ddd4fb"
    assert template_hash(a_template()) == before
    document = to_json(a_template())
    container = document["spec"]["runtime"]["sandbox"]["containers"][0]
    container["init"] = True
    assert template_hash(from_json(document, InstanceTemplate)) == before
    container["init"] = False
    assert template_hash(from_json(document, InstanceTemplate)) != before


@pytest.mark.parametrize(
    "metadata",
    [
        TemplateMeta(annotations={"compute.datumapis.com/restartedAt": "2026-01-01T00:00:00Z"}),
        TemplateMeta(labels={"team": "blue"}),
    ],
)
def test_metadata_is_part_of_the_template(metadata: TemplateMeta) -> None:
    changed = msgspec.structs.replace(a_template(), metadata=metadata)
    assert template_hash(changed) != template_hash(a_template())


def test_the_hash_depends_on_the_order_of_containers_and_not_of_keys() -> None:
    def with_annotations(**annotations: str) -> InstanceTemplate:
        metadata = TemplateMeta(annotations=annotations)
        return msgspec.structs.replace(a_template(), metadata=metadata)

    one, other = with_annotations(a="1", b="2"), with_annotations(b="2", a="1")
    assert template_hash(one) == template_hash(other)
    assert template_hash(of_containers("a", "b")) != template_hash(of_containers("b", "a"))


def of_containers(*names: str) -> InstanceTemplate:
    containers: list[dict[str, Any]] = [{"name": name, "image": "web:1"} for name in names]
    return from_json(
        {"spec": {"runtime": {"sandbox": {"containers": containers}}}}, InstanceTemplate
    )


def test_the_hash_of_a_known_template_never_changes() -> None:
    """A change of this value would recreate every instance at the next upgrade."""
    assert template_hash(a_template()) == "8ef48f9cb3afb66165f0bf5d55ddd4fb"


def test_scale_to_zero_changes_only_the_hash_of_templates_that_use_it() -> None:
    document = to_json(a_template())
    document["spec"]["scaleToZero"] = {}
    asked = from_json(document, InstanceTemplate)
    assert asked.spec.scale_to_zero == ScaleToZero(idle_after="30s", mode="pause")
    assert template_hash(asked) != template_hash(a_template())
    document["spec"]["scaleToZero"] = {"mode": "pause", "idleAfter": "30s"}
    assert template_hash(from_json(document, InstanceTemplate)) == template_hash(asked)
    assert "scaleToZero" not in to_json(a_template())["spec"]


def restarted(workload: Workload, *cities: str, at: str = "t1") -> Workload:
    restarts = [CityRestart(city_code=city, at=at) for city in cities]
    spec = msgspec.structs.replace(workload.spec, restarts=restarts)
    return msgspec.structs.replace(workload, spec=spec)


def hashes(workload: Workload) -> dict[str, str]:
    return {d.spec.city_code: template_hash(d.spec.template) for d in desired_deployments(workload)}


def test_only_the_restarted_city_gets_another_template() -> None:
    workload = a_workload(cities=("DFW", "ORD"))
    before, after = hashes(workload), hashes(restarted(workload, "dfw"))
    assert before["DFW"] == before["ORD"] == template_hash(workload.spec.template)
    assert after["ORD"] == before["ORD"]
    assert after["DFW"] != before["DFW"]


def test_a_restart_has_the_same_template_in_every_pass() -> None:
    workload = a_workload(cities=("DFW",))
    once = restarted(workload, "DFW")
    assert hashes(once) == hashes(once)
    assert hashes(restarted(workload, "DFW", at="t2")) != hashes(once)


def test_a_restart_of_all_cities_includes_a_city_restarted_alone() -> None:
    once = restarted(a_workload(cities=("DFW",)), "DFW")
    metadata = msgspec.structs.replace(
        once.spec.template.metadata, annotations={RESTARTED_AT: "later"}
    )
    template = msgspec.structs.replace(once.spec.template, metadata=metadata)
    spec = msgspec.structs.replace(once.spec, template=template)
    both = msgspec.structs.replace(once, spec=spec)
    assert hashes(both) != hashes(once)
    assert template_in(both, "DFW").metadata.annotations == {
        RESTARTED_AT: "later",
        CITY_RESTARTED_AT: "t1",
    }


def test_a_restart_of_a_removed_city_changes_nothing() -> None:
    workload = a_workload(cities=("DFW",))
    assert hashes(restarted(workload, "LHR")) == hashes(workload)


def with_full_report(workload: Workload, deployment: WorkloadDeployment) -> WorkloadDeployment:
    """Return the deployment after its cell has reported all replicas as ready."""
    current = current_templates(workload).hash_in(deployment.spec.city_code)
    done = ConditionValue(TRUE, Reason.ROLLOUT_COMPLETE, "done")
    status = WorkloadDeploymentStatus(
        replicas=1,
        updated_replicas=1,
        ready_replicas=1,
        desired_replicas=1,
        observed_generation=1,
        observed_source=ObservedSource(generation=1, template_hash=current),
        conditions=[make_condition(PROGRESSING, done, generation=1, now=NOW)],
    )
    metadata = msgspec.structs.replace(deployment.metadata, generation=1)
    return msgspec.structs.replace(deployment, metadata=metadata, status=status)


def test_a_restarted_city_that_has_reported_counts_as_updated() -> None:
    workload = restarted(a_workload(cities=("DFW", "ORD")), "DFW")
    deployments = [with_full_report(workload, d) for d in desired_deployments(workload)]
    status = workload_status(workload, deployments, NOW)
    assert status.updated_replicas == 2
    (progressing,) = [c for c in status.conditions if c.type == PROGRESSING]
    assert progressing.reason == Reason.ROLLOUT_COMPLETE


def test_a_report_from_before_the_restart_does_not_count() -> None:
    before = a_workload(cities=("DFW", "ORD"))
    deployments = [with_full_report(before, d) for d in desired_deployments(before)]
    status = workload_status(restarted(before, "DFW"), deployments, NOW)
    assert status.updated_replicas == 1
