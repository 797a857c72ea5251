"""Generated definitions are rejected or served, and never cause a 5xx response."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from datum_compute.api.meta.codec import JsonObject
from testkit.api_server.definitions import DEFINITIONS, WIDGETS, definition, version, widget
from testkit.api_server.running_server import running_server

KEYWORDS = (
    *("type", "properties", "items", "required", "additionalProperties", "default", "enum", "not"),
    *("pattern", "format", "minimum", "maximum", "minLength", "maxItems", "multipleOf", "nullable"),
    *("allOf", "anyOf", "oneOf", "exclusiveMinimum", "maxProperties", "uniqueItems", "$ref"),
    *("x-kubernetes-preserve-unknown-fields", "x-kubernetes-int-or-string"),
    *("x-kubernetes-embedded-resource", "x-kubernetes-list-type", "x-kubernetes-list-map-keys"),
)
WORDS = st.sampled_from(
    ["object", "array", "string", "integer", "number", "a", "b", "map", "set", "byte", "(a+)+$", ""]
)
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | WORDS
NAMES = st.sampled_from(["a", "b", "metadata", "spec", "status", "kind"])
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3)
)


def _bigger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    schemas = st.dictionaries(st.sampled_from(KEYWORDS), inner, max_size=4)
    typed = st.fixed_dictionaries(
        {"type": WORDS},
        optional={
            "properties": st.dictionaries(NAMES, inner, max_size=3),
            "items": inner,
            "anyOf": st.lists(inner, max_size=2),
            "default": VALUES,
        },
    )
    return schemas | typed | st.lists(inner, max_size=2)


SCHEMAS = st.recursive(SCALARS, _bigger, max_leaves=12)


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(schema=SCHEMAS, more=st.dictionaries(NAMES, SCHEMAS, max_size=2), obj=VALUES)
def test_no_schema_makes_the_server_fail(schema: Any, more: JsonObject, obj: Any) -> None:
    properties = {"spec": schema, **more}
    root = {"type": "object", "properties": properties}

    async def story() -> None:
        async with running_server() as server:
            posted = await server.ask("POST", DEFINITIONS, definition(version(schema=root)))
            assert posted.status < 500, posted.body
            for sent in (widget(spec=obj), widget("x", status=obj)):
                made = await server.ask("POST", WIDGETS, sent)
                assert made.status < 500, made.body
            for path in (WIDGETS, "/openapi/v3/apis/example.com/v1"):
                read = await server.ask("GET", path)
                assert read.status < 500, read.body

    asyncio.run(story())
