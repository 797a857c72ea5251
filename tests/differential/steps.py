"""A step is one request of a sequence.

A step can refer to earlier responses: ``${name.metadata.uid}`` in its path, query or body is
replaced by that field of the response to the step ``name``. A step with ``until`` is repeated until
the response has that code, for example until the garbage collector has deleted an object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MERGE = "application/merge-patch+json"
JSON_PATCH = "application/json-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
APPLY = "application/apply-patch+yaml"
YAML = "application/yaml"
TABLE = "application/json;as=Table;g=meta.k8s.io;v=v1"
PARTIAL = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
PARTIALS = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"

_REFERENCE = re.compile(r"\$\{([a-z0-9-]+)\.([^}]+)\}")


@dataclass(frozen=True, slots=True)
class Step:
    name: str
    method: str
    path: str
    body: Any = None
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    watch: bool = False
    until: int = 0
    token: bool = True


@dataclass(frozen=True, slots=True)
class Response:
    code: int
    headers: Mapping[str, str]
    body: Any  # parsed JSON, the events of a watch, or text


def get(name: str, path: str, query: str = "", *, accept: str = "", until: int = 0) -> Step:
    headers = {"accept": accept} if accept else {}
    return Step(name, "GET", path, query=query, headers=headers, until=until)


def post(name: str, path: str, body: Any, query: str = "", *, content: str = "") -> Step:
    return Step(name, "POST", path, body, query, _content_type(content))


def put(name: str, path: str, body: Any, query: str = "") -> Step:
    return Step(name, "PUT", path, body, query, _content_type(""))


def patch(name: str, path: str, body: Any, query: str = "", *, kind: str = MERGE) -> Step:
    return Step(name, "PATCH", path, body, query, _content_type(kind))


def delete(name: str, path: str, body: Any = None, query: str = "") -> Step:
    return Step(name, "DELETE", path, body, query, _content_type(""))


def watch(name: str, path: str, query: str, *, accept: str = "") -> Step:
    """Watch for one second."""
    headers = {"accept": accept} if accept else {}
    return Step(name, "GET", path, None, f"watch=1&timeoutSeconds=1&{query}", headers, watch=True)


def fill_references(value: Any, responses: Mapping[str, Response]) -> Any:
    """Return the value with references replaced by fields of earlier responses."""
    if isinstance(value, dict):
        return {key: fill_references(inner, responses) for key, inner in value.items()}
    if isinstance(value, list):
        return [fill_references(inner, responses) for inner in value]
    if not isinstance(value, str):
        return value
    return _REFERENCE.sub(lambda found: _read_field(responses[found[1]].body, found[2]), value)


def _read_field(body: Any, path: str) -> str:
    for part in path.split("."):
        body = body[int(part)] if isinstance(body, list) else body[part]
    return str(body)


def _content_type(kind: str) -> dict[str, str]:
    return {"content-type": kind or "application/json"}
