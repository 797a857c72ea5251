"""The CustomResourceDefinitions in deploy/crds are generated from the kinds."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from datum_compute.api.kinds import CLUSTER, DEPLOYMENT, INSTANCE, KINDS, NAMESPACE, POLICY
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.schema.derive import crd_manifest, structural_schema
from hack.manifests import crd_files

CUSTOM = [kind for kind in KINDS if not kind.built_in]


def version_of(kind: KindInfo[Any]) -> dict[str, Any]:
    (version,) = crd_manifest(kind)["spec"]["versions"]
    assert isinstance(version, dict)
    return version


def test_only_kinds_of_datum_and_milo_have_definitions() -> None:
    groups = {name.split("_")[0] for name in crd_files()}
    assert groups == {
        "compute.datumapis.com",
        "ipam.miloapis.com",
        "networking.datumapis.com",
        "quota.miloapis.com",
        "region.datumapis.com",
        "resourcemanager.miloapis.com",
        "services.miloapis.com",
    }


def test_files_contain_the_generated_definitions() -> None:
    written = [yaml.safe_load(text) for text in crd_files().values()]
    assert written == [crd_manifest(kind) for kind in CUSTOM if not kind.partial]


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: str(kind.kind))
def test_the_names_of_a_definition_are_consistent(kind: KindInfo[Any]) -> None:
    manifest = crd_manifest(kind)
    spec, names = manifest["spec"], manifest["spec"]["names"]
    assert manifest["metadata"]["name"] == f"{names['plural']}.{spec['group']}"
    assert names["listKind"] == names["kind"] + "List"
    assert names["singular"] == names["kind"].lower()
    assert names["plural"].islower()
    assert spec["scope"] == ("Namespaced" if kind.namespaced else "Cluster")
    assert version_of(kind)["schema"]["openAPIV3Schema"] == structural_schema(kind)


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: str(kind.kind))
def test_every_column_has_a_type_of_kubernetes(kind: KindInfo[Any]) -> None:
    for column in version_of(kind)["additionalPrinterColumns"]:
        assert column["type"] in ("string", "integer", "number", "boolean", "date")
        assert column["jsonPath"].startswith(".")


def test_only_kinds_with_a_status_have_the_status_subresource() -> None:
    assert version_of(INSTANCE)["subresources"] == {"status": {}}
    assert "subresources" not in version_of(POLICY)
    assert crd_manifest(CLUSTER)["spec"]["scope"] == "Cluster"


def test_a_kind_with_desired_and_current_replicas_has_the_scale_subresource() -> None:
    assert version_of(DEPLOYMENT)["subresources"] == {
        "status": {},
        "scale": {
            "specReplicasPath": ".spec.scaleSettings.minReplicas",
            "statusReplicasPath": ".status.replicas",
            "labelSelectorPath": ".status.selector",
        },
    }


def test_definitions_contain_categories_and_selectable_fields() -> None:
    assert crd_manifest(INSTANCE)["spec"]["names"]["categories"] == ["all", "compute"]
    assert "categories" not in crd_manifest(POLICY)["spec"]["names"]
    assert {"jsonPath": ".spec.cityCode"} in version_of(DEPLOYMENT)["selectableFields"]
    assert "selectableFields" not in version_of(INSTANCE)


def field_type(schema: JsonObject, path: str) -> str:
    """Return the type of the field at this path, or an empty text."""
    for name in path.removeprefix(".").split("."):
        schema = schema.get("properties", {}).get(name, {})
    return str(schema.get("type", ""))


@pytest.mark.parametrize("kind", CUSTOM, ids=lambda kind: str(kind.kind))
def test_paths_of_columns_and_subresources_are_fields_of_the_schema(kind: KindInfo[Any]) -> None:
    """kube-apiserver rejects selectable fields that are not strings, integers or booleans."""
    schema = structural_schema(kind)
    for field in kind.selectable:
        assert field_type(schema, field.path) in ("string", "integer", "boolean"), field.path
    if kind.scale:
        assert field_type(schema, kind.scale.spec_replicas_path) == "integer"
        assert field_type(schema, kind.scale.status_replicas_path) == "integer"
    for column in kind.columns:
        start = column.path.partition("[")[0].partition(r".topology\.")[0]
        int_or_string = start.startswith(".spec.resources.")
        known = column.path.startswith(".metadata") or int_or_string or field_type(schema, start)
        assert known or kind.partial, column.path


def test_wide_columns_have_a_lower_priority() -> None:
    columns = {c["name"]: c for c in version_of(INSTANCE)["additionalPrinterColumns"]}
    assert columns["Message"]["priority"] == 1
    assert "priority" not in columns["Ready"]


def test_built_in_kinds_have_no_definition() -> None:
    with pytest.raises(ValueError, match="built-in kind"):
        crd_manifest(NAMESPACE)
