"""Reads Workloads from files: YAML or JSON, several documents, a directory, or stdin. Strict.

Checked against the schema of the kind before anything is sent: unknown fields are errors with the
line and column and a guess at what was meant. Fields that the server fills in (uid,
resourceVersion, status, ...) are dropped, so that what was read from the server can be given back.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any

from datum_compute.api.kinds import WORKLOAD
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.yaml import Mark, YamlError, YamlLimits, YamlSyntaxError, parse_yaml
from datum_compute.api.schema.derive import structural_schema
from datum_compute.api.schema.validate import Check, ValidationReport, compile_check, object_schema
from datum_compute.cli.arguments import NAME_RULE, is_workload_name
from datum_compute.cli.environment import FILE_BYTES_MAX, CliEnvironment, read_stdin, read_text_file
from datum_compute.cli.errors import UsageError

# --- The documents of a YAML or JSON text, each with the line and column of every field
# The limits reject a file that the server would not accept before it costs minutes and gigabytes.
# Unlike request bodies, files may use anchors, aliases and merge keys. Each alias counts as much as
# the value it repeats.


Place = tuple[int, int]

_LIMITS = YamlLimits(
    chars_max=FILE_BYTES_MAX, values_max=100_000, documents_max=1000, allow_aliases=True
)


@dataclass(frozen=True, slots=True)
class Document:
    value: JsonObject
    shown: str
    mark: Mark

    def place(self, path: str) -> Place:
        """Return where a field is, such as ``spec.placements[0].name``, or its nearest parent."""
        mark, rest = self.mark, path
        while rest:
            inside, rest = _step(mark, rest)
            if inside is None:
                break
            mark = inside
        return mark.line, mark.column

    def at(self, path: str) -> str:
        line, column = self.place(path)
        return f"{self.shown}:{line}:{column}"


def read_documents(text: str, shown: str) -> list[Document]:
    try:
        documents = parse_yaml(text, _LIMITS)
    except YamlError as error:
        where = f"{shown}:{error.line}:{error.column}" if error.line else shown
        is_syntax = isinstance(error, YamlSyntaxError)
        why = " is neither YAML nor JSON: " if is_syntax else ": "
        raise UsageError(f"{where}{why}{error.message}.") from error
    found = []
    for document in documents:
        if document.value is None:
            continue
        if not isinstance(document.value, dict):
            mark = document.mark
            raise UsageError(f"{shown}:{mark.line}:{mark.column} is not an object.")
        found.append(Document(document.value, shown, document.mark))
    return found


def _step(mark: Mark, path: str) -> tuple[Mark | None, str]:
    """Return the mark of the first field of the path, and the rest of the path.

    Keys may contain dots, as label keys do, so the longest existing key is used.
    """
    match mark.inside:
        case list() if path.startswith("["):
            index, _, rest = path[1:].partition("]")
            if index.isdecimal() and int(index) < len(mark.inside):
                return mark.inside[int(index)], rest.removeprefix(".")
        case dict():
            end = len(path)
            while end > 0:
                if found := mark.inside.get(path[:end]):
                    return found, path[end:].removeprefix(".")
                end = max(path.rfind(".", 0, end), path.rfind("[", 0, end))
    return None, ""


# --- manifest


_WRITABLE_METADATA = ("name", "namespace", "labels", "annotations")
_SERVER_METADATA = (
    *("creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "finalizers"),
    *("generation", "managedFields", "ownerReferences", "resourceVersion", "selfLink", "uid"),
)
_SUFFIXES = (".yaml", ".yml", ".json")


def read_manifests(path: str, environment: CliEnvironment) -> list[JsonObject]:
    """Read every Workload of a file, of the files of a directory, or of stdin for ``-``."""
    if path == "-":
        return parse_manifests(read_stdin(environment.stdin), "stdin")
    asked = environment.cwd / path
    if not asked.is_dir():
        return parse_manifests(read_text_file(asked, path), path)
    files = sorted(f for f in asked.iterdir() if f.suffix in _SUFFIXES and f.is_file())
    if not files:
        raise UsageError(f"{path} contains no file that ends in {', '.join(_SUFFIXES)}.")
    shown = {file: f"{path.rstrip('/')}/{file.name}" for file in files}
    found = [m for f in files for m in parse_manifests(read_text_file(f, shown[f]), shown[f])]
    return _without_twins(found, path)


def parse_manifests(text: str, shown: str) -> list[JsonObject]:
    """Return metadata and spec of every Workload in the text, with defaults filled in."""
    documents = read_documents(text, shown)
    if not documents:
        raise UsageError(f"{shown} contains no document.", "Add at least one Workload.")
    return _without_twins([_manifest(document) for document in documents], shown)


def _without_twins(manifests: list[JsonObject], shown: str) -> list[JsonObject]:
    seen: set[str] = set()
    for manifest in manifests:
        name = manifest["metadata"]["name"]
        if name in seen:
            raise UsageError(f"{shown} contains workload {name!r} twice.")
        seen.add(name)
    return manifests


def _manifest(document: Document) -> JsonObject:
    value = document.value
    for key, expected in (("apiVersion", WORKLOAD.api_version), ("kind", WORKLOAD.kind)):
        if value.get(key) != expected:
            found = f"is {value[key]!r}" if value.get(key) else "is missing"
            raise UsageError(
                f"{document.at(key)}: {key} {found}.", f"It must be {expected!r}.", field=key
            )
    return {"metadata": _metadata(document), "spec": _validate_spec(document)}


def with_defaults(spec: JsonObject) -> JsonObject:
    """Return a spec from the server with the defaults of a file, to compare the two."""
    checked: JsonObject = _workload_check()({"spec": spec}, "", ValidationReport())
    defaulted: JsonObject = checked["spec"]
    return defaulted


def _validate_spec(document: Document) -> JsonObject:
    """Return the spec with defaults filled in. Raise UsageError with all problems of the schema."""
    report = ValidationReport()
    without_status = {k: v for k, v in document.value.items() if k != "status"}
    checked: JsonObject = _workload_check()(without_status, "", report)
    problems = [(cause.field, cause.message) for cause in report.errors]
    problems += [(path, f"unknown field{_guess(path)}") for path in report.unknown]
    if problems:
        problems.sort(key=lambda problem: document.place(problem[0]))
        lines = (f"  {document.at(path)}: {path}: {text}" for path, text in problems)
        raise UsageError(
            "\n".join((f"{document.shown} is not a valid Workload:", *lines)),
            "Nothing was sent. Correct the file and run the command again.",
            field=problems[0][0],
        )
    spec: JsonObject = checked["spec"]
    return spec


@cache
def _workload_check() -> Check:
    return compile_check(object_schema(structural_schema(WORKLOAD)))


def _metadata(document: Document) -> JsonObject:
    metadata = document.value.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        where = document.at("metadata")
        raise UsageError(f"{where}: metadata.name is missing.", field="metadata.name")
    if not is_workload_name(metadata["name"]):
        where, name = document.at("metadata.name"), metadata["name"]
        raise UsageError(
            f"{where}: {name!r} is not a valid name of a workload.",
            NAME_RULE,
            field="metadata.name",
        )
    known = (*_WRITABLE_METADATA, *_SERVER_METADATA)
    for key in metadata:
        if key not in known:
            guess = _did_you_mean(str(key), _WRITABLE_METADATA)
            path = f"metadata.{key}"
            raise UsageError(f"{document.at(path)}: {path}: unknown field{guess}", field=path)
    for key in ("labels", "annotations"):
        entries = metadata.get(key) or {}
        if not isinstance(entries, dict) or not all(isinstance(v, str) for v in entries.values()):
            raise UsageError(
                f"{document.at(f'metadata.{key}')}: metadata.{key} must map names to text "
                "(quote numbers).",
                field=f"metadata.{key}",
            )
    return {key: metadata[key] for key in _WRITABLE_METADATA if metadata.get(key)}


def _guess(path: str) -> str:
    """Return the most similar known field, preferably with the same parent."""
    parent, _, name = path.rpartition(".")
    beside = list(_schema_at(parent).get("properties", {}))
    everywhere: set[str] = set()
    _collect_fields(structural_schema(WORKLOAD), everywhere)
    return _did_you_mean(name, beside) or _did_you_mean(name, sorted(everywhere))


def _did_you_mean(name: str, known: tuple[str, ...] | list[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f", did you mean {close[0]}?" if close else ""


def _schema_at(path: str) -> JsonObject:
    schema: Any = structural_schema(WORKLOAD)
    for step in path.split("."):
        name = step.partition("[")[0]
        schema = schema.get("properties", {}).get(name, {}) if name else schema
        if "[" in step:
            schema = schema.get("items", {})
    return schema if isinstance(schema, dict) else {}


def _collect_fields(schema: JsonObject, known: set[str]) -> None:
    for name, inner in schema.get("properties", {}).items():
        known.add(name)
        _collect_fields(inner, known)
    if isinstance(schema.get("items"), dict):
        _collect_fields(schema["items"], known)
