"""Rules for CustomResourceDefinitions: names, versions, columns, subresources, immutable fields.

``structural_schema.py`` checks the schema of each version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from datum_compute.admission.rules.structural_schema import SchemaBudget, schema_problems
from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject
from datum_compute.api.meta.json_path import PATH_LENGTH_MAX, STEPS_MAX, check_path, field_names
from datum_compute.api.meta.names import dns_subdomain_problem

_LABEL = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_COLUMN_TYPES = ("integer", "number", "string", "boolean", "date")
_SELECTABLE_TYPES = ("string", "integer", "boolean")
_SELECTABLE_MAX = 8
VERSIONS_MAX = 20
COLUMNS_MAX = 100
NAMES_MAX = 100  # of short names and of categories, each
_PROTECTED = (".k8s.io", ".kubernetes.io")
_APPROVAL = "api-approved.kubernetes.io"


def default_names(new: JsonObject, old: JsonObject | None) -> JsonObject:
    """Derive the singular name and the list kind from the kind. Set conversion strategy None."""
    spec = new["spec"]
    names, conversion = spec["names"], spec.get("conversion", {})
    kind = names["kind"]
    defaults = {"singular": kind.lower(), "listKind": f"{kind}List"}
    named = {**names, **{n: v for n, v in defaults.items() if not names.get(n)}}
    conversion = {**conversion, "strategy": conversion.get("strategy") or "None"}
    return {**new, "spec": {**spec, "names": named, "conversion": conversion}}


def check_definition_names(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    spec = new["spec"]
    group, names = spec["group"], spec["names"]
    expected = f"{names['plural']}.{group}"
    if new["metadata"].get("name") != expected:
        yield Cause.invalid("metadata.name", f'must be "{expected}"', new["metadata"].get("name"))
    if problem := dns_subdomain_problem(group):
        yield Cause.invalid("spec.group", problem, group)
    elif "." not in group:
        yield Cause.invalid("spec.group", "should be a domain with at least one dot", group)
    for field in ("plural", "singular", "kind", "listKind"):
        text = names[field]
        if not _LABEL.fullmatch(text.lower() if field in ("kind", "listKind") else text):
            yield Cause.invalid(f"spec.names.{field}", _LABEL_RULE, text)
    if names["kind"] == names["listKind"]:
        yield Cause.invalid("spec.names.listKind", "must differ from the kind", names["listKind"])
    for field in ("shortNames", "categories"):
        if len(names.get(field, ())) > NAMES_MAX:
            why = f"must have at most {NAMES_MAX} items"
            yield Cause.too_many(f"spec.names.{field}", why, len(names[field]))
            continue
        for index, text in enumerate(names.get(field, ())):
            if not _LABEL.fullmatch(text):
                yield Cause.invalid(f"spec.names.{field}[{index}]", _LABEL_RULE, text)


_LABEL_RULE = "must be letters, digits and inner dashes, beginning with a letter, at most 63"


def check_group_approved(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    group = new["spec"]["group"]
    approved = new["metadata"].get("annotations", {}).get(_APPROVAL)
    if group.endswith(_PROTECTED) and not approved:
        why = f"protected groups must have the annotation {_APPROVAL}; use a group of your own"
        yield Cause.required("metadata.annotations", why)


def check_supported_features(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    spec = new["spec"]
    strategy = spec["conversion"]["strategy"]
    if strategy != "None":
        why = "conversion by webhook is not supported; keep the versions compatible and use None"
        yield Cause.unsupported("spec.conversion.strategy", strategy, ("None",), why)
    if spec["conversion"].get("webhook") is not None and strategy == "None":
        yield Cause.forbidden(
            "spec.conversion.webhook", "must not be set when the strategy is None"
        )
    if spec.get("preserveUnknownFields"):
        why = "must be false; set x-kubernetes-preserve-unknown-fields: true in the schema instead"
        yield Cause.invalid("spec.preserveUnknownFields", why, True)


def check_versions(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    versions = new["spec"]["versions"]
    if len(versions) > VERSIONS_MAX:
        why = f"must have at most {VERSIONS_MAX} items; remove versions that are no longer served"
        yield Cause.too_many("spec.versions", why, len(versions))
        return
    seen: set[str] = set()
    budget = SchemaBudget()
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version["name"]
        if not _LABEL.fullmatch(name):
            yield Cause.invalid(f"{path}.name", _LABEL_RULE, name)
        if name in seen:
            yield Cause.duplicate(f"{path}.name", name)
        seen.add(name)
        yield from _version_problems(version, path, budget)
    if sum(1 for version in versions if version["storage"]) != 1:
        yield Cause.invalid("spec.versions", "must have exactly one storage version", len(versions))


def check_stored_versions_kept(new: JsonObject, old: JsonObject | None) -> Iterable[Cause]:
    """Scope, group and stored versions cannot change: existing objects would be lost."""
    if old is None:
        return
    before, now = old["spec"], new["spec"]
    for path, field in (("spec.scope", "scope"), ("spec.group", "group")):
        if before[field] != now[field]:
            yield Cause.invalid(path, f'field is immutable (it is "{before[field]}")', now[field])
    names = {version["name"] for version in now["versions"]}
    for index, stored in enumerate(old.get("status", {}).get("storedVersions", ())):
        if stored not in names:
            field = f"status.storedVersions[{index}]"
            why = "objects may be stored in this version; it must stay in spec.versions"
            yield Cause.invalid(field, why, stored)


def _version_problems(version: JsonObject, path: str, budget: SchemaBudget) -> Iterator[Cause]:
    schema = version.get("schema", {}).get("openAPIV3Schema")
    where = f"{path}.schema.openAPIV3Schema"
    if not schema:
        yield Cause.required(where, "schemas are required")
        return
    yield from schema_problems(schema, where, budget)
    yield from _column_problems(version.get("additionalPrinterColumns", ()), path)
    scale = (version.get("subresources") or {}).get("scale")
    if scale is not None:
        yield from _scale_problems(scale, f"{path}.subresources.scale")
    yield from _selectable_problems(version.get("selectableFields", []), schema, path)


def _column_problems(columns: Sequence[JsonObject], path: str) -> Iterator[Cause]:
    if len(columns) > COLUMNS_MAX:
        why = f"must have at most {COLUMNS_MAX} items"
        yield Cause.too_many(f"{path}.additionalPrinterColumns", why, len(columns))
        return
    for index, column in enumerate(columns):
        where = f"{path}.additionalPrinterColumns[{index}]"
        if not column["name"]:
            yield Cause.required(f"{where}.name")
        if column["type"] not in _COLUMN_TYPES:
            yield Cause.unsupported(f"{where}.type", column["type"], _COLUMN_TYPES)
        try:
            check_path(column["jsonPath"])
        except ValueError as error:
            yield Cause.invalid(f"{where}.jsonPath", str(error), column["jsonPath"])


def _scale_problems(scale: JsonObject, path: str) -> Iterator[Cause]:
    for field, roots in (
        ("specReplicasPath", ("spec",)),
        ("statusReplicasPath", ("status",)),
        ("labelSelectorPath", ("spec", "status")),
    ):
        value = scale.get(field, "")
        if not value and field == "labelSelectorPath":
            continue
        names = _parse_field_path(value)
        if names is None or len(names) < 2 or names[0] not in roots:
            under = " or ".join(f".{root}" for root in roots)
            why = f"should be a path of fields under {under}, {_FIELD_PATH_LIMITS}"
            yield Cause.invalid(f"{path}.{field}", why, value)


def _selectable_problems(
    fields: list[JsonObject], schema: JsonObject, path: str
) -> Iterator[Cause]:
    if len(fields) > _SELECTABLE_MAX:
        why = f"must have at most {_SELECTABLE_MAX} items"
        yield Cause.invalid(f"{path}.selectableFields", why, len(fields))
        return
    for index, field in enumerate(fields):
        where, value = f"{path}.selectableFields[{index}].jsonPath", field["jsonPath"]
        names = _parse_field_path(value)
        found = _find_schema(schema, names) if names else None
        if found is None or names is None or names[0] == "metadata":
            why = f"must be the path of a field that the schema describes, {_FIELD_PATH_LIMITS}"
            yield Cause.invalid(where, why, value)
        elif found.get("type") not in _SELECTABLE_TYPES:
            yield Cause.invalid(where, "must lead to a string, an integer or a boolean", value)


_FIELD_PATH_LIMITS = f"with at most {STEPS_MAX} names and {PATH_LENGTH_MAX} characters"


def _parse_field_path(path: str) -> list[str] | None:
    """Return the names along a path of fields, or None if it is another path or too long."""
    if len(path) > PATH_LENGTH_MAX or path.count(".") > STEPS_MAX:
        return None
    return field_names(path)


def _find_schema(schema: JsonObject, names: list[str]) -> JsonObject | None:
    """Return the schema of the field, or None if the schema does not describe it."""
    for name in names:
        inner = schema.get("properties", {}).get(name)
        if not isinstance(inner, dict):
            return None
        schema = inner
    return schema
