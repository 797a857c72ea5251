"""Validate, prune and default an object in one walk over its structural schema.

``compiled(schema)`` turns a schema into nested closures once; calling the result returns the
pruned and defaulted value and fills a Report. A value with an error is returned as it came.
Null means absent, unless the schema says nullable. ``allOf``, ``anyOf``, ``oneOf`` and ``not``
only validate: what they would prune or default is thrown away.
"""

from __future__ import annotations

from typing import Any

from datum_compute.api.checkreport import HIDDEN, Check, Report, joined, shown
from datum_compute.api.codec import JsonObject, sorted_bytes
from datum_compute.api.errors import Cause
from datum_compute.api.schema import EMBEDDED, INT_OR_STRING, PRESERVE
from datum_compute.api.valuerules import is_secret, value_rules

__all__ = ["Check", "Report", "compiled", "whole_object"]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
}
_METADATA: JsonObject = {"type": "object", PRESERVE: True}


def compiled(schema: JsonObject) -> Check:
    """The check of one schema node."""
    typed = _typed(schema)
    rules = (*value_rules(schema), *_junctions(schema))
    nullable = bool(schema.get("nullable"))
    if not rules and not nullable:
        return typed

    def check(value: Any, path: str, report: Report) -> Any:
        if value is None and nullable:
            return None
        before = len(report.errors)
        result = typed(value, path, report)
        if len(report.errors) == before:
            for rule in rules:
                rule(result, path, report)
        return result

    return check


def whole_object(schema: JsonObject) -> JsonObject:
    """The schema of a kind with what every object has. Metadata is checked by rules of its own
    and kept here, whatever else the schema says of it."""
    properties = dict(schema.get("properties", {}))
    for name in ("apiVersion", "kind"):
        properties.setdefault(name, {"type": "string"})
    properties["metadata"] = {**properties.get("metadata", {}), **_METADATA}
    return {**schema, "properties": properties}


def _typed(schema: JsonObject) -> Check:
    """The check of the type, then of what is inside."""
    kind = schema.get("type")
    if kind is None:
        return _int_or_string if schema.get(INT_OR_STRING) else _any_check(schema)
    inner = {"object": _object_check, "array": _array_check}.get(kind, _as_it_is)(schema)
    expected, secret = _TYPES[kind], is_secret(schema)

    def check(value: Any, path: str, report: Report) -> Any:
        if not isinstance(value, expected) or (isinstance(value, bool) and bool not in expected):
            seen, why = HIDDEN if secret else value, f"must be of type {kind}"
            report.invalid(path, seen, why, "FieldValueTypeInvalid")
            return value
        return inner(value, path, report)

    return check


def _as_it_is(_schema: JsonObject) -> Check:
    return lambda value, _path, _report: value


def _int_or_string(value: Any, path: str, report: Report) -> Any:
    if not isinstance(value, int | str) or isinstance(value, bool):
        report.invalid(path, value, "must be an integer or a string")
    return value


def _any_check(schema: JsonObject) -> Check:
    """No type is said: rules for objects and lists hold for those, any other value passes, and
    nothing is pruned."""
    open_schema = {**schema, PRESERVE: True}
    objects = _object_check(open_schema) if _says_of(schema, "properties", "required") else None
    arrays = _array_check(schema) if _says_of(schema, "items") else None

    def check(value: Any, path: str, report: Report) -> Any:
        if objects is not None and isinstance(value, dict):
            return objects(value, path, report)
        if arrays is not None and isinstance(value, list):
            return arrays(value, path, report)
        return value

    return check


def _says_of(schema: JsonObject, *keywords: str) -> bool:
    return any(keyword in schema for keyword in keywords)


def _object_check(schema: JsonObject) -> Check:
    fields = dict(schema.get("properties", {}))
    required = list(schema.get("required", ()))
    if schema.get(EMBEDDED):
        own = {"apiVersion": {"type": "string", "minLength": 1}, "metadata": _METADATA}
        fields = {**fields, **own, "kind": own["apiVersion"]}
        required += [name for name in ("apiVersion", "kind") if name not in required]
    properties = {name: compiled(field) for name, field in fields.items()}
    nullable = frozenset(name for name, field in fields.items() if field.get("nullable"))
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    others = schema.get("additionalProperties")
    other = compiled(others) if isinstance(others, dict) else None
    keep = bool(schema.get(PRESERVE)) or others is True

    plain = {name: plain_type(field) for name, field in fields.items()}
    plain_other = plain_type(others) if isinstance(others, dict) else None

    def check(value: JsonObject, path: str, report: Report) -> JsonObject:
        result: JsonObject = {}
        for name, item in value.items():
            if type(item) is plain.get(name, plain_other):
                result[name] = item  # most values are of this sort, and need no more than that
                continue
            rule = properties.get(name, other)
            if item is None and name in properties and name not in nullable:
                continue  # null means absent, so that a default can take its place
            if rule is not None:
                result[name] = rule(item, joined(path, name), report)
            elif keep:
                result[name] = item
            else:
                report.unknown.append(joined(path, name))
        for name, default in defaults.items():
            if name not in result:
                result[name] = properties[name](default, joined(path, name), report)
        for name in required:
            if name not in result:
                report.required(joined(path, name))
        return result

    return check


def plain_type(schema: JsonObject) -> type | None:
    """The type that is all a schema asks of a scalar; None where it asks for more."""
    known = {"string": str, "boolean": bool}.get(str(schema.get("type")))
    return known if known and not value_rules(schema) and not _junctions(schema) else None


def _array_check(schema: JsonObject) -> Check:
    item_check = compiled(schema.get("items", {}))
    keys = list_keys(schema)

    def check(value: list[Any], path: str, report: Report) -> list[Any]:
        result = [item_check(v, f"{path}[{i}]", report) for i, v in enumerate(value)]
        if keys is not None:
            check_unique(result, keys, path, report)
        return result

    return check


def list_keys(schema: JsonObject) -> tuple[str, ...] | None:
    """Key fields of a map list, the empty tuple for a set, None for an atomic list."""
    match schema.get("x-kubernetes-list-type"):
        case "map":
            return tuple(schema["x-kubernetes-list-map-keys"])
        case "set":
            return ()
        case _:
            return None


def check_unique(items: list[Any], keys: tuple[str, ...], path: str, report: Report) -> None:
    seen: set[bytes] = set()
    for index, item in enumerate(items):
        identity = {k: item.get(k) for k in keys} if keys and isinstance(item, dict) else item
        found = _identity_bytes(identity)
        if found in seen:
            message = f"Duplicate value: {shown(identity)}"
            report.errors.append(Cause(f"{path}[{index}]", "FieldValueDuplicate", message))
        seen.add(found)


def _identity_bytes(identity: Any) -> bytes:
    """Also of numbers that JSON has no room for; that those do not fit is said elsewhere."""
    try:
        return sorted_bytes(identity)
    except TypeError:
        return repr(identity).encode(errors="surrogatepass")


def _junctions(schema: JsonObject) -> list[Check]:
    found = [_all_of(map(compiled, schema["allOf"]))] if schema.get("allOf") else []
    if schema.get("anyOf"):
        found.append(_some_of(list(map(compiled, schema["anyOf"])), only_one=False))
    if schema.get("oneOf"):
        found.append(_some_of(list(map(compiled, schema["oneOf"])), only_one=True))
    if "not" in schema:
        found.append(_none_of(compiled(schema["not"])))
    return found


def _all_of(checks: Any) -> Check:
    every = list(checks)

    def check(value: Any, path: str, report: Report) -> None:
        for one in every:
            report.errors += _errors(one, value, path)

    return check


def _some_of(checks: list[Check], *, only_one: bool) -> Check:
    keyword = "oneOf" if only_one else "anyOf"

    def check(value: Any, path: str, report: Report) -> None:
        found = sorted((_errors(one, value, path) for one in checks), key=len)
        fitting = sum(1 for errors in found if not errors)
        if fitting == 0:
            report.invalid(path, value, f'must validate at least one schema ("{keyword}")')
            report.errors += found[0]
        elif only_one and fitting > 1:
            report.invalid(path, value, 'must validate one and only one schema ("oneOf")')

    return check


def _none_of(inner: Check) -> Check:
    def check(value: Any, path: str, report: Report) -> None:
        if not _errors(inner, value, path):
            report.invalid(path, value, 'must not validate the schema ("not")')

    return check


def _errors(check: Check, value: Any, path: str) -> list[Cause]:
    scratch = Report()
    check(value, path, scratch)
    return scratch.errors
