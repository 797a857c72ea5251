"""Limits on the cost of a custom resource definition, and cost with many definitions."""

from __future__ import annotations

from typing import Any

import pytest

from datum_compute.admission.rules.crd import COLUMNS_MAX, VERSIONS_MAX
from datum_compute.admission.rules.structural_schema import (
    NODES_MAX,
    PROBLEMS_MAX,
    SchemaBudget,
    schema_problems,
)
from datum_compute.api.meta.codec import JsonObject, decode
from datum_compute.api.meta.json_path import STEPS_MAX
from testkit.api_server.definitions import (
    DEFINITIONS,
    WIDGETS,
    define,
    definition,
    objects,
    replace_definition,
    version,
    widget,
    with_schema,
)
from testkit.api_server.running_server import InProcessServer, causes

TEXT: JsonObject = {"type": "string"}
ROOT = "spec.versions[0].schema.openAPIV3Schema"


def versions(count: int) -> list[JsonObject]:
    return [version(f"v{number}", storage=number == 1) for number in range(1, count + 1)]


def problems(schema: JsonObject) -> list[Any]:
    return schema_problems(schema, "schema", SchemaBudget())


async def test_a_definition_has_at_most_twenty_versions(server: InProcessServer) -> None:
    status = await server.status("POST", DEFINITIONS, definition(*versions(VERSIONS_MAX + 1)))
    assert causes(status) == {"spec.versions": "FieldValueTooMany"}
    assert "Too many: 21: must have at most 20 items" in status["message"]
    await define(server, definition(*versions(VERSIONS_MAX)))


async def test_the_nodes_of_all_versions_are_counted_before_any_other_check(
    server: InProcessServer,
) -> None:
    half = {f"f{number}": TEXT for number in range(NODES_MAX // 2)}
    wrong = objects(**{**half, "wrong": {"type": "nothing"}})
    both = definition(version("v1", wrong), version("v2", objects(**half), storage=False))
    status = await server.status("POST", DEFINITIONS, both)
    second = "spec.versions[1].schema.openAPIV3Schema"
    assert causes(status)[second] == "FieldValueTooMany"
    assert f"more than {NODES_MAX} nodes" in status["message"]


@pytest.mark.parametrize("keyword", ["allOf", "anyOf", "oneOf"])
def test_a_branch_counts_as_two_nodes(keyword: str) -> None:
    def with_branches(count: int) -> JsonObject:
        return {"type": "object", keyword: [{"minProperties": 1}] * count}

    assert not problems(with_branches(NODES_MAX // 2 - 1))
    assert problems(with_branches(NODES_MAX // 2 + 1))[0].reason == "FieldValueTooMany"


def test_only_the_first_problems_are_listed() -> None:
    schema = objects(**{f"f{number}": {"type": "nothing"} for number in range(1000)})
    assert len(problems(schema)) == PROBLEMS_MAX


def test_defaults_of_a_definition_share_one_budget() -> None:
    inner = objects(**{f"f{number}": {**TEXT, "default": "x" * 1000} for number in range(10)})
    schema = objects(**{f"g{number}": {**inner, "default": {}} for number in range(200)})
    (problem,) = problems(schema)
    assert (problem.reason, problem.field[-8:]) == ("FieldValueTooLong", ".default")


def test_a_costly_pattern_needs_a_maximum_length_that_fits() -> None:
    words = "|".join(f"{chr(97 + n % 26)}{'x' * (n % 13)}{n}" for n in range(120))
    pattern = f"^(({words})-)*$"
    for longest, refused in ((100, False), (1_000_000, True)):
        schema = objects(a={**TEXT, "pattern": pattern, "maxLength": longest})
        assert bool(problems(schema)) is refused
    assert "set maxLength to at most" in problems(schema)[0].message


async def test_the_number_of_columns_is_limited(server: InProcessServer) -> None:
    column = {"name": "c", "type": "string", "jsonPath": ".spec"}
    schema = objects(spec=TEXT)
    for count, refused in ((COLUMNS_MAX, False), (COLUMNS_MAX + 1, True)):
        body = with_schema(schema, additionalPrinterColumns=[column] * count)
        response = await server.ask("POST", DEFINITIONS, body, dryRun="All")
        assert (response.status == 422) is refused


async def test_paths_of_a_definition_have_a_limited_number_of_steps(
    server: InProcessServer,
) -> None:
    long = ".spec" + ".a" * STEPS_MAX
    scale = {"specReplicasPath": long, "statusReplicasPath": ".status.replicas"}
    body = with_schema(
        objects(spec=TEXT, status=TEXT),
        additionalPrinterColumns=[{"name": "c", "type": "string", "jsonPath": long}],
        selectableFields=[{"jsonPath": long}, {"jsonPath": ".a" * 100_000}],
        subresources={"scale": scale},
    )
    status = await server.status("POST", DEFINITIONS, body)
    found = {cause["field"]: cause["message"] for cause in status["details"]["causes"]}
    path = "spec.versions[0]"
    assert "more than 32 steps" in found[f"{path}.additionalPrinterColumns[0].jsonPath"]
    for field in ("selectableFields[0].jsonPath", "selectableFields[1].jsonPath"):
        assert "at most 32 names and 1024 characters" in found[f"{path}.{field}"]
    assert "at most 32 names" in found[f"{path}.subresources.scale.specReplicasPath"]


async def test_names_of_a_definition_without_served_versions_stay_reserved(
    server: InProcessServer,
) -> None:
    names = {"plural": "widgets", "kind": "Widget", "shortNames": ["wi"]}
    await define(server, definition(version(served=False), names=names))
    other = {"plural": "others", "kind": "Other", "shortNames": ["wi"]}
    found = await define(server, definition(version(), names=other))
    assert found["status"]["conditions"][0]["reason"] == "ShortNamesConflict"


async def test_an_object_that_new_defaults_make_too_large_stays_readable(
    server: InProcessServer,
) -> None:
    open_items = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    await define(
        server, with_schema(objects(spec=objects(a={"type": "array", "items": open_items})))
    )
    spec = {"a": [{"old": 1} for _ in range(2000)]}
    await server.json("POST", WIDGETS, widget(spec=spec))
    item = objects(**{f"f{number}": {**TEXT, "default": "x" * 1000} for number in range(10)})
    schema = objects(spec=objects(a={"type": "array", "items": item}))
    await replace_definition(server, with_schema(schema))
    found = await server.json("GET", f"{WIDGETS}/w")
    assert found["spec"] == {"a": [{} for _ in range(2000)]}  # pruned, and without defaults
    await server.json("DELETE", f"{WIDGETS}/w")


async def test_the_openapi_index_names_each_revision_of_a_definition(
    server: InProcessServer,
) -> None:
    path = "apis/example.com/v1"

    async def hash_and_etag() -> tuple[str, str]:
        index = await server.json("GET", "/openapi/v3")
        digest = index["paths"][path]["serverRelativeURL"].partition("hash=")[2]
        document = await server.ask("GET", f"/openapi/v3/{path}")
        return digest, document.headers["etag"].strip('"')

    await define(server, definition())
    first, etag = await hash_and_etag()
    assert first == etag
    await define(server, definition(kind="Gadget"))
    second, etag = await hash_and_etag()
    assert second == etag != first
    body = decode((await server.ask("GET", f"/openapi/v3/{path}")).body)
    assert {"com.example.v1.Widget", "com.example.v1.Gadget"} <= body["components"][
        "schemas"
    ].keys()
    assert (await hash_and_etag())[0] == second
