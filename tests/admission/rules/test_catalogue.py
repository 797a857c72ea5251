"""Rules for services, instance types, organizations and projects."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import admit
from datum_compute.api.errors import Cause
from datum_compute.api.kinds import (
    INSTANCE_TYPE,
    ORGANIZATION,
    PROJECT,
    SERVICE,
    SERVICE_CONFIGURATION,
)
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo


def causes(kind: KindInfo[Any], new: JsonObject, old: JsonObject | None = None) -> list[Cause]:
    return admit(kind, new, old)[1]


def fields(kind: KindInfo[Any], new: JsonObject, old: JsonObject | None = None) -> dict[str, str]:
    return {cause.field: cause.reason for cause in causes(kind, new, old)}


def a_service(phase: str, name: str = "compute") -> JsonObject:
    return {"metadata": {"name": name}, "spec": {"serviceName": "compute.x", "phase": phase}}


def a_type(phase: str = "Active", replacement: str = "", name: str = "small") -> JsonObject:
    lifecycle = {"phase": phase, "replacementInstanceType": replacement}
    spec = {"resources": {"cpu": 1, "memory": "2Gi"}, "lifecycle": lifecycle}
    return {"metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("before", "now"),
    [("Draft", "Draft"), ("Draft", "Published"), ("Published", "Deprecated"),
     ("Deprecated", "Retired"), ("Retired", "Retired")],
)  # fmt: skip
def test_the_phase_of_a_service_can_advance_by_one_step(before: str, now: str) -> None:
    assert causes(SERVICE, a_service(now), a_service(before)) == []


@pytest.mark.parametrize(
    ("before", "now"),
    [("Draft", "Deprecated"), ("Published", "Draft"), ("Deprecated", "Published"),
     ("Retired", "Draft")],
)  # fmt: skip
def test_the_phase_of_a_service_cannot_skip_a_step_or_go_back(before: str, now: str) -> None:
    (cause,) = causes(SERVICE, a_service(now), a_service(before))
    assert (cause.field, cause.reason) == ("spec.phase", "FieldValueInvalid")
    assert before in cause.message


def test_a_new_service_can_have_any_phase() -> None:
    assert causes(SERVICE, a_service("Published")) == []


def test_the_error_names_the_last_phase() -> None:
    (cause,) = causes(SERVICE, a_service("Draft"), a_service("Retired"))
    assert "Retired is the last one" in cause.message


def test_a_new_instance_type_is_active() -> None:
    assert causes(INSTANCE_TYPE, a_type()) == []
    assert fields(INSTANCE_TYPE, a_type("Deprecated", "other")) == {
        "spec.lifecycle.phase": "FieldValueInvalid"
    }


def test_a_deprecated_instance_type_names_another_one_as_replacement() -> None:
    field = "spec.lifecycle.replacementInstanceType"
    assert fields(INSTANCE_TYPE, a_type("Deprecated"), a_type()) == {field: "FieldValueRequired"}
    itself = a_type("Deprecated", "small")
    assert fields(INSTANCE_TYPE, itself, a_type()) == {field: "FieldValueInvalid"}
    assert causes(INSTANCE_TYPE, a_type("Deprecated", "other"), a_type()) == []


def test_an_instance_type_is_deprecated_before_it_is_disabled() -> None:
    phase = {"spec.lifecycle.phase": "FieldValueInvalid"}
    assert fields(INSTANCE_TYPE, a_type("Disabled", "other"), a_type()) == phase
    assert fields(INSTANCE_TYPE, a_type(), a_type("Deprecated", "other")) == phase
    deprecated, disabled = a_type("Deprecated", "other"), a_type("Disabled", "other")
    assert causes(INSTANCE_TYPE, disabled, deprecated) == []


def a_configuration(**spec: Any) -> JsonObject:
    return {"metadata": {"name": "compute"}, "spec": {"phase": "Draft", **spec}}


def test_limits_and_costs_need_declared_metrics() -> None:
    limit = {"name": "n", "metric": "instances", "defaultLimit": 10}
    rule = {"selector": {"apiGroup": "", "kind": "X"}, "metricCosts": {"vcpus": 1}}
    quota = {"limits": [limit], "metricRules": [rule]}
    found = causes(SERVICE_CONFIGURATION, a_configuration(quota=quota))
    assert [cause.field for cause in found] == [
        "spec.quota.limits[0].metric",
        "spec.quota.metricRules[0].metricCosts",
    ]
    assert '"instances": is not declared in spec.metrics (declared: none)' in found[0].message
    metrics = [{"name": "instances"}, {"name": "vcpus"}]
    assert causes(SERVICE_CONFIGURATION, a_configuration(quota=quota, metrics=metrics)) == []


def test_the_default_limit_is_at_most_the_maximum() -> None:
    def limits(given: int, **most: int) -> dict[str, str]:
        limit = {"name": "n", "metric": "m", "defaultLimit": given, **most}
        spec = {"metrics": [{"name": "m"}], "quota": {"limits": [limit]}}
        return fields(SERVICE_CONFIGURATION, a_configuration(**spec))

    assert limits(11, maxLimit=10) == {"spec.quota.limits[0].defaultLimit": "FieldValueInvalid"}
    assert limits(10, maxLimit=10) == {}
    assert limits(10) == {}


@pytest.mark.parametrize(("kind", "most"), [(ORGANIZATION, 50), (PROJECT, 55), (SERVICE, 63)])
def test_names_have_a_maximum_length(kind: KindInfo[Any], most: int) -> None:
    spec = {"phase": "Draft", "serviceName": "x"}
    long = {"metadata": {"name": "a" * (most + 1)}, "spec": spec}
    (cause,) = causes(kind, long)
    assert (cause.field, cause.reason) == ("metadata.name", "FieldValueInvalid")
    assert f"no more than {most} characters, because " in cause.message
    assert causes(kind, {"metadata": {"name": "a" * most}, "spec": spec}) == []
    assert causes(kind, long, long) == []
