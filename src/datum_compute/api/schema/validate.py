"""Validates, prunes and defaults an object in one walk over its structural schema.

``compile_check(schema)`` turns a schema into nested closures once; calling the result returns the
pruned and defaulted value and fills a Report. A value with an error is returned unchanged.
Null means absent, unless the schema is nullable. ``allOf``, ``anyOf``, ``oneOf`` and ``not``
only validate: their pruning and defaulting is discarded.

Each container and each branch spends steps of the ``CheckBudget`` of the report, and each default
spends bytes: defaults in the items of a list can turn a few kilobytes into gigabytes.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from datum_compute.api.errors import Cause
from datum_compute.api.meta.codec import JsonObject, encode, sorted_bytes
from datum_compute.api.schema.derive import EMBEDDED, INT_OR_STRING, PRESERVE
from datum_compute.api.schema.keywords import check_count, has_value_rules, is_secret, value_rules
from datum_compute.api.schema.report import HIDDEN, Check, ValidationReport, join_path

__all__ = ["Check", "ValidationReport", "compile_check", "object_schema", "structure_of"]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_STRUCTURE = (
    "type",
    "nullable",
    "default",
    "additionalProperties",
    PRESERVE,
    EMBEDDED,
    INT_OR_STRING,
)
_COMPARED_BYTES_PER_STEP = 64
_STEPS_PER_BRANCH = 4
STEPS_PER_KEYED_ITEM = 12  # includes merging it and recording its field owners
_JUNCTIONS = ("allOf", "anyOf", "oneOf", "not")
_METADATA: JsonObject = {"type": "object", PRESERVE: True}


class Compiler:
    """Compiles each node of one schema once, at its first use, so that unused fields of a large
    schema cost nothing."""

    def __init__(self) -> None:
        # By ``id``. The entry refers to the node, so that no other object gets the same id.
        self._checks: dict[int, tuple[JsonObject, Check]] = {}

    def check(self, schema: JsonObject) -> Check:
        """Return the check of one schema node."""
        known = self._checks.get(id(schema))
        if known is None:
            known = self._checks[id(schema)] = (schema, _compile_node(schema, self))
        return known[1]


def compile_check(schema: JsonObject) -> Check:
    """Return the check of a schema."""
    return Compiler().check(schema)


def _compile_node(schema: JsonObject, compiler: Compiler) -> Check:
    typed = _build_type_check(schema, compiler)
    rules = (*value_rules(schema), *_junctions(schema, compiler))
    nullable = bool(schema.get("nullable"))
    if not rules and not nullable:
        return typed

    def check(value: Any, path: str, report: ValidationReport) -> Any:
        if value is None and nullable:
            return None
        before = report.failures
        result = typed(value, path, report)
        if report.failures == before:
            for rule in rules:
                rule(result, path, report)
        return result

    return check


T = TypeVar("T")


class FieldChecks(dict[str, T]):
    """The compiled fields of an object. ``compile_field`` compiles each at its first use."""

    def __init__(self, fields: JsonObject, compile_field: Callable[[JsonObject], T]) -> None:
        super().__init__()
        self._fields, self._compile_field = fields, compile_field

    def __missing__(self, name: str) -> T:
        compiled_field = self[name] = self._compile_field(self._fields[name])
        return compiled_field


def structure_of(schema: JsonObject, *, defaults: bool = True) -> JsonObject:
    """Return the schema without rules that only validate. It prunes unknown fields and applies
    defaults; without ``defaults`` it only prunes."""
    excluded = () if defaults else ("default",)
    kept = {name: schema[name] for name in _STRUCTURE if name in schema and name not in excluded}
    if "properties" in schema:
        fields = schema["properties"].items()
        kept["properties"] = {name: structure_of(f, defaults=defaults) for name, f in fields}
    for keyword in ("items", "additionalProperties"):
        if isinstance(schema.get(keyword), dict):
            kept[keyword] = structure_of(schema[keyword], defaults=defaults)
    return kept


def object_schema(schema: JsonObject) -> JsonObject:
    """Return the schema of a whole object of a kind. Other rules check metadata, which is kept."""
    properties = dict(schema.get("properties", {}))
    for name in ("apiVersion", "kind"):
        properties.setdefault(name, {"type": "string"})
    properties["metadata"] = {**properties.get("metadata", {}), **_METADATA}
    return {**schema, "properties": properties}


def _build_type_check(schema: JsonObject, compiler: Compiler) -> Check:
    """Return a check of the type, and then of the contents."""
    kind = schema.get("type")
    if kind is None:
        return _int_or_string if schema.get(INT_OR_STRING) else _any_check(schema, compiler)
    make = {"object": _object_check, "array": _array_check}.get(kind, _no_check)
    inner = make(schema, compiler)
    expected, secret = _TYPES[kind], is_secret(schema)

    def check(value: Any, path: str, report: ValidationReport) -> Any:
        if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
            seen, why = HIDDEN if secret else value, f"must be of type {kind}"
            report.fail_invalid(path, seen, why, "FieldValueTypeInvalid")
            return value
        return inner(value, path, report)

    return check


def _no_check(_schema: JsonObject, _compiler: Compiler) -> Check:
    return lambda value, _path, _report: value


def _int_or_string(value: Any, path: str, report: ValidationReport) -> Any:
    if not isinstance(value, int | str) or isinstance(value, bool):
        report.fail_invalid(path, value, "must be an integer or a string")
    return value


def _any_check(schema: JsonObject, compiler: Compiler) -> Check:
    """Return the check of a schema without a type.

    The rules for objects and lists apply to objects and lists. All other values pass, and nothing
    is pruned.
    """
    open_schema = {**schema, PRESERVE: True}
    has_fields = _has_any(schema, "properties", "required")
    objects = _object_check(open_schema, compiler) if has_fields else None
    arrays = _array_check(schema, compiler) if _has_any(schema, "items") else None

    def check(value: Any, path: str, report: ValidationReport) -> Any:
        if objects is not None and isinstance(value, dict):
            return objects(value, path, report)
        if arrays is not None and isinstance(value, list):
            return arrays(value, path, report)
        return value

    return check


def _has_any(schema: JsonObject, *keywords: str) -> bool:
    return any(keyword in schema for keyword in keywords)


def _object_check(schema: JsonObject, compiler: Compiler) -> Check:
    fields = dict(schema.get("properties", {}))
    required = list(schema.get("required", ()))
    if schema.get(EMBEDDED):
        own = {"apiVersion": {"type": "string", "minLength": 1}, "metadata": _METADATA}
        fields = {**fields, **own, "kind": own["apiVersion"]}
        required += [name for name in ("apiVersion", "kind") if name not in required]
    checks = FieldChecks(fields, compiler.check)
    nullable = frozenset(name for name, field in fields.items() if field.get("nullable"))
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    default_bytes = {name: default_size(name, default) for name, default in defaults.items()}
    steps = 1 + len(required) + len(defaults)
    others = schema.get("additionalProperties")
    other = compiler.check(others) if isinstance(others, dict) else None
    keep = bool(schema.get(PRESERVE)) or others is True

    plain = {name: plain_type(field) for name, field in fields.items()}
    plain_other = plain_type(others) if isinstance(others, dict) else None

    def check(value: JsonObject, path: str, report: ValidationReport) -> JsonObject:
        result: JsonObject = {}
        report.budget.spend(steps + len(value), path)
        for name, item in value.items():
            if type(item) is plain.get(name, plain_other):
                result[name] = item  # most values need only this check
                continue
            rule = checks[name] if name in fields else other
            if item is None and name in fields and name not in nullable:
                continue  # null means absent, so that a default applies
            if rule is not None:
                result[name] = rule(item, join_path(path, name), report)
            elif keep:
                result[name] = item
            else:
                report.add_unknown(join_path(path, name))
        for name, default in defaults.items():
            if name not in result:
                report.budget.spend_default(default_bytes[name], join_path(path, name))
                result[name] = checks[name](default, join_path(path, name), report)
        for name in required:
            if name not in result:
                report.fail_required(join_path(path, name))
        return result

    return check


def plain_type(schema: JsonObject) -> type | None:
    """Return the type of a scalar of which the schema requires nothing else, or None."""
    if has_value_rules(schema) or _has_any(schema, *_JUNCTIONS):
        return None
    return {"string": str, "boolean": bool}.get(str(schema.get("type")))


def default_size(name: str, default: Any) -> int:
    """Return the number of bytes that a default adds to an object."""
    try:
        return len(name) + len(encode(default)) + 4
    except (TypeError, ValueError):  # a number that JSON cannot represent
        return len(name) + len(repr(default)) + 4


def _array_check(schema: JsonObject, compiler: Compiler) -> Check:
    item_check = compiler.check(schema.get("items", {}))
    keys = list_keys(schema)
    items_max = schema.get("maxItems", sys.maxsize)

    def check(value: list[Any], path: str, report: ValidationReport) -> list[Any]:
        if len(value) > items_max:  # the items are not checked: there may be thousands
            check_count(len(value), 0, items_max, "items", path, report)
            return value
        report.budget.spend(1 + len(value), path)
        result = [item_check(v, f"{path}[{i}]", report) for i, v in enumerate(value)]
        if keys is not None:
            check_unique(result, keys, path, report)
        return result

    return check


def list_keys(schema: JsonObject) -> tuple[str, ...] | None:
    """Return the key fields of a map list, the empty tuple for a set, None for an atomic list."""
    match schema.get("x-kubernetes-list-type"):
        case "map":
            return tuple(schema["x-kubernetes-list-map-keys"])
        case "set":
            return ()
        case _:
            return None


def check_unique(
    items: list[Any], keys: tuple[str, ...], path: str, report: ValidationReport
) -> None:
    report.budget.spend(len(items) * (STEPS_PER_KEYED_ITEM if keys else 1), path)
    if not keys and _are_distinct_scalars(items):
        return
    seen: set[Any] = set()
    for index, item in enumerate(items):
        identity = {k: item.get(k) for k in keys} if keys and isinstance(item, dict) else item
        found, size_bytes = _hashable_identity(identity)
        report.budget.spend(1 + size_bytes // _COMPARED_BYTES_PER_STEP, path)
        if found in seen:
            report.fail(Cause.duplicate(f"{path}[{index}]", identity))
        seen.add(found)


def _are_distinct_scalars(items: list[Any]) -> bool:
    try:
        return len({(type(item), item) for item in items}) == len(items)
    except TypeError:  # a container
        return False


def _hashable_identity(identity: Any) -> tuple[Any, int]:
    """Return a hashable value that is equal for equal items, and the number of bytes read for it.
    1, 1.0 and true are different items."""
    if not isinstance(identity, dict | list):
        return (type(identity), identity), 0
    try:
        found = sorted_bytes(identity)
    except TypeError:  # numbers that JSON cannot represent; another check rejects them
        found = repr(identity).encode(errors="surrogatepass")
    return hashlib.sha256(found).digest(), len(found)


def _junctions(schema: JsonObject, compiler: Compiler) -> list[Check]:
    found: list[Check] = []
    if schema.get("allOf"):
        found.append(_all_of(schema["allOf"], compiler))
    if schema.get("anyOf"):
        found.append(_some_of(schema["anyOf"], compiler, only_one=False))
    if schema.get("oneOf"):
        found.append(_some_of(schema["oneOf"], compiler, only_one=True))
    if "not" in schema:
        found.append(_none_of(schema["not"], compiler))
    return found


def _all_of(schemas: list[JsonObject], compiler: Compiler) -> Check:
    def check(value: Any, path: str, report: ValidationReport) -> None:
        for schema in schemas:
            report.fail_each(_errors(compiler.check(schema), value, path, report))

    return check


def _some_of(schemas: list[JsonObject], compiler: Compiler, *, only_one: bool) -> Check:
    keyword = "oneOf" if only_one else "anyOf"

    def check(value: Any, path: str, report: ValidationReport) -> None:
        matching, fewest = 0, None
        for schema in schemas:
            errors = _errors(compiler.check(schema), value, path, report)
            if not errors:
                matching += 1
                if not only_one or matching > 1:
                    break
            elif fewest is None or len(errors) < len(fewest):
                fewest = errors
        if matching == 0:
            report.fail_invalid(path, value, f'must validate at least one schema ("{keyword}")')
            report.fail_each(fewest or ())
        elif only_one and matching > 1:
            report.fail_invalid(path, value, 'must validate one and only one schema ("oneOf")')

    return check


def _none_of(schema: JsonObject, compiler: Compiler) -> Check:
    def check(value: Any, path: str, report: ValidationReport) -> None:
        if not _errors(compiler.check(schema), value, path, report):
            report.fail_invalid(path, value, 'must not validate the schema ("not")')

    return check


def _errors(check: Check, value: Any, path: str, report: ValidationReport) -> list[Cause]:
    """Return the errors of a branch. It spends the budget of the enclosing report."""
    report.budget.spend(_STEPS_PER_BRANCH, path)
    scratch = ValidationReport(budget=report.budget)
    check(value, path, scratch)
    return scratch.errors
