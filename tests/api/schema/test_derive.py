"""Schemas are derived from the models, and are structural as Kubernetes requires."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from datum_compute.api.kinds import CLUSTER, KINDS, POLICY, WORK, WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import (
    LIST_KEYS,
    LIST_TYPE,
    PATCH_KEY,
    PATCH_STRATEGY,
    VALIDATIONS,
)
from datum_compute.api.meta.objects import KindInfo
from datum_compute.api.reviews import REVIEWS
from datum_compute.api.schema.derive import INT_OR_STRING, PRESERVE, structural_schema
from datum_compute.api.schema.validate import ValidationReport, compile_check

GOLDEN = Path(__file__).parent / "golden" / "workload_schema.json"
EACH_KIND = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.kind))


def test_the_schema_of_workload_equals_the_golden_file() -> None:
    """To change the schema, overwrite the golden file and review the diff."""
    schema = structural_schema(WORKLOAD)
    assert schema == orjson.loads(GOLDEN.read_bytes()), orjson.dumps(
        schema, option=orjson.OPT_INDENT_2
    ).decode()


def nodes(path: str, schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(f"{path}.{name}", inner)
    for word in ("items", "additionalProperties"):
        if isinstance(schema.get(word), dict):
            yield from nodes(f"{path}[]", schema[word])


KEYWORDS = {
    *("type", "properties", "required", "items", "additionalProperties", "default", "enum"),
    *("description", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems"),
    *("pattern", "format", PRESERVE, LIST_TYPE, LIST_KEYS, VALIDATIONS, INT_OR_STRING, "anyOf"),
}
# Definitions of custom kinds cannot contain these.
PATCH_KEYWORDS = {PATCH_STRATEGY, PATCH_KEY}


@EACH_KIND
def test_schemas_contain_only_keywords_of_structural_schemas(kind: KindInfo[Any]) -> None:
    for path, schema in nodes(kind.kind, structural_schema(kind)):
        assert set(schema) <= (KEYWORDS | PATCH_KEYWORDS if kind.built_in else KEYWORDS), path
        typed = "type" in schema or schema.get(PRESERVE) or schema.get(INT_OR_STRING)
        assert typed, f"{path} has no type"
        assert ("anyOf" in schema) is bool(schema.get(INT_OR_STRING)), path
        assert not ("properties" in schema and "additionalProperties" in schema), path
        assert set(schema.get("required", ())) <= set(schema.get("properties", ())), path
        assert schema.get("required") != [], path


@pytest.mark.parametrize("kind", [*KINDS, *REVIEWS], ids=lambda kind: str(kind.kind))
def test_every_field_has_a_description(kind: KindInfo[Any]) -> None:
    """kubectl explain and the reference show the descriptions."""
    undescribed = [
        path
        for path, schema in nodes(kind.kind, structural_schema(kind))
        if "description" not in schema and not path.endswith("[]")
    ]
    assert undescribed == [f"{kind.kind}.metadata"]  # described by the schema of ObjectMeta


@EACH_KIND
def test_every_list_has_a_list_type(kind: KindInfo[Any]) -> None:
    for path, schema in nodes(kind.kind, structural_schema(kind)):
        if schema.get("type") == "array":
            assert schema[LIST_TYPE] in ("atomic", "set", "map"), path
            assert (LIST_KEYS in schema) is (schema[LIST_TYPE] == "map"), path


@EACH_KIND
def test_every_field_with_a_pattern_has_a_maximum_length(kind: KindInfo[Any]) -> None:
    for path, schema in nodes(kind.kind, structural_schema(kind)):
        assert "pattern" not in schema or schema["maxLength"] <= 1024, path


@EACH_KIND
def test_immutable_fields_are_required_and_outside_lists(kind: KindInfo[Any]) -> None:
    """Elsewhere kube-apiserver does not always evaluate a rule that compares old and new."""

    def check(path: str, schema: JsonObject, *, always: bool) -> None:
        assert VALIDATIONS not in schema or always, path
        for name, inner in schema.get("properties", {}).items():
            required = name in schema.get("required", ())
            check(f"{path}.{name}", inner, always=always and required)
        for word in ("items", "additionalProperties"):
            if isinstance(schema.get(word), dict):
                check(f"{path}[]", schema[word], always=False)

    check(kind.kind, structural_schema(kind), always=True)


@EACH_KIND
def test_no_object_is_emptied_by_pruning(kind: KindInfo[Any]) -> None:
    """kube-apiserver drops all fields of an object without properties in the schema."""
    for path, schema in nodes(kind.kind, structural_schema(kind)):
        if schema.get("type") == "object" and not path.endswith(".metadata"):
            keywords = {"properties", "additionalProperties", PRESERVE} & set(schema)
            assert keywords or path.endswith("template.metadata"), path


@EACH_KIND
def test_the_keys_of_a_list_are_required_or_have_defaults(kind: KindInfo[Any]) -> None:
    for path, schema in nodes(kind.kind, structural_schema(kind)):
        for key in schema.get("x-kubernetes-list-map-keys", ()):
            items = schema["items"]
            known = key in items.get("required", ()) or "default" in items["properties"][key]
            assert known, f"{path}: {key}"


@EACH_KIND
def test_defaults_are_valid(kind: KindInfo[Any]) -> None:
    for path, schema in nodes(kind.kind, structural_schema(kind)):
        if "default" in schema:
            report = ValidationReport()
            compile_check(schema)(schema["default"], path, report)
            assert (report.errors, report.unknown) == ([], [])


@EACH_KIND
def test_no_default_is_an_empty_value(kind: KindInfo[Any]) -> None:
    for path, schema in nodes(kind.kind, structural_schema(kind)):
        assert schema.get("default", "x") not in ("", 0, [], False, None), path


def find_unknown_fields(kind: KindInfo[Any], value: JsonObject) -> list[str]:
    report = ValidationReport()
    compile_check(structural_schema(kind))(value, "", report)
    return report.unknown


def test_unknown_fields_of_kinds_of_other_projects_are_kept_at_any_depth() -> None:
    selector = {"apiVersion": "v1", "kind": "ConfigMap", "strange": 1}
    affinity = {"clusterNames": ["a"], "exclude": ["b"]}
    placement = {"clusterAffinity": affinity, "clusterTolerations": [{"key": "x"}]}
    spec = {"resourceSelectors": [selector], "placement": placement, "priority": 3}
    assert find_unknown_fields(POLICY, {"spec": spec}) == []
    assert find_unknown_fields(CLUSTER, {"spec": {"secretRef": {"name": "s"}}}) == []
    assert (
        find_unknown_fields(
            WORK, {"spec": {"workload": {"manifests": [{"kind": "X", "spec": {}}]}}}
        )
        == []
    )


def test_unknown_fields_of_our_kinds_are_dropped() -> None:
    assert find_unknown_fields(WORKLOAD, {"spec": {"strange": 1}}) == ["spec.strange"]


def test_the_description_is_the_first_paragraph_of_the_docstring() -> None:
    assert structural_schema(WORKLOAD)["description"].startswith("A Workload runs instances")


@EACH_KIND
def test_limits_of_integers_are_integers_as_floats(kind: KindInfo[Any]) -> None:
    """Kubernetes decodes limits as floats and rejects those that are not integers."""
    for path, schema in nodes(kind.kind, structural_schema(kind)):
        for word in ("minimum", "maximum"):
            limit = schema.get(word, 0)
            assert int(float(limit)) == limit, f"{path} has a {word} of {limit}"


def test_an_integer_of_int_or_string_has_at_most_64_bits() -> None:
    check = compile_check({INT_OR_STRING: True, "anyOf": [{"type": "integer"}, {"type": "string"}]})
    for value, fits in ((2**63 - 1, True), (2**63, False), ("4Gi", True)):
        report = ValidationReport()
        check(value, "cpu", report)
        assert (not report.errors) is fits
