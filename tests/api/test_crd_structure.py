"""kube-apiserver accepts the files in deploy/crds: schemas are structural, defaults are valid."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.fields import LIST_KEYS, LIST_TYPE, VALIDATIONS
from datum_compute.api.schema.derive import INT_OR_STRING, PRESERVE
from datum_compute.api.schema.validate import ValidationReport, compile_check

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "crds"
EACH_FILE = pytest.mark.parametrize("name", sorted(file.name for file in FOLDER.glob("*.yaml")))
TYPES = ("object", "array", "string", "integer", "number", "boolean")


@cache
def schema_of(name: str) -> JsonObject:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    (version,) = yaml.load((FOLDER / name).read_text(), loader)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]
    assert isinstance(schema, dict)
    return schema


def nodes(schema: JsonObject, path: str = "") -> Iterator[tuple[str, JsonObject]]:
    yield path, schema
    for name, inner in schema.get("properties", {}).items():
        yield from nodes(inner, f"{path}.{name}")
    for word in ("items", "additionalProperties"):
        if word in schema:
            yield from nodes(schema[word], f"{path}[]")


def words(value: Any) -> Iterator[str]:
    """Yield every key at any depth."""
    if isinstance(value, dict):
        yield from value
    for inner in value.values() if isinstance(value, dict) else value:
        if isinstance(inner, dict | list):
            yield from words(inner)


@EACH_FILE
def test_every_node_has_a_type_and_schemas_contain_no_references(name: str) -> None:
    schema = schema_of(name)
    assert not {"$ref", "$defs", "definitions", "nullable"} & set(words(schema))
    for path, node in nodes(schema):
        if node.get(INT_OR_STRING):
            assert "type" not in node, path
            assert node["anyOf"] == [{"type": "integer"}, {"type": "string"}], path
        elif "type" not in node:
            assert node.get(PRESERVE) is True, path
        else:
            assert node["type"] in TYPES, path
            assert not {"allOf", "anyOf", "oneOf", "not"} & set(node), path


@EACH_FILE
def test_defaults_are_valid_and_need_no_pruning(name: str) -> None:
    """kube-apiserver rejects a default that is invalid or has unknown fields."""
    for path, node in nodes(schema_of(name)):
        if "default" in node:
            report = ValidationReport()
            compile_check(node)(node["default"], path, report)
            assert (report.errors, report.unknown) == ([], []), path


@EACH_FILE
def test_the_keys_of_a_list_are_required_or_have_defaults(name: str) -> None:
    for path, node in nodes(schema_of(name)):
        if node.get("type") != "array":
            continue
        match node[LIST_TYPE]:
            case "map":
                fields = node["items"]["properties"]
                for key in node[LIST_KEYS]:
                    known = key in node["items"].get("required", ()) or "default" in fields[key]
                    assert known, f"{path}: {key}"
                    assert fields[key]["type"] in ("string", "integer", "boolean"), f"{path}: {key}"
            case "set":
                assert node["items"]["type"] in ("string", "integer", "boolean"), path
            case other:
                assert other == "atomic", path


@EACH_FILE
def test_patterns_are_supported_by_go(name: str) -> None:
    """RE2 has neither look-around nor back references."""
    for path, node in nodes(schema_of(name)):
        if "pattern" in node:
            assert not re.search(r"\(\?[=!<]|\\[1-9]|\\Z", node["pattern"]), path
            assert node["pattern"].startswith("^"), path
            assert node["pattern"].endswith("$"), path


@EACH_FILE
def test_messages_of_immutable_fields_contain_the_next_action(name: str) -> None:
    for path, node in nodes(schema_of(name)):
        for rule in node.get(VALIDATIONS, ()):
            assert rule["rule"] == "self == oldSelf", path
            assert rule["message"].startswith("is immutable; "), path
