"""Small definitions and objects of custom kinds that are expensive to process."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from datum_compute.api.http import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Request
from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.definitions import (
    DEFINITIONS,
    WIDGETS,
    definition,
    objects,
    version,
    widget,
    with_schema,
)
from testkit.hostile.request import HostileRequest, project_request

TEXT: JsonObject = {"type": "string"}


def _define(schema: JsonObject, **more: Any) -> Request:
    """A definition whose spec has this schema."""
    body = with_schema(objects(spec=schema), **more)
    return project_request("POST", DEFINITIONS, body)


def _object(name: str, schema: JsonObject, spec: Any, status: int, mentions: str) -> HostileRequest:
    """An object of a kind that the same user has defined."""
    return HostileRequest(
        name,
        setup=lambda: [_define(schema)],
        requests=lambda: [project_request("POST", WIDGETS, widget(spec=spec))],
        status=status,
        mentions=mentions,
    )


def _list_of(items: JsonObject, **more: Any) -> JsonObject:
    return objects(list={"type": "array", "items": items, **more})


def _random_text(alphabet: str, length: int) -> str:
    return "".join(Random(1).choices(alphabet, k=length))


# --- defaults

_ITEM = objects(**{f"f{number}": {**TEXT, "default": "x" * 100} for number in range(300)})
_DEFAULTS = _list_of(_ITEM)
_EMPTY_ITEMS: JsonObject = {"list": [{} for _ in range(4000)]}


def _existing_object() -> Sequence[Request]:
    return [_define(_DEFAULTS), project_request("POST", WIDGETS, widget())]


def _change(name: str, method: str, body: Any, content_type: str, **query: str) -> HostileRequest:
    return HostileRequest(
        name,
        setup=_existing_object,
        requests=lambda: [
            project_request(method, f"{WIDGETS}/w", body, content_type=content_type, **query)
        ],
        status=413,
        mentions="remove defaults from the custom resource definition",
    )


def _read_after_new_defaults() -> Sequence[Request]:
    """Store a small object, then add defaults to its definition."""
    plain = _list_of({"type": "object", "x-kubernetes-preserve-unknown-fields": True})
    schema = with_schema(objects(spec=_DEFAULTS))["spec"]["versions"][0]["schema"]
    patch = [{"op": "replace", "path": "/spec/versions/0/schema", "value": schema}]
    path = f"{DEFINITIONS}/widgets.example.com"
    return [
        _define(plain),
        project_request("POST", WIDGETS, widget(spec=_EMPTY_ITEMS)),
        project_request("PATCH", path, patch, content_type=JSON_PATCH),
    ]


_DEFAULT_REQUESTS = (
    _object(
        "defaults multiply in the items of a list",
        _DEFAULTS,
        _EMPTY_ITEMS,
        413,
        "remove defaults from the custom resource definition",
    ),
    HostileRequest(
        "defaults multiply in a dry run",
        setup=lambda: [_define(_DEFAULTS)],
        requests=lambda: [
            project_request("POST", WIDGETS, widget(spec=_EMPTY_ITEMS), dryRun="All")
        ],
        status=413,
    ),
    _object(
        "defaults multiply in 200,000 items",
        _DEFAULTS,
        {"list": [{} for _ in range(200_000)]},
        413,
        "",
    ),
    _object(
        "defaults multiply in the entries of a map",
        objects(map={"type": "object", "additionalProperties": _ITEM}),
        {"map": {f"k{number}": {} for number in range(4000)}},
        413,
        "remove defaults from the custom resource definition",
    ),
    _change("defaults multiply in a merge patch", "PATCH", {"spec": _EMPTY_ITEMS}, MERGE_PATCH),
    _change(
        "defaults multiply in a JSON patch",
        "PATCH",
        [{"op": "replace", "path": "/spec", "value": _EMPTY_ITEMS}],
        JSON_PATCH,
    ),
    _change(
        "defaults multiply in server-side apply",
        "PATCH",
        widget(spec=_EMPTY_ITEMS),
        APPLY_PATCH,
        fieldManager="me",
    ),
    HostileRequest(
        "defaults multiply when an old object is read",
        setup=_read_after_new_defaults,
        requests=lambda: [
            project_request("GET", f"{WIDGETS}/w"),
            project_request("GET", WIDGETS),
        ],
        status=200,
    ),
)

# --- values that are expensive to check

_RANDOM = _random_text("ab", 100_000)

_VALUE_REQUESTS = (
    _object(
        "pattern of 800 states with 3,000 random characters",
        objects(a={**TEXT, "pattern": "[ab]*a[ab]{800}c$"}),
        {"a": _RANDOM[:3000]},
        422,
        "should match",
    ),
    _object(
        "pattern of 2,300 states with 100,000 random characters",
        objects(a={**TEXT, "pattern": "[ab]*a[ab]{2300}c$"}),
        {"a": _RANDOM},
        422,
        "simplify the schema",
    ),
    _object(
        "pattern in each of 3,000 items",
        _list_of({**TEXT, "pattern": "[ab]*a[ab]{200}c$"}),
        {"list": [_RANDOM[start : start + 300] for start in range(3000)]},
        422,
        "simplify the schema",
    ),
    _object(
        "pattern of branches that Python tries one by one",
        objects(a={**TEXT, "pattern": "^" + "(a|aa)" * 40 + "c$"}),
        {"a": "a" * 70},
        422,
        "should match",
    ),
    _object(
        "pattern with a class for each of many characters",
        objects(
            a={
                **TEXT,
                "pattern": "(?i)" + "".join(f"[{chr(n)}-{chr(n + 1)}]" for n in range(5000, 5800)),
            }
        ),
        {"a": "".join(map(chr, range(6000, 9000)))},
        422,
        "",
    ),
    _object(
        "100 branches of anyOf for each of 10,000 items",
        _list_of({**TEXT, "anyOf": [{"maxLength": 0}] * 100}),
        {"list": ["x"] * 10_000},
        422,
        "simplify the schema",
    ),
    _object(
        "10,000 supported values and 10,000 items",
        _list_of({**TEXT, "enum": [str(number) for number in range(10_000)]}),
        {"list": ["9999"] * 9_999 + ["no"]},
        422,
        "supported values",
    ),
    _object(
        "30,000 invalid items",
        _list_of({"type": "integer"}),
        {"list": ["x"] * 30_000},
        422,
        "fix these first",
    ),
    _object(
        "59,000 integers in a set",
        _list_of({"type": "integer"}, **{"x-kubernetes-list-type": "set"}),
        {"list": list(range(59_000))},
        201,
        "",
    ),
)

# --- definitions

_HEAVY: JsonObject = {**TEXT, "pattern": "^a+$", "enum": ["a"], "maxLength": 5}


def _fields(count: int, schema: JsonObject) -> JsonObject:
    return objects(**{f"p{number}": schema for number in range(count)})


def _definition(
    name: str, schema: JsonObject, status: int, mentions: str = "", **more: Any
) -> HostileRequest:
    """A request that creates a definition."""
    return HostileRequest(
        name, requests=lambda: [_define(schema, **more)], status=status, mentions=mentions
    )


def _nested(depth: int) -> JsonObject:
    branch: JsonObject = {"required": ["a"]}
    for _ in range(depth):
        branch = {"anyOf": [branch, branch]}
    return {"type": "object", **branch}


def _chain(depth: int) -> JsonObject:
    schema: JsonObject = {**TEXT, "default": "x"}
    for _ in range(depth):
        fields = {f"b{number}": {**TEXT, "default": "y"} for number in range(150)}
        schema = {**objects(a=schema, **fields), "default": {}}
    return schema


def _many_versions(count: int, kind: str = "Widget", group: str = "example.com") -> Request:
    versions = [version(f"v{number}", storage=number == 1) for number in range(1, count + 1)]
    body = definition(*versions, kind=kind, group=group)
    return project_request("POST", DEFINITIONS, body)


def _versions_with_columns(versions: int, path: str) -> Request:
    """A definition whose versions have 100 columns each, with different paths."""
    body = definition(
        *(
            version(
                f"v{number}",
                storage=number == 1,
                additionalPrinterColumns=[
                    {"name": f"c{n}", "type": "string", "jsonPath": f".v{number}c{n}{path}"}
                    for n in range(100)
                ],
            )
            for number in range(1, versions + 1)
        )
    )
    return project_request("POST", DEFINITIONS, body)


_PATTERNS = {
    f"p{number}": {**TEXT, "pattern": "(a|b){1200}c" + str(number)} for number in range(1000)
}

_DEFINITION_REQUESTS = (
    HostileRequest(
        "definition of 9,900 plain fields",
        requests=lambda: [_define(_fields(9900, TEXT))],
        status=201,
    ),
    HostileRequest(
        "definition of 5,000 fields with rules",
        requests=lambda: [_define(_fields(5000, _HEAVY))],
        status=201,
    ),
    _object("first object of a kind with 5,000 fields", _fields(5000, _HEAVY), {}, 201, ""),
    _definition("definition of 30,000 fields", _fields(29_000, TEXT), 422, "more than 10000 nodes"),
    _definition("definition of nested anyOf", _nested(13), 422, "more than 10000 nodes"),
    HostileRequest(
        "definition of 4,900 branches",
        requests=lambda: [
            _define({"type": "object", "anyOf": [{"required": ["a"]} for _ in range(4900)]})
        ],
        status=201,
    ),
    _definition(
        "definition of 1,000 patterns",
        objects(**_PATTERNS),
        422,
        "states and characters together",
    ),
    _definition(
        "definition of a pattern of a million characters",
        {**TEXT, "pattern": "^" + "a" * 1_000_000},
        422,
        "it may have 4096",
    ),
    _definition(
        "definition of a default with 20,000 items",
        {"type": "array", "items": _fields(20, {**TEXT, "default": "x"}), "default": [{}] * 20_000},
        422,
        "use smaller ones",
    ),
    HostileRequest(
        "definition of defaults inside of defaults",
        requests=lambda: [_define(_chain(20))],
        status=422,
        mentions="use smaller ones",
    ),
    _definition(
        "definition of 10,000 columns",
        TEXT,
        422,
        "at most 100 items",
        additionalPrinterColumns=[
            {"name": f"c{number}", "type": "string", "jsonPath": ".spec"} for number in range(9000)
        ],
    ),
    _definition(
        "definition of a column with a long path",
        TEXT,
        422,
        "1024 characters",
        additionalPrinterColumns=[{"name": "c", "type": "string", "jsonPath": ".a" * 400_000}],
    ),
    HostileRequest(
        "definition of 1,300 columns with 500 steps each",
        requests=lambda: [_versions_with_columns(13, ".a" * 499)],
        status=422,
        mentions="may not have more than 32 steps",
    ),
    HostileRequest(
        "definition of 2,000 columns with 32 steps each",
        requests=lambda: [_versions_with_columns(20, ".a" * 31)],
        status=201,
    ),
    _definition(
        "definition of a selectable field with a million names",
        TEXT,
        422,
        "at most 32 names",
        selectableFields=[{"jsonPath": ".aa" * 900_000}],
    ),
    HostileRequest(
        "definition of 2,000 versions",
        requests=lambda: [_many_versions(2000)],
        status=422,
        mentions="must have at most 20 items",
    ),
    HostileRequest(
        "definition next to 15 others with 20 versions",
        setup=lambda: [
            _many_versions(20, f"Kind{number}", f"g{number}.example.com") for number in range(15)
        ],
        requests=lambda: [_define(TEXT)],
        status=201,
    ),
    HostileRequest(
        "discovery of 15 definitions with 20 versions",
        setup=lambda: [
            _many_versions(20, f"Kind{number}", f"g{number}.example.com") for number in range(15)
        ],
        requests=lambda: [
            project_request("GET", "/apis"),
            project_request("GET", "/openapi/v3"),
            project_request("GET", "/apis/g1.example.com"),
        ],
        status=200,
    ),
    HostileRequest(
        "OpenAPI index of 4 large definitions",
        setup=lambda: [
            project_request(
                "POST",
                DEFINITIONS,
                definition(version(schema=objects(spec=_fields(9000, TEXT))), kind=f"Kind{number}"),
            )
            for number in range(4)
        ],
        requests=lambda: [project_request("GET", "/openapi/v3")],
        status=200,
    ),
)

# --- large objects

_KEYED = _list_of(
    {**objects(k=TEXT, v=TEXT), "required": ["k"]},
    **{"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]},
)
_INTEGERS = _list_of({"type": "integer"})


def _keyed_items(count: int, **more: str) -> JsonObject:
    return {"list": [{"k": str(number), **more} for number in range(count)]}


_LARGE_REQUESTS = (
    _object("20,000 items with keys", _KEYED, _keyed_items(20_000), 422, "send fewer items"),
    HostileRequest(
        "server-side apply of 4,500 items that others own",
        setup=lambda: [
            _define(_KEYED),
            project_request("POST", WIDGETS, widget(spec=_keyed_items(4_500))),
        ],
        requests=lambda: [
            project_request(
                "PATCH",
                f"{WIDGETS}/w",
                widget(spec=_keyed_items(4_500, v="1")),
                content_type=APPLY_PATCH,
                fieldManager="other",
                force="true",
            )
        ],
        status=200,
    ),
    HostileRequest(
        "10,000 insertions at the start of a list",
        setup=lambda: [
            _define(_INTEGERS),
            project_request("POST", WIDGETS, widget(spec={"list": [1] * 55_000})),
        ],
        requests=lambda: [
            project_request(
                "PATCH",
                f"{WIDGETS}/w",
                [{"op": "add", "path": "/spec/list/0", "value": 1}] * 10_000,
                content_type=JSON_PATCH,
            )
        ],
        status=400,
        mentions="replace the list",
    ),
    HostileRequest(
        "strict validation of 50,000 integers",
        setup=lambda: [_define(_INTEGERS)],
        requests=lambda: [
            project_request(
                "POST", WIDGETS, widget(spec={"list": [1] * 50_000}), fieldValidation="Strict"
            )
        ],
        status=201,
    ),
    HostileRequest(
        "strict validation of 25,000 unknown fields",
        setup=lambda: [_define(_INTEGERS)],
        requests=lambda: [
            project_request(
                "POST",
                WIDGETS,
                widget(spec={f"k{number}": 1 for number in range(25_000)}),
                fieldValidation="Strict",
            )
        ],
        status=400,
        mentions="24900 more unknown fields",
    ),
    _object(
        "20,000 addresses",
        _list_of({**TEXT, "format": "ipv6"}),
        {"list": [f"::{number % 9999}" for number in range(20_000)]},
        422,
        "send fewer items",
    ),
    _object(
        "duration of 200,000 characters",
        objects(a={**TEXT, "format": "duration"}),
        {"a": "1m" * 100_000 + "x"},
        422,
        "must be valid duration",
    ),
    HostileRequest(
        "100 columns that search a long list",
        setup=lambda: [
            _define(
                {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                additionalPrinterColumns=[
                    {"name": f"c{n}", "type": "string", "jsonPath": '.spec.a[?(@.b=="x")].c'}
                    for n in range(100)
                ],
            ),
            project_request("POST", WIDGETS, widget(spec={"a": [{"b": "y"}] * 25_000})),
        ],
        requests=lambda: [project_request("GET", WIDGETS, accept=_TABLE)],
        status=200,
    ),
)

# --- tables of large objects

_TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"


def _table(name: str, column_type: str, spec: Any) -> HostileRequest:
    """An object and a list as a table with 100 columns, each of the whole value."""
    columns = [
        {"name": f"c{n}", "type": column_type, "jsonPath": ".spec.value"} for n in range(100)
    ]
    schema = objects(value={"x-kubernetes-preserve-unknown-fields": True})
    return HostileRequest(
        name,
        setup=lambda: [
            _define(schema, additionalPrinterColumns=columns),
            project_request("POST", WIDGETS, widget(spec={"value": spec})),
        ],
        requests=lambda: [
            project_request("GET", f"{WIDGETS}/w", accept=_TABLE, includeObject="None"),
            project_request("GET", WIDGETS, accept=_TABLE, includeObject="None"),
        ],
        status=200,
    )


_TABLE_REQUESTS = (
    _table(
        "100 columns of an object of 1 MB", "string", {f"k{n}": "x" * 1000 for n in range(1000)}
    ),
    _table("100 columns of a list of 50,000 integers", "string", [1] * 50_000),
    _table("100 columns of a text of 1 MB", "string", "x" * 1_000_000),
    _table("100 columns of a date of 1 MB", "date", "2" * 1_000_000),
)

REQUESTS = (
    *_DEFAULT_REQUESTS,
    *_VALUE_REQUESTS,
    *_DEFINITION_REQUESTS,
    *_LARGE_REQUESTS,
    *_TABLE_REQUESTS,
)
