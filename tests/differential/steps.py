"""Requests as values: a sequence is sent to two servers, step by step, and the answers compared.

A step may take over what an earlier one was answered: ``${name.metadata.uid}`` in its path, query
or body stands for that part of the answer to the step ``name``. A step with ``until`` is repeated
until it is answered so: some things take their time (garbage, namespaces).
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

_TAKEN = re.compile(r"\$\{([a-z0-9-]+)\.([^}]+)\}")


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
class Answer:
    code: int
    headers: Mapping[str, str]
    body: Any  # JSON where it is, the objects of a watch, else the text


def get(name: str, path: str, query: str = "", *, accept: str = "", until: int = 0) -> Step:
    headers = {"accept": accept} if accept else {}
    return Step(name, "GET", path, query=query, headers=headers, until=until)


def post(name: str, path: str, body: Any, query: str = "", *, content: str = "") -> Step:
    return Step(name, "POST", path, body, query, _content(content))


def put(name: str, path: str, body: Any, query: str = "") -> Step:
    return Step(name, "PUT", path, body, query, _content(""))


def patch(name: str, path: str, body: Any, query: str = "", *, kind: str = MERGE) -> Step:
    return Step(name, "PATCH", path, body, query, _content(kind))


def delete(name: str, path: str, body: Any = None, query: str = "") -> Step:
    return Step(name, "DELETE", path, body, query, _content(""))


def watch(name: str, path: str, query: str, *, accept: str = "") -> Step:
    """For a second: what has happened by then is in it."""
    headers = {"accept": accept} if accept else {}
    return Step(name, "GET", path, None, f"watch=1&timeoutSeconds=1&{query}", headers, watch=True)


def filled(value: Any, answers: Mapping[str, Answer]) -> Any:
    """The value with what it takes over from earlier answers."""
    if isinstance(value, dict):
        return {key: filled(inner, answers) for key, inner in value.items()}
    if isinstance(value, list):
        return [filled(inner, answers) for inner in value]
    if not isinstance(value, str):
        return value
    return _TAKEN.sub(lambda found: _taken(answers[found[1]].body, found[2]), value)


def _taken(body: Any, path: str) -> str:
    for part in path.split("."):
        body = body[int(part)] if isinstance(body, list) else body[part]
    return str(body)


def _content(kind: str) -> dict[str, str]:
    return {"content-type": kind or "application/json"}
