"""Definitions of custom kinds, and objects of them, that cost far more than they weigh."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from datum_compute.api.codec import JsonObject
from datum_compute.api.exchange import APPLY_PATCH, JSON_PATCH, MERGE_PATCH, Request
from tests.hostile.request import HostileRequest, project_request
from tests.server.definitions import DEFINITIONS, WIDGETS, objects, widget, with_schema

TEXT: JsonObject = {"type": "string"}


def _define(schema: JsonObject, **version: Any) -> Request:
    """A definition whose spec has this schema."""
    body = with_schema(objects(spec=schema), **version)
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


def _random_text(alphabet: str, length: int, seed: int = 1) -> str:
    random = Random(seed)
    return "".join(random.choice(alphabet) for _ in range(length))


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
    """An object that is small when it is stored, and a definition that gets its defaults later."""
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

# --- values that meet costly schemas

_VALUE_REQUESTS = (
    _object(
        "pattern of 800 states with 3,000 random characters",
        objects(a={**TEXT, "pattern": "[ab]*a[ab]{800}c$"}),
        {"a": _random_text("ab", 3000)},
        422,
        "should match",
    ),
    _object(
        "pattern of 2,300 states with 100,000 random characters",
        objects(a={**TEXT, "pattern": "[ab]*a[ab]{2300}c$"}),
        {"a": _random_text("ab", 100_000)},
        422,
        "simplify the schema",
    ),
    _object(
        "pattern in each of 3,000 items",
        _list_of({**TEXT, "pattern": "[ab]*a[ab]{200}c$"}),
        {"list": [_random_text("ab", 300, seed) for seed in range(3000)]},
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

REQUESTS = (*_DEFAULT_REQUESTS, *_VALUE_REQUESTS)
