"""Fields that a model declares immutable cannot change."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.chain import admit
from datum_compute.api.kinds import (
    CLAIM,
    DEPLOYMENT,
    INSTANCE_TYPE,
    NETWORK_BINDING,
    PROJECT,
    REGISTRATION,
    REVISION,
    SERVICE,
)
from datum_compute.api.meta.codec import JsonObject, deep_copy
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.derive import structural_schema
from datum_compute.api.schema.validate import ValidationReport, compile_check

CONSUMER = {"apiGroup": "resourcemanager.miloapis.com", "kind": "Project", "name": "demo"}
TEMPLATE = {
    "spec": {"runtime": {"sandbox": {"containers": [{"name": "app", "image": "web:1"}]}}},
}

SPECS: dict[KindInfo[Any], JsonObject] = {
    CLAIM: {
        "consumerRef": CONSUMER,
        "resourceRef": CONSUMER,
        "requests": [{"resourceType": "compute.datumapis.com/instances", "amount": 1}],
    },
    DEPLOYMENT: {
        "workloadRef": {"name": "web", "uid": "u"},
        "placementName": "main",
        "cityCode": "DFW",
        "template": TEMPLATE,
        "scaleSettings": {"minReplicas": 1},
    },
    INSTANCE_TYPE: {"resources": {"cpu": "1", "memory": "2Gi"}},
    NETWORK_BINDING: {"network": {"name": "default"}, "location": {"name": "dfw"}},
    PROJECT: {"ownerRef": {"kind": "Organization", "name": "acme"}},
    REGISTRATION: {
        "consumerType": {"apiGroup": "resourcemanager.miloapis.com", "kind": "Project"},
        "type": "Entity",
        "resourceType": "compute.datumapis.com/instances",
        "baseUnit": "1",
        "displayUnit": "instance",
        "claimingResources": [{"apiGroup": "compute.datumapis.com", "kind": "Instance"}],
    },
    REVISION: {
        "workloadRef": {"name": "web", "uid": "u"},
        "revision": 1,
        "templateHash": "abc",
        "template": TEMPLATE,
        "placements": [{"name": "main", "cityCodes": ["DFW"], "scaleSettings": {"minReplicas": 1}}],
    },
    SERVICE: {
        "serviceName": "compute.datumapis.com",
        "owner": {"producerProjectRef": {"name": "datum-cloud"}},
    },
}

# kind, the field that is called immutable, a path in it, another value
REFUSED: list[tuple[KindInfo[Any], str, str, Any]] = [
    (CLAIM, "spec", "requests", [{"resourceType": "compute.datumapis.com/vcpus", "amount": 1}]),
    (CLAIM, "spec", "consumerRef.name", "other"),
    (DEPLOYMENT, "spec.cityCode", "cityCode", "ORD"),
    (INSTANCE_TYPE, "spec.resources", "resources.cpu", "2"),
    (INSTANCE_TYPE, "spec.resources", "resources.memory", "4Gi"),
    (NETWORK_BINDING, "spec.network", "network.name", "other"),
    (NETWORK_BINDING, "spec.network", "network.namespace", "other"),
    (NETWORK_BINDING, "spec.location", "location.name", "ord"),
    (PROJECT, "spec.ownerRef", "ownerRef.name", "other"),
    (REGISTRATION, "spec.consumerType", "consumerType.kind", "Organization"),
    (REGISTRATION, "spec.type", "type", "Allocation"),
    (REGISTRATION, "spec.resourceType", "resourceType", "other"),
    (REVISION, "spec.templateHash", "templateHash", "def"),
    (REVISION, "spec.template", "template.metadata", {"labels": {"a": "b"}}),
    (REVISION, "spec.workloadRef", "workloadRef.uid", "v"),
    (SERVICE, "spec.serviceName", "serviceName", "other.datumapis.com"),
]

ALLOWED: list[tuple[KindInfo[Any], str, Any]] = [
    (DEPLOYMENT, "scaleSettings.minReplicas", 2),
    (INSTANCE_TYPE, "displayName", "small"),
    (NETWORK_BINDING, "consumer", {"kind": "WorkloadDeployment", "name": "web"}),
    (REGISTRATION, "description", "counted"),
    (REVISION, "images", [{"container": "app", "digest": "sha256:1"}]),
    (SERVICE, "description", "runs things"),
]


def stored(kind: KindInfo[Any]) -> JsonObject:
    obj = {"metadata": {"name": "x"}, "spec": deep_copy(SPECS[kind])}
    report = ValidationReport()
    checked: JsonObject = compile_check(structural_schema(kind))(obj, "", report)
    assert report.errors == []
    return checked


def changed(obj: JsonObject, path: str, value: Any) -> JsonObject:
    result = deep_copy(obj)
    inner = result["spec"]
    *parents, last = path.split(".")
    for name in parents:
        inner = inner[name]
    inner[last] = value
    return result


@pytest.mark.parametrize(("kind", "field", "path", "value"), REFUSED)
def test_a_change_of_an_immutable_field_is_refused(
    kind: KindInfo[Any], field: str, path: str, value: Any
) -> None:
    old = stored(kind)
    new = changed(old, path, value)
    (cause,) = admit(kind, new, old)[1]
    assert (cause.field, cause.reason) == (field, "FieldValueInvalid")
    assert "is immutable; " in cause.message
    assert admit(kind, new, None)[1] == []


@pytest.mark.parametrize(("kind", "path", "value"), ALLOWED)
def test_other_fields_of_the_same_object_can_change(
    kind: KindInfo[Any], path: str, value: Any
) -> None:
    old = stored(kind)
    assert admit(kind, changed(old, path, value), old)[1] == []


@pytest.mark.parametrize("kind", SPECS, ids=lambda kind: str(kind.kind))
def test_an_unchanged_object_is_accepted(kind: KindInfo[Any]) -> None:
    assert admit(kind, stored(kind), stored(kind))[1] == []


def test_a_default_missing_in_the_old_object_is_no_change() -> None:
    """What was stored by an older release has no defaults of fields that are newer than it."""
    old = {"metadata": {"name": "x"}, "spec": deep_copy(SPECS[REVISION])}
    assert old != stored(REVISION)
    assert admit(REVISION, stored(REVISION), old)[1] == []


def test_the_error_contains_the_current_value_if_it_is_a_string() -> None:
    old = stored(DEPLOYMENT)
    (cause,) = admit(DEPLOYMENT, changed(old, "cityCode", "ORD"), old)[1]
    assert cause.message == (
        'Invalid value: "ORD": is immutable; create a deployment for the other city instead '
        '(it is "DFW")'
    )
