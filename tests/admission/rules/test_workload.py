"""The rules for Workloads and WorkloadDeployments, as pure functions."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import CHAIN, admit
from datum_compute.admission.rules.workload import check_template_metadata
from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, KINDS, WORKLOAD
from datum_compute.api.meta.codec import JsonObject, deep_copy


def container(name: str = "app", **more: Any) -> JsonObject:
    return {"name": name, "image": "web:1", **more}


def a_workload(
    *cities: str, containers: list[JsonObject] | None = None, name: str = "web"
) -> JsonObject:
    sandbox = {"containers": containers or [container()]}
    scale = {"minReplicas": 1}
    return {
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {"runtime": {"sandbox": sandbox}}},
            "placements": [
                {"name": "main", "cityCodes": list(cities or ("DFW",)), "scaleSettings": scale}
            ],
        },
    }


def problems(workload: JsonObject, old: JsonObject | None = None) -> dict[str, str]:
    return {cause.field: cause.reason for cause in admit(WORKLOAD, workload, old)[1]}


def test_normalizing_cities_does_not_change_the_sent_object() -> None:
    sent = a_workload("dfw", " Ord ")
    before = deep_copy(sent)
    admitted, causes = admit(WORKLOAD, sent, None)
    assert admitted["spec"]["placements"][0]["cityCodes"] == ["DFW", "ORD"]
    assert causes == []
    assert sent == before


def test_normalizing_changes_only_cities() -> None:
    admitted, _ = admit(WORKLOAD, a_workload("dfw"), None)
    assert admitted == a_workload("DFW")
    assert admit(WORKLOAD, admitted, admitted)[0] == admitted


def test_a_duplicate_city_is_refused_with_both_fields() -> None:
    _, (cause,) = admit(WORKLOAD, a_workload("dfw", "ord", "DFW"), None)
    assert cause.field == "spec.placements[0].cityCodes[2]"
    assert cause.reason == "FieldValueDuplicate"
    assert cause.message == 'Duplicate value: "DFW": also at spec.placements[0].cityCodes[0]'


def test_two_placements_can_share_a_city() -> None:
    workload = a_workload("DFW")
    placement = workload["spec"]["placements"][0]
    workload["spec"]["placements"].append({**placement, "name": "more"})
    assert problems(workload) == {}


@pytest.mark.parametrize("city", ["DFW", "us-east-1", "x"])
def test_valid_cities_are_accepted(city: str) -> None:
    assert problems(a_workload(city)) == {}


def test_port_names_are_unique_over_all_containers() -> None:
    http, other = {"name": "http", "port": 80}, {"name": "http", "port": 81}
    shared = [container("a", ports=[http]), container("b", ports=[other])]
    where = "spec.template.spec.runtime.sandbox.containers[1].ports[0].name"
    assert problems(a_workload(containers=shared)) == {where: "FieldValueDuplicate"}


def test_env_names_are_unique_within_a_container_only() -> None:
    variable = {"name": "A", "value": "1"}
    twice = a_workload(containers=[container(env=[variable, variable])])
    where = "spec.template.spec.runtime.sandbox.containers[0].env[1].name"
    assert problems(twice) == {where: "FieldValueDuplicate"}
    apart = [container("a", env=[variable]), container("b", env=[variable])]
    assert problems(a_workload(containers=apart)) == {}


def test_the_name_of_a_new_workload_is_a_label_and_an_old_one_can_stay() -> None:
    workload = a_workload(name="a" * 64)
    assert problems(workload) == {"metadata.name": "FieldValueInvalid"}
    assert problems(workload, old=workload) == {}
    assert problems(a_workload(name="a" * 63)) == {}


def test_rules_apply_to_updates() -> None:
    assert "spec.placements[0].cityCodes[1]" in problems(a_workload("a", "A"), old=a_workload())


def test_the_city_of_a_deployment_is_immutable() -> None:
    old = {"metadata": {}, "spec": {"cityCode": "DFW"}}
    moved = {"metadata": {}, "spec": {"cityCode": "ORD"}}
    _, (cause,) = admit(DEPLOYMENT, moved, old)
    assert (cause.field, cause.reason) == ("spec.cityCode", "FieldValueInvalid")
    assert '"DFW"' in cause.message
    assert admit(DEPLOYMENT, old, old)[1] == []
    assert admit(DEPLOYMENT, moved, None)[1] == []


def test_kinds_without_rules_are_unchanged() -> None:
    assert admit(CLUSTER, {"spec": {"x": 1}}, None) == ({"spec": {"x": 1}}, [])


def test_every_rule_is_for_a_served_kind() -> None:
    assert set(CHAIN) <= {kind.resource for kind in KINDS}


@pytest.mark.parametrize(
    "labels", [{"a b": "c"}, {"a": "not a label"}, {"-a": "b"}, {"a": "b" * 64}]
)
def test_invalid_labels_of_the_template_are_refused(labels: dict[str, str]) -> None:
    """Otherwise the cell would retry without end while the workload waits."""
    new = {"spec": {"template": {"metadata": {"labels": labels}}}}
    (cause,) = check_template_metadata(new, None)
    assert cause.field == "spec.template.metadata.labels"


def scale_problems(**settings: Any) -> list[str]:
    workload = a_workload()
    workload["spec"]["placements"][0]["scaleSettings"] = settings
    return [cause.message for cause in admit(WORKLOAD, workload, None)[1]]


@pytest.mark.parametrize(
    "settings",
    [
        {"minReplicas": 3, "maxUnavailable": 0},
        {"minReplicas": 3, "maxUnavailable": "0%", "maxSurge": 0},
        {"minReplicas": 1, "maxUnavailable": 0, "maxSurge": "0%"},
    ],
)
def test_a_rollout_that_could_not_proceed_is_refused_with_both_fields(settings: JsonObject) -> None:
    (message,) = scale_problems(**settings)
    assert "spec.placements[0].scaleSettings.maxSurge is 0" in message
    assert "set maxSurge to 1, or maxUnavailable to 1" in message


@pytest.mark.parametrize(
    "settings",
    [
        {"minReplicas": 1, "maxUnavailable": 0},
        {"minReplicas": 3, "maxUnavailable": 0, "maxSurge": "25%"},
        {"minReplicas": 3, "maxSurge": 0},
        {"minReplicas": 3},
    ],
)
def test_no_unavailable_instance_is_needed_if_a_surge_instance_is_allowed(
    settings: JsonObject,
) -> None:
    assert scale_problems(**settings) == []
