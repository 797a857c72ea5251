"""Reads a Workload from a file: YAML or JSON, one document, strict.

Checked against the schema of the kind before anything is sent: unknown fields are errors with a
guess at what was meant. Fields that the server fills in (uid, resourceVersion, status, ...) are
dropped, so that what was read from the server can be given back.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from datum_compute.api.codec import JsonObject
from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.schema import structural_schema
from datum_compute.api.structural import Check, Report, compiled, whole_object
from datum_compute.cli.context import Surroundings
from datum_compute.cli.errors import UsageError

_WRITABLE_METADATA = ("name", "namespace", "labels", "annotations")


def read_manifest(path: str, surroundings: Surroundings) -> JsonObject:
    """The Workload in a file, or on stdin for ``-``."""
    shown = "stdin" if path == "-" else path
    try:
        text = surroundings.stdin.read() if path == "-" else Path(path).read_text("utf-8")
    except OSError as error:
        raise UsageError(f"{shown} cannot be read: {error.strerror}.") from error
    except UnicodeDecodeError:
        raise UsageError(f"{shown} is not text in UTF-8.") from None
    return parse_manifest(text, shown)


def parse_manifest(text: str, shown: str) -> JsonObject:
    """Metadata and spec of the one Workload in the text, with defaults filled in."""
    document = _only_document(text, shown)
    for key, expected in (("apiVersion", WORKLOAD.api_version), ("kind", WORKLOAD.kind)):
        if document.get(key) != expected:
            raise UsageError(
                f"{shown}: {key} is {document.get(key)!r}.", f"It must be {expected!r}."
            )
    metadata = _metadata(document.get("metadata"), shown)
    return {"metadata": metadata, "spec": _checked_spec(document, shown)}


def with_defaults(spec: JsonObject) -> JsonObject:
    """A spec from the server with the defaults that a file gets too, for comparing the two."""
    checked: JsonObject = _workload_check()({"spec": spec}, "", Report())
    defaulted: JsonObject = checked["spec"]
    return defaulted


def _checked_spec(document: JsonObject, shown: str) -> JsonObject:
    """The spec with defaults filled in; every problem the schema knows, at once."""
    report = Report()
    without_status = {k: v for k, v in document.items() if k != "status"}
    checked: JsonObject = _workload_check()(without_status, "", report)
    problems = [f"  {cause.field}: {cause.message}" for cause in report.errors]
    problems += [f"  {path}: unknown field{_guess(path)}" for path in report.unknown]
    if problems:
        raise UsageError("\n".join((f"{shown} is not a valid Workload:", *problems)))
    spec: JsonObject = checked["spec"]
    return spec


@cache
def _workload_check() -> Check:
    return compiled(whole_object(structural_schema(WORKLOAD)))


def _only_document(text: str, shown: str) -> JsonObject:
    try:
        documents = [d for d in yaml.safe_load_all(text) if d is not None]
    except yaml.YAMLError as error:
        raise UsageError(f"{shown} is neither YAML nor JSON: {error}") from error
    if len(documents) != 1:
        raise UsageError(f"{shown} holds {len(documents)} documents; give one Workload at a time.")
    (document,) = documents
    if not isinstance(document, dict):
        raise UsageError(f"{shown} does not hold an object.")
    return document


def _metadata(metadata: Any, shown: str) -> JsonObject:
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise UsageError(f"{shown}: metadata.name is missing.")
    for key in ("labels", "annotations"):
        entries = metadata.get(key) or {}
        if not isinstance(entries, dict) or not all(isinstance(v, str) for v in entries.values()):
            raise UsageError(f"{shown}: metadata.{key} must map names to text (quote numbers).")
    return {key: metadata[key] for key in _WRITABLE_METADATA if metadata.get(key)}


def _guess(path: str) -> str:
    """The known field of the whole schema that looks most like the unknown one."""
    known: set[str] = set()
    _collect_fields(structural_schema(WORKLOAD), known)
    close = get_close_matches(path.rpartition(".")[2], known, n=1)
    return f", did you mean {close[0]}?" if close else ""


def _collect_fields(schema: JsonObject, known: set[str]) -> None:
    for name, inner in schema.get("properties", {}).items():
        known.add(name)
        _collect_fields(inner, known)
    if isinstance(schema.get("items"), dict):
        _collect_fields(schema["items"], known)
